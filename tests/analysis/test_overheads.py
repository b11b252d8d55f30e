"""The five overheads: by hand, against a walk over a real trace, pooled, and in the expected range."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from etplus.analysis.overheads import OverheadRows, overhead_rows, pool, read_overheads, summarize
from etplus.converters.open import load as read_trace
from etplus.trace.errors import TraceFormatError
from etplus.trace.tables import OP
from traces import GPU_SHAPED, kernel, kineto_of, launch, op, trace_of

DLRM = "gpu-pairs/dlrm.rank0.kineto"


def values(rows: OverheadRows, kind: int, key: str | None = None) -> list[float]:
    chosen = rows.type == kind
    if key is not None:
        chosen &= rows.key == rows.keys.index(key)
    return sorted((rows.value[chosen] / 1000).tolist())


def test_by_hand() -> None:
    events = [
        op("a", 0, 100), op("inside", 5, 10), op("inside", 50, 10),
        launch(1, 30, 6), launch(2, 40, 4), launch(3, 70, 9, "cudaMemcpyAsync"), launch(9, 95, 3, "cudaGetLastError"),
        op("b", 110, 20), op("a", 131, 30), launch(4, 140, 5), op("b", 400, 10),
        {"ph": "X", "cat": "user_annotation", "name": "note", "ts": 105, "dur": 60, "args": {}},
        *(kernel("k", correlation, 200 + correlation, 1) for correlation in (1, 2, 3, 4)),
    ]  # fmt: skip
    rows = overhead_rows(read_trace(kineto_of(events)), 2000)
    assert values(rows, 1) == [1 - 2, 10 - 2] and rows.too_long == 1, "the last gap is of 239 µs"
    assert values(rows, 2, "a") == [9, 30 - 2]
    assert values(rows, 3, "a") == [161 - 145, 100 - 79]
    assert values(rows, 4, "cudaLaunchKernel") == [4, 5, 6] and values(rows, 4, "cudaMemcpyAsync") == [9]
    assert values(rows, 5, "a") == [40 - 36, 70 - 44 - 2]
    assert values(rows, 5, "b") == [10, 20]
    found = summarize(rows)
    assert (found.t1.n, found.t1.clipped, found.t1.mean, found.t1.expected) == (1, 1, 8, 4)
    assert found.launches == {"a": ["cudaLaunchKernel"]}, "as often as the longer sequence, and before it"
    assert "cudaGetLastError" not in found.t4


def test_dlrm_is_in_the_expected_range() -> None:
    found = summarize(overhead_rows(trace_of(DLRM)))
    assert found.t1.mean_with_outliers == pytest.approx(11.6, abs=0.1)
    assert found.all["t2"].mean_with_outliers == pytest.approx(11.3, abs=0.1)
    assert found.t4["cudaLaunchKernel"].mean_with_outliers == pytest.approx(5.53, abs=0.01)
    assert (found.t4["cudaLaunchKernel"].n, found.t4["cudaLaunchKernel"].outliers) == (232, 13)
    assert (found.t1.n, found.t1.clipped, found.t1.outliers, found.too_long) == (204, 253, 43, 3)
    assert (found.all["t5"].clipped, found.all["t5"].outliers) == (39, 46)


@pytest.mark.parametrize("name", [DLRM, "gpu-pairs/linear.kineto", f"linked {GPU_SHAPED}"])
def test_against_a_walk(name: str) -> None:
    """One operator at a time, from its own calls and launches."""
    trace = trace_of(name)
    calls, runtime, top = trace.calls, trace.runtime, trace.hierarchy.top
    rows = overhead_rows(trace, 1500)
    inside: dict[int, list[int]] = {}
    for call, of in enumerate(top.tolist()):
        if of >= 0 and of != call:
            inside.setdefault(of, []).append(int(calls.ts[call]))
    launches: dict[int, list[tuple[int, int]]] = {}
    for at in np.flatnonzero(runtime.launches & (runtime.call >= 0)).tolist():
        if (of := int(top[runtime.call[at]])) >= 0:
            launches.setdefault(of, []).append((int(runtime.ts[at]), int(runtime.end[at])))
    expected: dict[int, list[float]] = {2: [], 3: [], 5: []}
    for call in np.flatnonzero((calls.kind == OP) & (top == np.arange(len(calls)))).tolist():
        start, end, events = int(calls.ts[call]), int(calls.end[call]), sorted(inside.get(call, ()))
        mine = sorted(launches.get(call, ()))
        before = [sum(ts <= begin for ts in events) for begin, _ in mine]
        if not mine:
            expected[5].append(end - start - 1500 * len(events))
            continue
        expected[2].append(mine[0][0] - start - 1500 * before[0])
        expected[3].append(end - mine[-1][1] - 1500 * (len(events) - before[-1]))
        for i in range(1, len(mine)):
            expected[5].append(mine[i][0] - mine[i - 1][1] - 1500 * (before[i] - before[i - 1]))
    for kind, found in expected.items():
        assert sorted(rows.value[rows.type == kind].tolist()) == sorted(found)


def test_pooled_is_recomputed_from_rows(tmp_path: Path) -> None:
    parts = [overhead_rows(trace_of(f"gpu-pairs/dlrm.rank{rank}.kineto")) for rank in range(4)]
    pooled = summarize(pool(parts))
    launched = (
        np.concatenate([p.value[(p.type == 4) & (p.key == p.keys.index("cudaLaunchKernel"))] for p in parts]) / 1000
    )
    low, high = np.percentile(launched, [25, 75])
    kept = launched[np.abs(launched - (low + high) / 2) <= 2 * (high - low)]  # 1.5 ranges beyond either quartile
    found = pooled.t4["cudaLaunchKernel"]
    assert (found.n, found.outliers) == (len(kept), len(launched) - len(kept))
    assert (found.mean, found.std) == (pytest.approx(kept.mean()), pytest.approx(kept.std()))
    assert pooled.all["t5"].n + pooled.all["t5"].outliers == sum(int((part.type == 5).sum()) for part in parts)
    assert pool(parts).too_long == sum(part.too_long for part in parts)
    (tmp_path / "o.json").write_bytes(msgspec.json.encode(pooled))
    assert read_overheads(tmp_path / "o.json") == pooled


def test_by_shape() -> None:
    rows = overhead_rows(trace_of(DLRM), by_shape=True)
    plain = overhead_rows(trace_of(DLRM))
    linear = {key for key in rows.keys if key.startswith("aten::linear ")}
    assert "aten::linear [16,13],[256,13],[256]" in linear and not any("[" in key for key in plain.keys)
    assert sorted(us for key in linear for us in values(rows, 2, key)) == values(plain, 2, "aten::linear")


def test_nothing_to_measure() -> None:
    rows = overhead_rows(read_trace(kineto_of([launch(1, 5), kernel("k", 1, 7, 1)])))
    found = summarize(rows)
    assert (found.t1.n, found.t2, found.t4["cudaLaunchKernel"].mean) == (0, {}, 1)
    assert summarize(pool([rows, rows])).t4["cudaLaunchKernel"].n == 2


@pytest.mark.parametrize("text", [b"{}", b"[1]", b"\xff", b'{"t1": 5}'])
def test_another_file(text: bytes) -> None:
    with pytest.raises(TraceFormatError, match="no file of overheads"):
        read_overheads(text)
