"""Layouts: ranks and groups by brute force, schedules, buckets, what is refused; how a recorded one is recognized."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from etplus.planning.reshard.layout import Coordinates, Layout, actions, fill_buckets, parse_layout
from etplus.planning.reshard.step_calls import recorded_issues
from etplus.planning.reshard.structure import recorded_layout
from etplus.trace.errors import UsageError

CUBE = Layout(tp=2, dp=3, pp=2)


def test_ranks_are_numbered_with_tensor_parallelism_innermost() -> None:
    places = [Coordinates(tp, dp, pp) for pp, dp, tp in product(range(2), range(3), range(2))]
    assert [CUBE.coordinates(rank) for rank in range(CUBE.ranks)] == places
    assert [CUBE.rank(at.tp, at.dp, at.pp) for at in places] == list(range(12))


@pytest.mark.parametrize("dimension", ["tp", "dp", "pp"])
def test_groups_differ_along_one_dimension(dimension: str) -> None:
    for rank in range(CUBE.ranks):
        at = CUBE.coordinates(rank)
        others = [
            other for other in range(CUBE.ranks) if all(
                getattr(at, name) == getattr(CUBE.coordinates(other), name) for name in {"tp", "dp", "pp"} - {dimension}
            )
        ]  # fmt: skip
        assert CUBE.group(dimension, at) == tuple(others)
        assert CUBE.group_name(dimension, at) == f"{dimension}_{others[0]}"


def test_a_step_has_the_given_microbatches_or_enough_for_all_stages() -> None:
    assert Layout().parts(1) == 1 and Layout().parts(2) == 2 and Layout(microbatches=3).parts(2) == 3
    assert Layout(pp=2).parts(1) == 4 and Layout(pp=8).parts(1) == 8 and Layout(pp=2).parts(6) == 6
    assert Layout(pp=2, microbatches=1).parts(4) == 1


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"tp": 0}, "tp=0: give 1 or more ranks"), ({"dp": -1}, "dp=-1: give 1 or more ranks"),
    ({"pp": 0}, "pp=0: give 1 or more ranks"), ({"dp": 2**40}, "ranks: at most"),
    ({"zero": 4}, "zero=4: give 0, 1, 2 or 3"), ({"batch": 0}, "batch=0: give 1 or more"),
    ({"microbatches": 0}, "microbatches=0: give 1 or more"), ({"bucket_mib": 0}, "bucket_mib=0: give 1 or more"),
    ({"dp": 3, "ep": 2}, "ep=2: experts are sharded over data-parallel ranks: make dp a multiple of ep"),
    ({"dp": 2, "ep": 2, "tp": 2}, "expert parallelism needs tp=1 and zero=0"), ({"ep": 0}, "ep=0: give 1 or more"),
    ({"dp": 2, "ep": 2, "zero": 3}, "expert parallelism needs tp"), ({"routing": "other"}, "give recorded or uniform"),
    ({"schedule": "other"}, "give 1f1b or gpipe as the schedule"), ({"tp_style": "other"}, "give 1f1b or gpipe"),
    ({"fsdp_wrap": "each"}, "fsdp_wrap needs FSDP: add zero=3"), ({"sequence_parallel": True}, "--tp-style megatron"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "says"), REFUSED)
def test_invalid_layouts_are_refused_with_the_reason(given: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        replace(Layout(), **given)


def test_the_smallest_layout_is_valid_and_ranks_outside_are_refused() -> None:
    least = Layout(1, 1, 1, 3, batch=1, microbatches=1, schedule="gpipe", bucket_mib=1)
    assert least.ranks == 1 and Layout(tp_style="megatron", sequence_parallel=True).sequence_parallel
    least.check(0)
    CUBE.check(11)
    for rank in (-1, 12):
        with pytest.raises(UsageError, match=f"rank {rank}: the layout has ranks 0 to 11"):
            CUBE.check(rank)


def test_layout_texts_are_parsed_and_unexpected_ones_refused() -> None:
    assert parse_layout("tp=2, dp=3,pp=2") == CUBE and parse_layout("pp=7") == Layout(pp=7)
    for text in ("", "tp=2,tp=3", "dp=x", "ep=2", "tp=2;dp=3"):
        with pytest.raises(UsageError, match="unexpected"):
            parse_layout(text)


def texts(schedule: Any, stage: int, stages: int, microbatches: int) -> str:
    """Steps, short: the capitals of sends and receives, + for one that is joined with the next."""
    short = {
        "forward": "f", "backward": "b", "send forward": "SF", "receive forward": "RF", "send backward": "SB",
        "receive backward": "RB",
    }  # fmt: skip
    found = actions(schedule, stage, stages, microbatches)
    return " ".join(f"{short[one.what]}{one.microbatch}{'+' * one.joined}" for one in found)


def test_gpipe_and_1f1b_schedules_order_passes_and_messages_per_stage() -> None:
    assert texts("gpipe", 0, 1, 2) == "f0 f1 b0 b1"
    assert texts("gpipe", 1, 3, 2) == "RF0 f0 SF0 RF1 f1 SF1 RB0 b0 SB0 RB1 b1 SB1"
    assert texts("1f1b", 0, 1, 2) == "f0 b0 f1 b1"
    assert texts("1f1b", 0, 2, 3) == "f0 SF0 f1 SF1+ RB0 b0 f2 SF2+ RB1 b1 RB2 b2"
    assert texts("1f1b", 1, 2, 3) == "RF0 f0 b0 SB0+ RF1 f1 b1 SB1+ RF2 f2 b2 SB2"
    assert texts("1f1b", 1, 3, 1) == "RF0 f0 SF0+ RB0 b0 SB0"


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 1), (2, 4), (3, 2), (4, 5)])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_every_pipeline_schedule_ends_without_a_deadlock(schedule: Any, stages: int, microbatches: int) -> None:
    left = [list(actions(schedule, stage, stages, microbatches)) for stage in range(stages)]
    sent: set[tuple[int, str, int]] = set()
    moved = True
    while moved:
        moved = False
        for stage, steps in enumerate(left):
            while steps:
                what, _, way = steps[0].what.rpartition(" ")
                source = stage - 1 if way == "forward" else stage + 1
                if what == "send":
                    sent.add((stage, way, steps[0].microbatch))
                elif what == "receive" and (source, way, steps[0].microbatch) not in sent:
                    break
                steps.pop(0)
                moved = True
    assert not any(left) and len(sent) == 2 * (stages - 1) * microbatches


MIB = 1 << 20


def test_buckets_are_closed_as_soon_as_they_are_full() -> None:
    gradients = [
        (0, MIB // 2 - 1, 4, "a"), (1, MIB, 2, "b"), (2, 1, 4, "a"), (3, MIB // 2 - 1, 4, "a"), (4, 1, 4, "a"),
        (5, 1, 4, "a"), (6, 1, 2, "b"),
    ]  # fmt: skip
    found = fill_buckets(gradients, cap_mib=2)
    assert [(one.parameters, one.elements, one.dtype, one.itemsize) for one in found] == [
        ((1,), MIB, "b", 2), ((0, 2), MIB // 2, "a", 4), ((3, 4), MIB // 2, "a", 4), ((5,), 1, "a", 4),
        ((6,), 1, "b", 2),
    ]  # fmt: skip
    assert [one.parameters for one in fill_buckets(gradients)] == [(0,), (1,), (2, 3, 4, 5), (6,)]
    assert fill_buckets([]) == []


GATHER, FSDP, ALL_TO_ALL = "c10d::_allgather_base_", "FSDP::all_gather", "c10d::alltoall_base_"
DTENSOR, DDP, SEND = "Redistribute", "DistributedDataParallel.forward", "c10d::send"


def recording(names: list[str], world: int | None, *groups: Sequence[int], rank: int | None = None) -> Any:
    """A trace as far as its layout is recognized; FSDP gathers 8 elements, the first of them as shards of 4."""
    gathers = [names.index(name) for name in (*names[:1], GATHER) if GATHER in names]
    return SimpleNamespace(
        names=names, world_size=world, rank=rank, file="x", process_groups=dict(enumerate(groups)),
        calls=SimpleNamespace(name=np.array(gathers, np.int64), parent=np.arange(len(gathers)) - 1),
        signature_of=lambda _: SimpleNamespace(tensors=[SimpleNamespace(numel=8), SimpleNamespace(numel=4)] * 2),
    )  # fmt: skip


RECORDED: list[tuple[Any, Layout | str]] = [
    (recording([], None), Layout()), (recording([DDP, "FSDP::x"], 1), Layout()), (recording([], 4), Layout(dp=4)),
    (recording([DDP], 4, range(4)), Layout(dp=4)), (recording([DTENSOR], 4, range(4), range(2)), Layout(tp=4)),
    (recording([DTENSOR, DDP], 4, range(4), [0]), Layout(tp=4)),
    (recording([DTENSOR, DDP], 8, range(2), range(4)), Layout(tp=2, dp=4)),
    (recording([DTENSOR, DDP], 2, [0], [1]), Layout(tp=2)),
    (recording([DTENSOR, DDP], 8, range(8), [0], range(2), range(4)), Layout(tp=2, dp=4)),
    (recording([FSDP], 4, range(4)), Layout(dp=4, zero=3)), (recording([FSDP, GATHER], 2), Layout(dp=2, zero=3)),
    (recording([FSDP, GATHER, DTENSOR], 8), Layout(tp=4, dp=2, zero=3)), (recording([SEND], 4), Layout(pp=4)),
    (recording(["FSDP::x", GATHER, DTENSOR], 8), Layout(dp=8, zero=3)),
    (recording([SEND], 4, [1, 3], [0, 2], rank=3), Layout(dp=2, pp=2)),
    (recording([SEND], 4, [0, 2]), Layout(dp=2, pp=2)),
    (recording([SEND], 4, [1], range(4), [0, 2], rank=1), Layout(pp=4)),
    (recording([SEND, DTENSOR], 8, [0, 4], [0, 1]), Layout(tp=2, dp=2, pp=2)),
    (recording([SEND], 8, [0, 4], [0, 1]), Layout(dp=4, pp=2)),
    (recording([SEND, DTENSOR], 8, [0, 4]), Layout(dp=4, pp=2)),
    (recording([SEND, DTENSOR], 12, [0, 5, 6], [0, 1]), Layout(tp=2, dp=2, pp=3)),
    (recording([SEND, DTENSOR], 6, [0, 1], [0, 5, 3]), Layout(tp=2, pp=3)),
    (recording([ALL_TO_ALL], 2), Layout(dp=2)),
    (recording([SEND, DTENSOR], 9, [0, 1], [0, 3, 6]), "groups of 3 and 2 ranks of 9"),
    (recording([ALL_TO_ALL, "aten::topk"], 1), "experts sharded over ranks"),
    (recording(["FullyShardedDataParallel.forward"], 8), "FSDP1"),
    (recording([SEND, "FSDP::x"], 8), "FSDP within a pipeline"),
    (recording([FSDP, GATHER], 8), "FSDP over 2 of 8 ranks"),
    (recording([FSDP, GATHER, DTENSOR], 3), "FSDP over 2 of 3 ranks"),
    (recording([SEND, DTENSOR], 12, [5, 11], [9, 10, 11], rank=11), Layout(tp=3, dp=2, pp=2)),
]  # fmt: skip


@pytest.mark.parametrize(("trace", "expected"), RECORDED)
def test_a_recorded_layout_is_recognized(trace: Any, expected: Layout | str) -> None:
    if isinstance(expected, Layout):
        assert recorded_layout([trace]) == expected
    else:
        with pytest.raises(UsageError, match=f"x: recorded with {expected}"):
            recorded_layout([trace])


def test_barriers_do_not_count_as_calls_that_issue_communication() -> None:
    names = ["c10d::send", "c10d::barrier", "c10d::monitored_barrier", "c10d::send.x", "c10d::recv_"]
    calls = SimpleNamespace(
        name=np.array([4, 0, 1, 2, 3, 0, 0, 4]),
        ts=np.array([5, 4, 4, 4, 4, 4, 1, 2]),
        end=np.array([9, 8, 8, 8, 8, 8, 7, 10]),
    )
    trace: Any = SimpleNamespace(names=names, calls=calls)
    assert [*recorded_issues(trace, 2, 9)] == [0, 1, 5] and [*recorded_issues(trace, 1, 10)] == [0, 1, 5, 6, 7]
