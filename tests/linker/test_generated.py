"""Generated pairs with known links through the whole linker: what is certain is true, and what is there is found."""

from __future__ import annotations

from dataclasses import replace

import orjson
from etplus.linker import link
from etplus.trace.trace import Trace
from generate import Op, Pair, Recipe, Worker, links_of, recipes, record
from hypothesis import assume, given
from hypothesis import strategies as st
from support import assert_valid, examples

NOTHING: frozenset[tuple[int, int, int]] = frozenset()
METHODS = st.sampled_from(["auto", "auto", "sequence", "shift", "tree"])


def check(pair: Pair, result: Trace) -> None:
    """No certain link is wrong, and no event has two nodes."""
    links = links_of(result)
    wrong = {n: event for n, (event, certain) in links.items() if certain and pair.truth.get(n) != event}
    assert not wrong, f"certain and wrong: {wrong}\n{result.report.to_text()}\n{result.report.facts}"
    events = [event for event, _ in links.values()]
    assert len(set(events)) == len(events)
    ops = result.report.ops
    assert ops["certain"] + ops["equivalent"] == ops["linked"] == len(links)
    assert ops["linked"] + sum(ops["unlinked"].values()) == ops["total"]


def alone(recipe: Recipe) -> Recipe:
    """The same with the main thread only."""
    return replace(recipe, workers=(replace(recipe.workers[0], profiled=True),))


def recall(pair: Pair, result: Trace) -> float:
    links = links_of(result)
    right = sum(links.get(node, (-1, False))[0] == event for node, event in pair.truth.items())
    return right / len(pair.truth) if pair.truth else 1.0


@given(recipes(ids=True))
def test_with_ids_every_true_link_is_found_and_certain(recipe: Recipe) -> None:
    """Whatever the windows, threads, numbers are, and whatever raised; if ids join what could be joined.

    Kineto has every call that the ET has, or the files are of two processes.
    """
    pair = record(replace(recipe, et_only=frozenset()))
    seen = sum(e.get("args", {}).get("Record function id", 0) > 0 for e in orjson.loads(pair.kineto)["traceEvents"])
    assume(2 * len(pair.truth) >= seen)
    result = link(pair.et, pair.kineto)
    check(pair, result)
    links = links_of(result)
    assert {node: (event, True) for node, event in pair.truth.items()}.items() <= links.items()


@given(recipes(ids=False, same_window=True), METHODS)
def test_nothing_certain_is_wrong_in_one_window(recipe: Recipe, method: str) -> None:
    pair = record(recipe)
    check(pair, link(pair.et, pair.kineto, match=method))


def test_a_call_cut_off_by_kinetos_window_is_not_taken_for_the_one_before() -> None:
    """The second `aten::c` ends after Kineto's window, and before its first child stands a call of its name."""
    inner = Op("aten::a", False, (Op("aten::a"), Op("aten::a"))), Op("aten::a", False, (Op("aten::c", False),))
    recipe = Recipe((Worker((Op("aten::c", True, inner),) * 2),), et=((3, 8),), kineto=(0, 6))
    pair = record(recipe)
    result = link(pair.et, pair.kineto)
    check(pair, result)
    assert result.report.ops["certain"] == 2


@given(recipes(ids=False), METHODS)
def test_nothing_certain_is_wrong_on_one_thread(recipe: Recipe, method: str) -> None:
    """One window each, anywhere; calls that raise."""
    pair = record(replace(alone(recipe), et=recipe.et[:1]))
    check(pair, link(pair.et, pair.kineto, match=method))


@examples(300)
@given(recipes(ids=False), METHODS)
def test_nothing_certain_is_wrong(recipe: Recipe, method: str) -> None:
    """All at once: several windows, threads alike and not profiled, calls that raise. Nearly nothing is left to see
    then, so that a handful of calls may look like others in every respect: do not hunt here."""
    pair = record(recipe)
    check(pair, link(pair.et, pair.kineto, match=method))


@given(recipes(ids=False))
def test_the_same_calls_on_one_thread_are_all_linked(recipe: Recipe) -> None:
    """Both sides have all calls, and nothing else: whatever the names and numbers."""
    calm = replace(alone(recipe), raised=NOTHING, et_only=NOTHING, kineto_only=NOTHING)
    pair = record(replace(calm, et=(recipe.kineto,)))
    result = link(pair.et, pair.kineto)
    check(pair, result)
    assert recall(pair, result) == 1.0


@given(recipes(ids=False), st.integers(0, 3))
def test_one_iteration_among_several_is_found_by_its_numbers(recipe: Recipe, k: int) -> None:
    """The ET is of one iteration of Kineto's four; numbers rise, by two an iteration at least."""
    body = (*recipe.workers[0].body, Op("aten::only"), Op("aten::once"))
    pair = record(Recipe((Worker(body),), 4, et=((8 * k, 8 * k + 8),), kineto=(0, 32), steps=recipe.steps))
    result = link(pair.et, pair.kineto)
    check(pair, result)
    assert recall(pair, result) == 1.0 and result.report.ops["certain"] > 0


@given(recipes(ids=False))
def test_iterations_alike_are_never_certain(recipe: Recipe) -> None:
    """Nothing is numbered, or all with one number; the ET is one of four iterations."""
    numbers = "none" if recipe.numbers == "rising" else recipe.numbers
    pair = record(Recipe(alone(recipe).workers, 4, numbers, et=((8, 16),), kineto=(0, 32)))
    result = link(pair.et, pair.kineto)
    check(pair, result)
    assert result.report.ops["certain"] == 0
    assert result.report.ops["equivalent"] == result.report.ops["total"] > 0


@examples(50)
@given(recipes(), st.sampled_from([{}, {"strict": True}, {"renumber": True}, {"exact_match": True}]))
def test_the_file_is_valid(recipe: Recipe, options: dict[str, bool]) -> None:
    pair = record(recipe)
    result = link(pair.et, pair.kineto, **options)  # type: ignore[arg-type]
    assert_valid(result.to_dict())
    if "strict" in options:
        assert result.report.ops["equivalent"] == 0


def test_the_generator_makes_what_it_says() -> None:
    """Missing nodes, partial windows, threads, numbers: seen in the files themselves."""
    body = (Op("aten::a", below=(Op("aten::b", stream=7),)), Op("aten::c", advances=False))
    workers = (Worker(body), Worker(body, renewed=True), Worker(body, backward=True, profiled=False))
    recipe = Recipe(workers, 2, et=((0, 8),), kineto=(0, 16), raised=frozenset({(0, 0, 0)}), steps=True, ids=True)
    pair = record(recipe)
    et, kineto = orjson.loads(pair.et), orjson.loads(pair.kineto)
    attrs = {n["id"]: {a["name"]: a["value"] for a in n["attrs"]} for n in et["nodes"]}
    ops = [n for n in et["nodes"] if not n["name"].startswith("[")]
    ids = {n["id"] for n in et["nodes"]}
    assert [n["name"] for n in ops if attrs[n["id"]]["tid"] == 1] == ["aten::b", "aten::c", "ProfilerStep#0"]
    assert any(n["ctrl_deps"] not in ids for n in ops), "a child of a call that raised has a caller that is not there"
    assert {attrs[n["id"]]["tid"] for n in ops} == {1, 3, 4}
    events = kineto["traceEvents"]
    calls = [e for e in events if e.get("cat") in ("cpu_op", "user_annotation")]
    assert {e["tid"] for e in calls} == {100, 103, 104}, "two threads one after the other, the third is not profiled"
    assert sum(e["args"]["Record function id"] > 0 for e in calls) == 7 and len(calls) == 14
    assert all(
        events[event]["name"] == next(n for n in ops if n["id"] == node)["name"] for node, event in pair.truth.items()
    )
    assert len(pair.truth) == 6 == len(ops) - 3
    numbers = [e["args"].get("Sequence number") for e in calls if e["tid"] == 100 and e["cat"] == "cpu_op"]
    assert numbers == [3, 3, None, 5, 5, None]
    gpu = [e for e in events if e.get("cat") == "kernel"]
    launches = {e["args"]["correlation"]: e for e in events if e.get("cat") == "cuda_runtime"}
    assert len(gpu) == 4 and all(launches[e["args"]["correlation"]]["ts"] < e["ts"] for e in gpu)
