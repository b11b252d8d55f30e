"""The flame graph of host time against a walk from every call up to its thread; and what the page makes of it."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import orjson
import pytest
from etplus.converters.open import load as read_trace
from etplus.report.flame import PYTHON, RUNTIME, THREAD, _enclosing, flame_graph
from etplus.schemas.kineto.python_frames import read_python_frames
from etplus.trace.stacks import Stacks
from etplus.trace.tables import MODULE
from etplus.trace.trace import Trace
from hypothesis import given
from hypothesis import strategies as st
from support import call, shared_trace
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
    trace = trace_of(name).with_(stacks=Stacks.none())
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


@pytest.mark.parametrize("name", ["gpu-kineto/h100_bert", "linked cpu-pairs/tf_stack_mem"])
def test_frames_are_between_calls(name: str) -> None:
    """A call's path has the frames that began after its caller did; modules only where they are no calls."""
    trace = trace_of(name)
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


def test_python_functions_by_brute_force() -> None:
    """Every call is below the last to begin of those on its thread that enclose it; of equal ones the inner one."""
    path = shared_trace("cpu-pairs/conv_stack.kineto.json.gz")
    trace, frames = read_trace(path), read_python_frames(path)
    calls, runtime = trace.calls, trace.runtime
    recorded = orjson.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    python = [one["name"] for one in recorded if one.get("cat") == "python_function"]
    assert Counter(frames.name) == Counter(name for name in python if not name.startswith("nn.Module: "))
    names = [trace.names[code] for code in (*calls.name.tolist(), *runtime.name.tolist())] + frames.name
    names = ["ProfilerStep" if one.startswith("ProfilerStep#") else one for one in names]
    tables = (calls, runtime, frames)
    thread, ts, end = (np.concatenate([getattr(one, key) for one in tables]) for key in ("thread", "ts", "end"))
    rank = np.arange(len(ts))
    rank[-len(frames) :] -= len(ts)  # of calls of one time a Python call is the outer one, then the caller

    def path_of(at: int) -> Path:
        around = (thread == thread[at]) & (ts <= ts[at]) & (end >= end[at]) & (end > ts[at])
        around &= (ts < ts[at]) | (end > end[at]) | (rank < rank[at])
        if not around.any():
            return f"CPU thread {thread[at]}", names[at]
        found = np.flatnonzero(around)
        return (*path_of(int(found[np.lexsort((rank[found], -end[found], ts[found]))[-1]])), names[at])

    tree = flame_graph(trace, 10**9, frames)
    counted = Counter(map(path_of, range(len(ts))))
    assert {path: int(tree["count"][at]) for path, at in paths_of(tree).items() if len(path) > 1} == dict(counted)
    assert sum(tree["count"][tree["kind"] == PYTHON]) == len(frames) > 400


def test_the_command_shows_python_functions(tmp_path: FilePath) -> None:
    python = {"cat": "python_function", "tid": 7}
    events = [
        op("train.py(3): step", 0, 100, **python),
        op("nn.Module: Net_0", 10, 80, **python),
        op("aten::mm", 20, 50),
    ]
    (tmp_path / "stack.json").write_bytes(kineto_of(events))
    (tmp_path / "none.json").write_bytes(kineto_of(events[2:]))
    done = call("report", "stack.json", "--python-frames", "-o", "page.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    flame = orjson.loads((tmp_path / "page.html").read_bytes().split(b'"application/json">')[1].split(b"</script>")[0])
    names = [flame["ranks"][0]["flame"]["names"][one] for one in flame["ranks"][0]["flame"]["name"]]
    assert names == ["CPU thread 7", "train.py(3): step", "nn.Module: Net_0", "aten::mm"]
    for words, told in (
        (["none.json"], b"none.json: has no Python calls; give a Kineto trace that was recorded with_stack=True\n"),
        (["-"], b"--python-frames reads Kineto traces a second time"),
    ):
        done = call("report", *words, "--python-frames", "-o", "other.html", cwd=tmp_path)
        assert done.returncode == 2 and told in done.stderr and done.stderr.count(b"\n") == 1
    assert not (tmp_path / "other.html").exists()


@pytest.mark.parametrize("most", range(1, 7))
@pytest.mark.parametrize("names", ["abcde", "edcba", "cabed"])
@pytest.mark.parametrize("begin", [200, 0])
def test_of_calls_that_take_the_same_time_the_outer_ones_are_kept(names: str, most: int, begin: int) -> None:
    """Whatever the codes of the names are: the first lines of the file give those names their codes in order."""
    events = [op(name, begin + 10 * at, 1) for at, name in enumerate("abcde")]
    events += [op(name, 100 - begin // 2, 100) for name in names]
    tree = flame_graph(read_trace(kineto_of(events)), most)
    chain = [("CPU thread 7",), *(("CPU thread 7", *names[: at + 1]) for at in range(5))]
    assert [*paths_of(tree)] == chain[:most]


@given(st.lists(st.tuples(st.integers(-1, 9), st.integers(0, 9)), max_size=10))
def test_the_innermost_one_around_the_whole_of_a_call_by_walking_up(drawn: list[tuple[int, int]]) -> None:
    inner = [min(one, at - 1) for at, (one, _) in enumerate(drawn)]
    end = [one for _, one in drawn]
    wanted = []
    for at in range(len(drawn)):
        around = inner[at]
        while around >= 0 and end[around] < end[at]:
            around = inner[around]
        wanted.append(around)
    assert _enclosing(np.array(inner, np.int64), np.array(end, np.int64)).tolist() == wanted


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
