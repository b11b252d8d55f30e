"""Programs of ranks, on made calls: gradients that are summed, lists of parameters, where sequences are whole."""

from types import SimpleNamespace
from typing import Any

import pytest
from etplus.planning.reshard.derivation import SequenceRegions, _of_other_input, derive, divide_sequence
from etplus.planning.reshard.items import CommOp, CommWait, RecordedOp, Shard
from etplus.planning.reshard.layout import Coordinates, Layout
from etplus.planning.reshard.model import Unit, Wrap
from etplus.planning.reshard.plan import Division, Partial, Plan
from etplus.trace.errors import UsageError
from made_step_calls import Made, made_model, parameter


@pytest.fixture
def made() -> Made:
    """Batch n, sequence s, hidden h, inner i, which is divided, and heads x."""
    return Made(n=8, s=6, h=4, i=10, x=2, d=5)


def plan(made: Made, *letters: str, layers: tuple[int, ...] = (0,)) -> Plan:
    return Plan(tuple(Division(made.of[one], made.extents.value[made.of[one]], (0,), (), 0) for one in letters), layers)


def test_gradients_of_other_inputs_are_reduced_apart(made: Made) -> None:

    def gap(name: str, letters: str, units: tuple[int, int] = (0, 0), ends: tuple[int, int] = (0, 2)) -> bool:
        back = [made.call("aten::mm"), made.call(name, [], [(1, letters)] if letters else []), made.call("aten::mm")]
        model = made_model(made, [Unit(0, [], back)], batch=made.of["n"])
        first, second = (Partial(back[at], back[at], False, unit, at) for at, unit in zip(ends, units, strict=True))
        return _of_other_input(model, plan(made, "i"), first, second)

    assert gap("aten::mm", "ni") and gap("aten::bmm", "nhi") and gap("aten::add", "ni", (0, 1))
    assert not gap("aten::mm", "nh") and not gap("aten::mm", "hi") and not gap("aten::mm", "")
    assert not gap("aten::add", "ni") and not gap("my::mm", "ni") and not gap("aten::mm", "in")
    assert not gap("aten::mm", "ni", ends=(1, 2)) and not gap("aten::mm", "ni", ends=(0, 1))


def test_a_layout_changes_only_the_extents_that_it_divides(made: Made) -> None:
    attention = made.call("aten::attention", [(1, "nxsd"), (2, "nxsd"), (3, "nxsd")])
    model = made_model(made, [Unit(0, [attention])], batch=made.of["n"], trace=SimpleNamespace(file="t"))

    def changed(layout: Layout, *letters: str, recorded: int = 1) -> dict[str, int]:
        found = derive(model, plan(made, *letters), layout, Layout(tp=recorded)).changed
        return {letter: found[extent] for letter, extent in made.of.items() if extent in found}

    assert changed(Layout()) == {} == changed(Layout(tp=2), "i", recorded=2) == changed(Layout(), "i")
    assert changed(Layout(tp=2), "i", "x") == {"i": 5, "x": 1} and changed(Layout(), "i", recorded=2) == {"i": 20}
    assert changed(Layout(dp=2, batch=8)) == {"n": 4} and changed(Layout(microbatches=4)) == {"n": 2}
    for layout, letters, says in (
        (Layout(tp=2), "", "t: no pair of GEMMs was found"),
        (Layout(tp=3), "i", "an inner width of 10 is not divisible"),
        (Layout(tp=3), "x", "2 attention heads are not divisible by tp=3"),
        (Layout(microbatches=3), "", "a batch of 8 per rank is not divisible by 3 microbatches"),
        (Layout(dp=3, batch=8), "", "a global batch of 8 is not divisible by dp=3"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=says):
            changed(layout, *letters)
    single = Made(n=8, s=6, x=1, d=5)
    attention = single.call("aten::attention", [(number, "nxsd") for number in (1, 2, 3)])
    alone = made_model(single, [Unit(0, [attention])], batch=single.of["n"], trace=SimpleNamespace(file="t"))
    with pytest.raises(UsageError, match="one attention head"):
        derive(alone, plan(single, "d"), Layout(), Layout(tp=2))
    model.batch = -1
    assert changed(Layout()) == {} and derive(model, plan(made), Layout(), Layout()).rank_batch == 0
    for layout in (Layout(batch=8), Layout(microbatches=2)):
        with pytest.raises(UsageError, match="t: cannot determine the batch"):
            changed(layout)


def test_ranks_with_equal_shards_share_a_representative(made: Made) -> None:
    unit = Unit(0, [], [], [parameter(made, 0, "ih"), parameter(made, 1, "d")])

    def of(zero: int, dp: int = 4) -> list[int]:
        derivation = derive(made_model(made, [unit]), plan(made), Layout(dp=dp, zero=zero), Layout())
        return [derivation.representative(rank) for rank in range(dp)]

    assert of(0) == [0, 0, 0, 0] and of(1) == [0, 0, 2, 3] == of(2)  # 10, 10, 10, 10 and 2, 2, 1, 0
    assert of(3) == [0, 0, 2, 3]  # rows: 3, 3, 3, 1 and 2, 2, 1, 0
    derivation = derive(made_model(made, [unit]), plan(made), Layout(dp=4, zero=2), Layout())
    assert derivation.shard(Coordinates(0, 3, 0)) == Shard(4, 3, flat=True)
    for layout, expected in ((Layout(dp=4), None), (Layout(zero=3), None), (Layout(dp=2, zero=3), Shard(2, 1, False))):
        assert derive(made_model(made, [unit]), plan(made), layout, Layout()).shard(Coordinates(0, 1, 0)) == expected


def test_units_of_fsdp_belong_to_the_stages_that_have_their_parameters(made: Made) -> None:
    units = [Unit(k, [], [], [parameter(made, k, letter, k)]) for k, letter in enumerate("hd")]
    model = made_model(made, units, blocks=[Wrap("", [0]), Wrap("block 0", [1], (1, 1))], batch=made.of["n"])
    derivation = derive(model, plan(made, layers=(0, 1)), Layout(pp=2, dp=2, zero=3), Layout())
    found = [[(one.label, one.parameters) for one in derivation.stage_wraps(stage)] for stage in (0, 1)]
    assert found == [[("", [0])], [("block 0", [1])]]


def regions(made: Made, output: str = "nsh", tp: int = 2, batch: str = "n", **more: Any) -> SequenceRegions:
    model = made_model(made, [Unit(0, [], output=made.shape(output), dtype="float32")], batch=made.of[batch])
    rest: dict[str, Any] = {"divided": {made.of["i"]}, "partial": {3}, "changed": {}, **more}
    return divide_sequence(model, Layout(tp=tp, tp_style="megatron", sequence_parallel=True), **rest)


def test_outside_regions_each_rank_has_a_part_of_the_sequence(made: Made) -> None:
    assert regions(made).outside == {made.of["s"]: 3}
    changed = {made.of["s"]: 4, made.of["n"]: 2}
    assert regions(made, changed=changed).outside == {made.of["s"]: 2, made.of["n"]: 2}
    for output, tp, batch, says in (
        ("ns", 2, "n", "no sequence dimension was found"), ("nsh", 2, "s", "no sequence dimension was found"),
        ("nsh", 4, "n", "a sequence of 6 is not divisible by tp=4"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=says):
            regions(made, output, tp, batch)


def test_a_sequence_is_gathered_before_a_region_and_scattered_after(made: Made) -> None:
    of = regions(made, partial={3})
    unit = of.model.units[0]
    reduced = CommOp("all_reduce", "tp", (8, 6, 4), 192, "float32", 4, functional=True)
    calls = [made.call("aten::x", [(1, letters)]) for letters in ["nsh", "ni", "ni", "ni", "nsh"]]
    items = [RecordedOp(call, {}, after={4: (reduced,)} if call.row == 4 else {}) for call in calls]

    def shown(forward: bool, unit: Unit | None) -> list[Any]:
        found = []
        for item in of.apply([*items, CommWait(("k",))], unit, forward=forward):
            if isinstance(item, RecordedOp):
                found.append(
                    (item.call.row, bool(item.changed), [one.kind for some in item.after.values() for one in some])
                )
            else:
                found.append(item)
        return found

    gather, wait = CommOp("all_gather", "tp", (8, 3, 4), 192, "float32", 4), CommWait(("k",))
    whole = [(2, False, []), (3, False, []), (4, False, ["reduce_scatter"]), (5, True, []), wait]
    assert shown(True, unit) == [(1, True, []), gather, *whole]
    assert shown(False, unit) == [(1, True, []), gather, whole[0], gather, *whole[1:]]
    assert shown(True, None) == [(row, True, ["all_reduce"] * (row == 4)) for row in range(1, 6)] + [wait]
    (scattered,) = [item for item in of.apply(items, unit, forward=True) if isinstance(item, RecordedOp) and item.after]
    assert scattered.after == {4: (CommOp("reduce_scatter", "tp", (8, 6, 4), 96, "float32", 4),)}


def test_gradients_of_unsharded_parameters_are_reduced_once_per_type(made: Made) -> None:
    weights = [parameter(made, 0, "h"), parameter(made, 1, "ih"), parameter(made, 2, "s"), parameter(made, 3, "d")]
    weights[3].dtype, weights[3].itemsize = "bfloat16", 2
    assert list(regions(made, changed={made.of["s"]: 4}).sum_of_gradients(weights)) == [
        CommOp("all_reduce", "tp", (5,), 5, "bfloat16", 2), CommOp("all_reduce", "tp", (8,), 8, "float32", 4),
    ]  # fmt: skip
