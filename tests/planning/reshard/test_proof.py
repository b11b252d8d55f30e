"""How derived layouts are compared with recordings: differences, sums of gradients, scaling, by hand."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from etplus.planning.reshard import proof
from etplus.planning.reshard.items import CommOp
from etplus.planning.reshard.layout import Layout
from etplus.planning.reshard.proof import (
    Gradients,
    SelfProof,
    _compared,
    _time_of,
    gradients,
    prove_all,
    recorded_layout_of,
    scaling_in_words,
)
from made_step_calls import Made, parameter

ANY: Any = None


def test_differences_in_communication_are_named() -> None:
    same, many = [("all_reduce", 8)], [("broadcast", 1000 * k) for k in range(1, 6)]
    assert _compared(same, list(same)) == ()
    assert _compared([*same, *many], same) == (
        "recorded broadcast of 1,000, broadcast of 2,000, broadcast of 3,000 and 2 more, derived none",
    )
    assert _compared(same, [("all_gather", 8)]) == ("recorded all_reduce of 8, derived all_gather of 8",)


def test_proofs_of_several_ranks_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    lost, more = Counter({("a", ()): 1}), Counter({("b", ()): 2})
    first = SelfProof(5, 2, lost, share=0.1, other_communications=("x",), gathers=True, different={0: (1, 1)})
    found = [first, SelfProof(7, 3, extra=more, share=0.3, in_order=False, ranks=(1,))]
    monkeypatch.setattr(proof, "prove", lambda derivation, sizes, rank: found[rank.rank])
    ranks: Any = [SimpleNamespace(rank=0), SimpleNamespace(rank=1)]
    both = prove_all(ANY, ANY, ranks)
    assert both == SelfProof(12, 5, lost, more, 0.3, False, ("rank 0: x",), True, (0, 1), {0: (1, 1)})
    assert not both.equal and prove_all(ANY, ANY, ranks[:1]) is first and SelfProof(1, 1).equal
    several = SelfProof(1, 1, Counter({("b", ()): 2, ("a", ((4,),)): 2, ("c", ()): 3})).to_dict()["missing"]
    assert several[0] == {"operator": "c", "sizes": [], "count": 3}
    assert [(row["operator"], row["sizes"]) for row in several[1:]] == [("a", [[4]]), ("b", [])]


def test_missing_operators_take_the_time_of_as_many_calls() -> None:
    calls: Any = ["c0", "c1", "c2"]
    one, other = ("aten::mm", ((1,),)), ("aten::mm", ((2,),))
    assert _time_of(Counter({one: 1}), calls, [other, one, one], {"c0": 100, "c1": 10, "c2": 1}) == 10  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("dp", "rank", "parts", "said"),
    [
        (1, 8, 1, "the recorded batch: 8 samples per rank, 8 in all (recorded: 8 in all)"),
        (2, 4, 2, "strong scaling: 4 samples per rank in 2 microbatches of 2, 8 in all (recorded: 8 in all)"),
        (2, 8, 1, "weak scaling: 8 samples per rank, 16 in all (recorded: 8 in all)"),
        (2, 5, 1, "another batch: 5 samples per rank, 10 in all (recorded: 8 in all)"),
        (2, 0, 1, "no batch was found: every rank does the recorded work"),
    ],
)
def test_the_batch_of_a_rank_tells_strong_from_weak_scaling(dp: int, rank: int, parts: int, said: str) -> None:
    model = SimpleNamespace(samples=8)
    derivation: Any = SimpleNamespace(
        layout=Layout(dp=dp), recorded=Layout(), model=model, rank_batch=rank, microbatches=parts
    )
    assert scaling_in_words(derivation) == said


@pytest.mark.parametrize(("zero", "kind"), [(0, "all_reduce"), (3, "reduce_scatter")])
def test_two_passes_that_reduce_once_were_recorded_with_no_sync(
    monkeypatch: pytest.MonkeyPatch, zero: Any, kind: str
) -> None:
    model = SimpleNamespace(wraps=[1] * zero, passes=[0, 0], elements=lambda: 100)
    derivation: Any = SimpleNamespace(recorded=Layout(tp=2, dp=2), model=model)
    for elements, no_sync in ((100, True), (149, True), (150, False), (200, False)):
        monkeypatch.setattr(proof, "_recorded_comms", lambda _, of=elements: [(kind, of), ("broadcast", 999)])
        assert recorded_layout_of(derivation, ANY) == Layout(tp=2, dp=2, zero=zero, no_sync=no_sync)
    derivation.recorded = Layout(pp=2)
    assert recorded_layout_of(derivation, ANY) is derivation.recorded


def test_gradients_are_whole_with_the_padding_of_their_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    comms = [
        CommOp("reduce_scatter", dimension, (8,), 4, "float32", 4) for dimension in ("dp", "tp", "edp", "dp", "edp")
    ]
    comms.append(CommOp("reduce_scatter", "dp", (99,), 99, "float32", 4, functional=True))
    monkeypatch.setattr(proof, "program", lambda derivation, rank: comms)
    made = Made(i=3, j=12, k=50)
    weights = [parameter(made, number, letter) for number, letter in enumerate("ijk")]
    weights[2].accumulates = False
    derivation: Any = SimpleNamespace(
        layout=Layout(dp=2, zero=2), experts=SimpleNamespace(parameters=set()), microbatches=2,
        parameters=lambda stage: weights, sizes=lambda one: made.extents.sizes(one.shape),
        buckets=lambda stage: [SimpleNamespace(elements=7), SimpleNamespace(elements=8)],
    )  # fmt: skip
    found = gradients(derivation, 0)
    assert found == Gradients(0, 16, 15, 1) and found is not None and found.whole
    derivation.layout = Layout(dp=2, zero=2, no_sync=True)
    assert gradients(derivation, 0) == Gradients(0, 32, 15, 1)
    derivation.layout = Layout()
    assert gradients(derivation, 0) is None
