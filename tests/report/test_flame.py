"""The flame graph of host time against a walk from every call up to its thread; and what the page makes of it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from etplus.converters.open import load as read_trace
from etplus.report.flame import PYTHON, RUNTIME, THREAD, flame_graph
from etplus.trace.stacks import Stacks
from etplus.trace.tables import MODULE
from etplus.trace.trace import Trace
from made_traces import kineto_of, launch, op
from traces import GPU_SHAPED, trace_of

TRACES = ("cpu-pairs/thr_bwd_all.kineto", f"linked {GPU_SHAPED}")
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
    for at in range(len(runtime)):
        count[path_of_runtime(at)] += 1
        total[path_of_runtime(at)] += int(runtime.end[at] - runtime.ts[at])
    return count, total


@pytest.mark.parametrize("name", TRACES)
def test_every_call_is_at_its_path(name: str) -> None:
    trace = trace_of(name).with_(stacks=Stacks.none())
    tree = flame_graph(trace, most=10**9)
    count, total = walked(trace)
    places = paths_of(tree)
    below: Counter[Path] = Counter()
    for path, at in places.items():
        below[path[:-1]] += int(tree["total"][at])
    for path, at in places.items():
        if tree["kind"][at] != THREAD:
            assert tree["count"][at] == count[path], path
            assert tree["total"][at] == max(total[path], below[path]), path
        else:
            assert tree["total"][at] == below[path]
    assert set(count) | {path[:1] for path in count} == places.keys()
    assert tree["left_out"] == 0


def test_frames_are_between_calls() -> None:
    """A call's path has the frames that began after its caller did; modules only where they are no calls."""
    trace = trace_of("gpu-kineto/h100_bert")
    calls, tree = trace.calls, flame_graph(trace, most=10**9)
    modules = any(kind == MODULE for kind in calls.kind.tolist())

    def stack_of(call: int) -> list[str]:
        entry = int(trace.stacks.first_entry(calls.source[call : call + 1])[0])
        frames = trace.stacks.frames(entry) if entry >= 0 else []
        return [frame for frame in frames if not (modules and frame.startswith("nn.Module: "))]

    def path_of(call: int) -> Path:
        caller = int(calls.parent[call])
        same = caller >= 0 and calls.thread[caller] == calls.thread[call]
        around, stack = stack_of(caller) if same else [], stack_of(call)
        new = stack[len(around) :] if stack[: len(around)] == around else []
        above = path_of(caller) if same else (f"CPU thread {calls.thread[call]}",)
        text = trace.names[calls.name[call]]
        return (*above, *new, "ProfilerStep" if text.startswith("ProfilerStep#") else text)

    places = paths_of(tree)
    count = Counter(map(path_of, range(len(calls))))
    assert {path: int(tree["count"][places[path]]) for path in count} == count
    frames = [at for at, kind in enumerate(tree["kind"].tolist()) if kind == PYTHON]
    inside: Counter[int] = Counter()
    for at, parent in enumerate(tree["parent"].tolist()):
        inside[parent] += int(tree["total"][at])
    assert frames and all(tree["total"][at] == inside[at] for at in frames)


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


@pytest.mark.parametrize(("names", "begin", "most"), [("abcde", 200, 3), ("edcba", 0, 4), ("cabed", 200, 6)])
def test_of_calls_that_take_the_same_time_the_outer_ones_are_kept(names: str, most: int, begin: int) -> None:
    """Whatever the codes of the names are: the first lines of the file give those names their codes in order."""
    events = [op(name, begin + 10 * at, 1) for at, name in enumerate("abcde")]
    events += [op(name, 100 - begin // 2, 100) for name in names]
    tree = flame_graph(read_trace(kineto_of(events)), most)
    chain = [("CPU thread 7",), *(("CPU thread 7", *names[: at + 1]) for at in range(5))]
    assert [*paths_of(tree)] == chain[:most]


def test_columns_of_a_small_trace() -> None:
    """The first name of the file has code 0."""
    events = [op("ProfilerStep#3", 0, 100, cat="user_annotation"), op("mm", 10, 50), launch(1, 20, 5)]
    tree = flame_graph(read_trace(kineto_of([op("first", 200, 10), *events])))
    columns = {key: tree[key].tolist() for key in ("parent", "kind", "count", "total")}
    names = [tree["names"][code] for code in tree["name"].tolist()]
    assert names == ["CPU thread 7", "ProfilerStep", "first", "mm", "cudaLaunchKernel"]
    assert columns == {
        "parent": [-1, 0, 0, 1, 3], "kind": [THREAD, 1, 0, 0, RUNTIME], "count": [0, 1, 1, 1, 1],
        "total": [110_000, 100_000, 10_000, 50_000, 5_000],
    }  # fmt: skip
    assert tree["left_out"] == 0 and flame_graph(read_trace(kineto_of(events)), 2)["left_out"] == 2
