"""Events with times that cannot be count in no sum, in any format, and are named once; legitimate overlap counts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from etplus import load
from etplus.trace.build import impossible_times
from hypothesis import given
from hypothesis import strategies as st
from made_traces import kernel, launch, op
from support import Document, call, examples, kineto_document, succeeds

EPOCH_US = 1_700_000_000_000_000
WRONG = 3
"""The event that each case makes impossible, by its correlation."""


def document(changes: dict[str, float] | None = None, *, without: int = -1) -> Document:
    events = []
    for number in range(1, 7):
        at, external = EPOCH_US + 100 * number, {"External id": number}
        events.append(op(f"aten::op{number}", at, 50, args=external | {"Record function id": 0}))
        events.append(launch(number, at + 10, 5, **external))
        if number != without:
            work = kernel(f"kernel{number}", number, at + 60, 30, **external)
            events.append(work | (changes or {}) if number == WRONG else work)
    return kineto_document(events)


def saved(folder: Path, content: Document, name: str = "kineto.json") -> Path:
    (folder / name).write_text(json.dumps(content))
    return folder / name


IMPOSSIBLE: dict[str, dict[str, float]] = {
    "8 days": {"dur": 8 * 86400e6}, "1.6 s over the next kernels": {"dur": 1.6e6}, "time 0": {"ts": 0},
    "a negative duration": {"dur": -7},
}  # fmt: skip


def analyzed(file: Path) -> dict[str, Any]:
    analysis = load(file).analyze()
    return {name: getattr(analysis, name) for name in ("device_use", "streams", "kernels", "breakdown", "host")}


@pytest.mark.parametrize("changes", IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_such_an_event_counts_in_no_sum_and_is_named_once(tmp_path: Path, changes: dict[str, float]) -> None:
    expected = analyzed(saved(tmp_path, document(without=WRONG), "without.json"))
    file = saved(tmp_path, document(changes))
    assert analyzed(file) == expected
    (sentence,) = load(file).damage
    assert "kernel3 (id " in sentence and "impossible times" in sentence


def test_such_an_event_counts_in_no_sum_of_any_format(tmp_path: Path) -> None:
    expected = analyzed(saved(tmp_path, document(without=WRONG), "without.json"))
    file = saved(tmp_path, document(IMPOSSIBLE["time 0"]))
    for name in ("copy.et", "copy.etplus.json", "copy.parquet"):
        succeeds("convert", file, "-o", tmp_path / name)
        assert analyzed(tmp_path / name) == expected, name
    done = call("analyze", tmp_path / "copy.et", "--json", "-")
    assert len(json.loads(done.stdout)["traces"][0]["damage"]) == 1 and done.stderr.count(b"impossible times") == 1


def test_an_operator_at_time_0_leaves_the_span_alone(tmp_path: Path) -> None:
    content = document()
    content["traceEvents"][0]["ts"] = 0
    trace = load(saved(tmp_path, content))
    assert trace.span.length < 10**6 and "aten::op1" in trace.damage[0]


def columns(rows: list[tuple[int, int, int, int]], category: str = "kernel", name: str = "cudaLaunchKernel") -> Any:
    ts, dur, stream, correlation = np.array(rows, np.int64).T
    zeros = np.zeros(len(rows), np.int64)
    return impossible_times(
        ts, dur, is_gpu=zeros == 0, device=zeros, stream=stream, correlation=correlation, category=zeros,
        categories=[category], names=[name],
    )  # fmt: skip


MS = 10**6
ROW = st.tuples(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 3), st.integers(1, 9))


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        ([(0, 5 * MS, 7, 1), (4 * MS, 2 * MS, 7, 2)], {}),  # programmatic dependent launch
        ([(0, 1001, 7, 1), (1000, 0, 7, 2)], {}),  # rounding
        ([(0, 900 * MS, 7, 1), (5, 10, 7, 1), (20, 10, 7, 1)], {}),  # branches of a graph on one lane
        ([(0, 900 * MS, 7, 1), (5, 10, 8, 2)], {}),  # two streams
        ([(0, 900 * MS, 7, 1), (5, 10, 7, 2)], {"name": "hipLaunchKernel"}),  # streams of ROCm that share a queue
        ([(0, 9000 * MS, 7, 1), (5, 10, 7, 2)], {"category": "mtia_ccp_events"}),  # units side by side
    ],
)
def test_legitimate_overlap_is_not_impossible(rows: list[tuple[int, int, int, int]], options: dict[str, str]) -> None:
    assert not columns(rows, **options).any()


@examples(60)
@given(st.lists(ROW, min_size=1, max_size=12, unique_by=lambda row: row[0]))
def test_an_event_overruns_if_a_later_one_of_its_stream_ends_long_before_it(rows: list[Any]) -> None:
    launches = [row[3] for row in rows]
    first = min(ts for ts, *_ in rows)
    ends = [(ts + dur - first) // 1000 for ts, dur, *_ in rows]
    expected = [
        launches.count(row[3]) == 1
        and any(row[0] < other[0] and row[2] == other[2] and end - ends[k] > 10**5 for k, other in enumerate(rows))
        for row, end in zip(rows, ends, strict=True)
    ]
    assert (columns(rows) > 0).tolist() == expected
