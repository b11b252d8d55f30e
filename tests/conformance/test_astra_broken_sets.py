"""`check --profile astra-sim` finds an error in a set exactly if the real ASTRA-sim does not run it to the end."""

from collections.abc import Callable
from pathlib import Path

import broken_sets as broken
import pytest
from astra_sim import config_runs, run_astra
from broken_sets import GROUPS, Ranks, clean, coll, comp, node, receive, send, spoil_network, write, write_with_network
from etplus.converters.preflight import check
from etplus.schemas.chakra import et_def_pb2 as pb

BOTH = {**GROUPS, 2: [0, 1]}


def _three_in_a_ring(ranks: Ranks) -> None:
    """Each rank waits for a message before it sends its own, through computations."""
    for rank, nodes in enumerate(ranks):
        nodes += [receive(7, 1 - rank, 6, tag=1), comp(8, 7), comp(9, 8), send(10, 1 - rank, 9, tag=1)]


def _message_against_collective(ranks: Ranks) -> None:
    ranks[0] += [send(7, 1, 6, tag=2), coll(8, 7)]
    ranks[1] += [coll(7, 6), receive(8, 0, 7, tag=2)]


def _collective_waits_for_the_receive(ranks: Ranks) -> None:
    ranks[0] += [coll(7, 6), send(8, 1, 7, tag=2)]
    ranks[1] += [receive(7, 0, 6, tag=2), coll(8, 7)]


def _one_size_too_many(ranks: Ranks) -> None:
    for size, nodes in zip((512, 768), ranks, strict=True):
        nodes.append(coll(7, 6, op=pb.REDUCE_SCATTER, size=size))


def _unknown_type(ranks: Ranks) -> None:
    ranks[1].append(node(7, 99))


FURTHER: list[tuple[Callable[[Ranks], None], dict[int, list[int]]]] = [
    (broken.other_tag, GROUPS), (broken.other_message_size, GROUPS), (broken.peer_that_is_not, GROUPS),
    (broken.only_one_rank_of_a_group, BOTH), (broken.crossed_messages, GROUPS), (broken.crossed_groups, GROUPS),
    (broken.duplicate_id_and_cycle, GROUPS), (_three_in_a_ring, GROUPS), (_message_against_collective, GROUPS),
    (_collective_waits_for_the_receive, GROUPS), (_one_size_too_many, GROUPS), (_unknown_type, GROUPS),
]  # fmt: skip
BROKEN = [*((spoil, GROUPS) for spoil, *_ in (*broken.HARD, *broken.OTHER_READERS, *broken.SIMULATOR_ONLY)), *FURTHER]
BROKEN += [(broken.first_of_all, GROUPS), (broken.out_of_turn, GROUPS)]


def test_a_clean_set_passes_check_and_runs(tmp_path: Path) -> None:
    prefix = write(tmp_path, clean(), GROUPS)
    assert check(prefix, profile="astra-sim").ok
    assert run_astra(prefix, 2).complete


@pytest.mark.parametrize("at", range(len(BROKEN)))
def test_check_passes_a_broken_set_exactly_if_it_runs(at: int, tmp_path: Path) -> None:
    spoil, groups = BROKEN[at]
    ranks = clean()
    spoil(ranks)
    prefix = write(tmp_path, ranks, groups)
    report = check(prefix, profile="astra-sim")
    assert report.ok == run_astra(prefix, 2, timeout_s=20).complete, report.problems


@pytest.mark.parametrize("spoil", [
    pytest.param(lambda prefix: Path(f"{prefix}.1.et").write_bytes(b""), id="empty"),
    pytest.param(lambda prefix: Path(f"{prefix}.comm_groups.json").unlink(), id="no groups"),
    pytest.param(lambda prefix: Path(f"{prefix}.1.et").rename(f"{prefix}.2.et"), id="a rank is missing"),
])  # fmt: skip
def test_broken_files_fail_in_check_and_do_not_run(spoil: Callable[[Path], object], tmp_path: Path) -> None:
    prefix = write(tmp_path, clean(), GROUPS)
    spoil(prefix)
    assert not check(prefix, profile="astra-sim").ok
    assert not run_astra(prefix, 2, timeout_s=20).complete


@pytest.mark.parametrize(("suffix", "old", "new", "words"), broken.NETWORK_FLAWS)
def test_broken_network_files_fail_in_astra_sim(suffix: str, old: str, new: str, words: str, tmp_path: Path) -> None:
    prefix = write_with_network(tmp_path)
    assert config_runs(prefix, 2)
    spoil_network(prefix, suffix, old, new)
    assert not config_runs(prefix, 2), words
