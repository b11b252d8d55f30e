"""Two traces by call path, against a walk over the calls; and the page of a comparison, in a browser."""

from __future__ import annotations

from collections import defaultdict

import pytest
from etplus.analysis.place_diff import path_rows
from etplus.analysis.summary import Analysis, analyze
from etplus.analysis.trace_diff import difference, json_of_difference
from etplus.converters.open import load
from etplus.trace.find_steps import family_of
from etplus.trace.tables import ANNOTATION
from made_traces import kernel, kineto_of, launch, op
from traces import analysis_of

EVIL = "</script><img src=x onerror=window.pwned=1>"


def walked(analysis: Analysis) -> dict[tuple[str, ...], list[float]]:
    """By path: calls, host time, device time launched by the calls themselves; over the iterations, where there are."""
    trace, iterations = analysis.trace, analysis.iterations

    def counts(ts: int) -> bool:
        return not iterations or any(one.start <= ts < one.end for one in iterations)

    def path(call: int) -> tuple[str, ...]:
        names: list[str] = []
        while call >= 0:
            name = trace.names[trace.calls.name[call]]
            names.append(family_of(name) if trace.calls.kind[call] == ANNOTATION else name)
            call = int(trace.calls.parent[call])
        return tuple(reversed(names))

    found: dict[tuple[str, ...], list[float]] = defaultdict(lambda: [0, 0, 0])
    for call in range(len(trace.calls)):
        if counts(int(trace.calls.ts[call])):
            found[path(call)][0] += 1
            found[path(call)][1] += int(trace.calls.end[call] - trace.calls.ts[call])
    for event, call in enumerate(trace.gpu.call.tolist()):
        if call >= 0 and counts(int(trace.launched_ns[event])) and counts(int(trace.calls.ts[call])):
            found[path(call)][2] += int(trace.gpu.dur[event])
    by = max(len(iterations), 1)
    return {key: [value / by for value in values] for key, values in found.items()}


def test_paths_are_those_of_a_walk() -> None:
    a, b = (analysis_of(f"gpu-kineto/{name}") for name in ("h100_bert", "mi300_bert"))
    rows = path_rows(a, b, per_iteration=bool(a.iterations and b.iterations))
    assert len({row.path for row in rows}) == len(rows)
    for side, analysis in (("a", a), ("b", b)):
        found = {row.path: getattr(row, side) for row in rows if getattr(row, side) is not None}
        expected = walked(analysis)
        assert found.keys() == expected.keys()
        for path, (calls, host, launched) in expected.items():
            one = found[path]
            assert (one.calls, one.host_ns, one.launched_ns) == pytest.approx((calls, host, launched))
    at = {row.path: place for place, row in enumerate(rows)}
    assert all(at[row.path[:-1]] < at[row.path] for row in rows if row.path[:-1] in at), "callers come first"
    same = path_rows(a, a, per_iteration=bool(a.iterations))
    assert all(row.change(what) == 0 for row in same for what in ("host_ns", "device_ns", "self_ns"))


def slower(factor: int) -> bytes:
    """An operator below another that launches a kernel of so many µs; and one that is alike."""
    events = [
        op(EVIL, 0, 30), op("aten::mm", 2, 20), launch(1, 5), kernel("gemm", 1, 40, 100 * factor),
        op("aten::add", 50, 20), launch(2, 55), kernel("add", 2, 1500, 10),
    ]  # fmt: skip
    return kineto_of(events)


def test_what_got_slower_is_named_with_its_callers() -> None:
    a, b = (analyze(load(slower(factor))) for factor in (1, 3))
    found = difference(a, b)
    changed = [row for row in found.paths if row.change("launched_ns")]
    assert [(row.path, row.change("launched_ns")) for row in changed] == [((EVIL, "aten::mm"), 200_000)]
    (row,) = [row for row in json_of_difference(found)["paths"] if row["change_launched_ns"]]
    assert row["path"] == f"{EVIL} / aten::mm" and row["depth"] == 1
