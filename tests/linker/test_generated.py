"""Generated pairs with known links through the whole linker: what is certain is true, and what is there is found."""

from dataclasses import replace

import orjson
import pytest
from etplus.linker import link
from etplus.trace.trace import Trace
from generate import Pair, Recipe, links_of, recipes, record
from hypothesis import assume, given
from hypothesis import strategies as st
from support import assert_valid, examples

NOTHING: frozenset[tuple[int, int, int]] = frozenset()
METHODS = st.sampled_from(["auto", "auto", "sequence", "shift", "tree"])


def check(pair: Pair, result: Trace) -> None:
    links = links_of(result)
    wrong = {n: event for n, (event, certain) in links.items() if certain and pair.truth.get(n) != event}
    assert not wrong, f"certain and wrong: {wrong}\n{result.report.to_text()}\n{result.report.facts}"
    events = [event for event, _ in links.values()]
    assert len(set(events)) == len(events)
    ops = result.report.ops
    assert ops["certain"] + ops["unverified"] == ops["linked"] == len(links)
    assert ops["linked"] + sum(ops["unlinked"].values()) == ops["total"]


def alone(recipe: Recipe) -> Recipe:
    return replace(recipe, workers=(replace(recipe.workers[0], profiled=True),))


@examples(30)
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


@pytest.mark.parametrize("narrowed", ["all at once", "one window", "one thread"])
@examples(30)
@given(recipes(ids=False), recipes(ids=False, same_window=True), METHODS)
def test_nothing_certain_is_wrong(narrowed: str, recipe: Recipe, one_window: Recipe, method: str) -> None:
    """Several windows, threads alike and not profiled, calls that raise. Nearly nothing is left to see then, so that a
    handful of calls may look like others in every respect: do not hunt here."""
    if narrowed == "one thread":
        recipe = replace(alone(recipe), et=recipe.et[:1])
    pair = record(one_window if narrowed == "one window" else recipe)
    result = link(pair.et, pair.kineto, match=method)
    check(pair, result)
    assert_valid(result.to_dict())


@examples(30)
@given(recipes(ids=False))
def test_the_same_calls_on_one_thread_are_all_linked(recipe: Recipe) -> None:
    calm = replace(alone(recipe), raised=NOTHING, et_only=NOTHING, kineto_only=NOTHING)
    pair = record(replace(calm, et=(recipe.kineto,)))
    result = link(pair.et, pair.kineto)
    check(pair, result)
    links = links_of(result)
    assert {node: links[node][0] for node in pair.truth} == pair.truth
