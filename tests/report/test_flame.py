"""The flame graph of host time: paths, counts and times of small traces by hand."""

from typing import Any

import pytest
from etplus.report.flame import RUNTIME, THREAD, flame_graph
from made_traces import frame, launch, op, traced
from traces import trace_of

Path = tuple[str, ...]


def paths_of(tree: dict[str, Any]) -> dict[Path, int]:
    """The place of each node by the names from its thread down to it."""
    paths: list[Path] = []
    for name, parent in zip(tree["name"].tolist(), tree["parent"].tolist(), strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), tree["names"][name]))
    assert len(set(paths)) == len(paths)
    return {path: at for at, path in enumerate(paths)}


def test_frames_are_between_calls_and_a_runtime_call_may_be_within_another() -> None:
    events = [
        frame("a.py(1): main", 0, 200), op("aten::linear", 10, 100), frame("a.py(5): inner", 20, 60, "a.py:3"),
        op("aten::mm", 30, 40), launch(1, 35, 20), launch(2, 40, 5, "cudaFuncGetAttributes"), op("aten::add", 150, 20),
        op("aten::mm", 40, 30, tid=9),
    ]  # fmt: skip
    tree = flame_graph(traced(events))
    places = {path[1:]: (int(tree["count"][at]), int(tree["total"][at])) for path, at in paths_of(tree).items()}
    linear = ("a.py(1): main", "aten::linear")
    product = (*linear, "a.py(5): inner", "aten::mm")
    assert places == {
        (): (0, 30_000), linear[:1]: (2, 120_000), linear: (1, 100_000), product[:3]: (1, 40_000),
        product: (1, 40_000), (*product, "cudaLaunchKernel"): (1, 20_000), ("aten::mm",): (1, 30_000),
        (*product, "cudaLaunchKernel", "cudaFuncGetAttributes"): (1, 5_000), (*linear[:1], "aten::add"): (1, 20_000),
    }  # fmt: skip


def test_the_largest_are_kept_and_callers_come_first() -> None:
    whole, cut = (flame_graph(trace_of("gpu-kineto/h100_bert"), most=most) for most in (10**9, 50))
    assert len(cut["name"]) == 50 and cut["left_out"] == len(whole["name"]) - 50
    assert sorted(cut["total"].tolist()) == sorted(whole["total"].tolist())[-50:]
    assert all(parent < at for at, parent in enumerate(cut["parent"].tolist()))
    assert {path: int(cut["total"][at]) for path, at in paths_of(cut).items()}.items() <= {
        path: int(whole["total"][at]) for path, at in paths_of(whole).items()
    }.items()


def test_iterations_are_merged_into_one_box() -> None:
    events = [op(f"ProfilerStep#{n}", 100 * n, 90, cat="user_annotation") for n in range(3)]
    events += [op("aten::mm", 100 * n + 10, 50) for n in range(3)] + [launch(1, 20)]
    tree = flame_graph(traced(events))
    shown = [
        (tree["names"][name], int(count), int(total))
        for name, count, total in zip(tree["name"].tolist(), tree["count"], tree["total"], strict=True)
    ]
    assert shown[1:] == [("ProfilerStep", 3, 270_000), ("aten::mm", 3, 150_000), ("cudaLaunchKernel", 1, 1000)]


@pytest.mark.parametrize(("names", "begin", "most"), [("abcde", 200, 3), ("edcba", 0, 4), ("cabed", 200, 6)])
def test_of_calls_that_take_the_same_time_the_outer_ones_are_kept(names: str, most: int, begin: int) -> None:
    events = [op(name, begin + 10 * at, 1) for at, name in enumerate("abcde")]
    events += [op(name, 100 - begin // 2, 100) for name in names]
    tree = flame_graph(traced(events), most)
    chain = [("CPU thread 7",), *(("CPU thread 7", *names[: at + 1]) for at in range(5))]
    assert [*paths_of(tree)] == chain[:most]


def test_flame_columns_hold_parents_kinds_counts_and_totals() -> None:
    events = [op("ProfilerStep#3", 0, 100, cat="user_annotation"), op("mm", 10, 50), launch(1, 20, 5)]
    tree = flame_graph(traced([op("first", 200, 10), *events]))
    columns = {key: tree[key].tolist() for key in ("parent", "kind", "count", "total")}
    names = [tree["names"][code] for code in tree["name"].tolist()]
    assert names == ["CPU thread 7", "ProfilerStep", "first", "mm", "cudaLaunchKernel"]
    assert columns == {
        "parent": [-1, 0, 0, 1, 3], "kind": [THREAD, 1, 0, 0, RUNTIME], "count": [0, 1, 1, 1, 1],
        "total": [110_000, 100_000, 10_000, 50_000, 5_000],
    }  # fmt: skip
    assert tree["left_out"] == 0 and flame_graph(traced(events), 2)["left_out"] == 2
