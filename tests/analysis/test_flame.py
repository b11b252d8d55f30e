"""The flame graph of host time against a walk from every call up to its thread; and what the page makes of it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from etplus.analysis.flame import RUNTIME, THREAD, flame_graph
from etplus.converters.open import load as read_trace
from etplus.trace.trace import Trace
from traces import GPU_SHAPED, kineto_of, launch, op, trace_of

TRACES = (
    "gpu-kineto/h100_bert", "gpu-pairs/resnet103.kineto", "cpu-pairs/tf_stack_mem.kineto",
    "cpu-pairs/thr_bwd_all.kineto", f"linked {GPU_SHAPED}",
)  # fmt: skip
Path = tuple[str, ...]


def paths_of(tree: dict[str, Any]) -> dict[Path, int]:
    """The place of each node by the names from its thread down to it."""
    paths: list[Path] = []
    for name, parent in zip(tree["name"].tolist(), tree["parent"].tolist(), strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), tree["names"][name]))
    assert len(set(paths)) == len(paths)
    return {path: at for at, path in enumerate(paths)}


def walked(trace: Trace) -> tuple[Counter[Path], Counter[Path]]:
    """Number and time of the calls at each path; a runtime call is below another one that is open, else its caller."""
    calls, runtime = trace.calls, trace.runtime

    def name(code: int) -> str:
        text = trace.names[code]
        return "ProfilerStep" if text.startswith("ProfilerStep#") else text

    def path_of(call: int) -> Path:
        caller = int(calls.parent[call])
        if caller >= 0 and calls.thread[caller] == calls.thread[call]:
            return (*path_of(caller), name(calls.name[call]))
        return thread(int(calls.thread[call])), name(calls.name[call])

    def thread(number: int) -> str:
        return f"CPU thread {number}" if number >= 0 else f"other thread {-number}"

    def path_of_runtime(at: int) -> Path:
        begin, end, own = (int(column[at]) for column in (runtime.ts, runtime.end, runtime.thread))
        around = [
            one for one in range(len(runtime))
            if runtime.thread[one] == own and one != at and runtime.ts[one] <= begin and end <= runtime.end[one]
            and (runtime.ts[one], -runtime.end[one], one) < (begin, -end, at) and runtime.end[one] > begin
        ]  # fmt: skip
        if around:
            return (
                *path_of_runtime(max(around, key=lambda one: (runtime.ts[one], -runtime.end[one], one))),
                name(runtime.name[at]),
            )
        call = int(runtime.call[at])
        above = path_of(call) if call >= 0 and calls.thread[call] == own else (thread(own),)
        return (*above, name(runtime.name[at]))

    count: Counter[Path] = Counter()
    total: Counter[Path] = Counter()
    for at in range(len(calls)):
        count[path_of(at)] += 1
        total[path_of(at)] += int(calls.end[at] - calls.ts[at])
    for at in range(len(runtime)) if len(runtime) < 1500 else ():
        count[path_of_runtime(at)] += 1
        total[path_of_runtime(at)] += int(runtime.end[at] - runtime.ts[at])
    return count, total


@pytest.mark.parametrize("name", TRACES)
def test_every_call_is_at_its_path(name: str) -> None:
    trace = trace_of(name)
    tree = flame_graph(trace, most=10**9)
    count, total = walked(trace)
    places = paths_of(tree)
    skipped = (
        {path for path, at in places.items() if tree["kind"][at] == RUNTIME} if len(trace.runtime) >= 1500 else set()
    )
    below: Counter[Path] = Counter()
    for path, at in places.items():
        below[path[:-1]] += int(tree["total"][at])
    for path, at in places.items():
        if path not in skipped and tree["kind"][at] != THREAD:
            assert tree["count"][at] == count[path], path
            assert tree["total"][at] == max(total[path], below[path]), path
        if tree["kind"][at] == THREAD:
            assert tree["total"][at] == below[path]
    if not skipped:
        assert set(count) | {path[:1] for path in count} == places.keys()
    assert tree["left_out"] == 0


def test_the_largest_are_kept_and_callers_come_first() -> None:
    whole, cut = (flame_graph(trace_of("gpu-kineto/h100_bert"), most=most) for most in (10**9, 50))
    assert len(cut["name"]) == 50 and cut["left_out"] == len(whole["name"]) - 50
    assert sorted(cut["total"].tolist()) == sorted(whole["total"].tolist())[-50:]
    assert all(parent < at for at, parent in enumerate(cut["parent"].tolist()))
    assert {path: int(cut["total"][at]) for path, at in paths_of(cut).items()}.items() <= {
        path: int(whole["total"][at]) for path, at in paths_of(whole).items()
    }.items()


def test_iterations_are_one_box() -> None:
    events = [op(f"ProfilerStep#{n}", 100 * n, 90, cat="user_annotation") for n in range(3)]
    events += [op("aten::mm", 100 * n + 10, 50) for n in range(3)] + [launch(1, 20)]
    tree = flame_graph(read_trace(kineto_of(events)))
    shown = [
        (tree["names"][name], int(count), int(total))
        for name, count, total in zip(tree["name"].tolist(), tree["count"], tree["total"], strict=True)
    ]
    assert shown[1:] == [("ProfilerStep", 3, 270_000), ("aten::mm", 3, 150_000), ("cudaLaunchKernel", 1, 1000)]
