"""Converted sets of whole jobs, broken at random: what `check` passes, the real ASTRA-sim runs to the last node."""

import random
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from astra_sim import run_astra
from broken_sets import Ranks, edited, write
from etplus.converters.conversion import convert
from etplus.converters.preflight import check
from etplus.linker import link
from etplus.schemas.chakra import et_def_pb2 as pb
from etplus.schemas.chakra.comm_groups import GROUPS_SUFFIX, read_groups
from etplus.schemas.chakra.stream import read_chakra
from made_jobs import JOBS
from support import shared_job

JOBS_OF = {"made fsdp": 4, "made pipeline": 2, "block.fsdp-tp4": 4}
"""Sets, and how many ranks they have."""
STRICTER = {"collective"}
"""The analytical backend does not compare what ranks call the k-th collective of a group."""
_MESSAGES = (pb.COMM_SEND_NODE, pb.COMM_RECV_NODE)
_COMM = (pb.COMM_COLL_NODE, *_MESSAGES)


@cache
def _converted(name: str, folder: Path) -> Path:
    prefix = folder / name.replace(" ", "-") / "set"
    if name.startswith("made "):
        pairs = JOBS[name.removeprefix("made ")].write(prefix.parent / "traces")
    else:
        pairs = shared_job(f"parallel/{name}")
    prefix.parent.mkdir(exist_ok=True)
    convert([link(*pair) for pair in pairs], prefix, to="astra-sim")
    return prefix


def _read(prefix: Path, ranks: int) -> tuple[Ranks, dict[int, list[int]]]:
    nodes = [list(read_chakra(f"{prefix}.{rank}.et")[1]) for rank in range(ranks)]
    groups = Path(f"{prefix}{GROUPS_SUFFIX}")
    return nodes, {int(number): [*of] for number, of in (read_groups(groups) if groups.exists() else {}).items()}


class _Chance:
    """A set to be broken, and what is chosen in it."""

    def __init__(self, ranks: Ranks, groups: dict[int, list[int]]) -> None:
        self.ranks, self.groups, self.random = ranks, groups, random.Random(0)

    def rank(self) -> list[pb.Node]:
        return self.random.choice(self.ranks)

    def pick(self, *kinds: int) -> tuple[list[pb.Node], pb.Node]:
        """A node of these types (of any, if none are given) on some rank, and the rank's nodes."""
        found = [(nodes, node) for nodes in self.ranks for node in nodes if not kinds or node.type in kinds]
        if not found:
            pytest.skip("the set has no such node")
        return self.random.choice(found)


def _drop(nodes: list[pb.Node], gone: pb.Node) -> None:
    """Take a node out; what waited for it waits for what it waited for."""
    nodes.remove(gone)
    for node in nodes:
        for deps in (node.data_deps, node.ctrl_deps):
            if gone.id in deps:
                kept = dict.fromkeys([*(one for one in deps if one != gone.id), *gone.data_deps])
                del deps[:]
                deps.extend(kept)


def _unmatched(of: _Chance) -> None:
    _drop(*of.pick(pb.COMM_COLL_NODE))


def _lost_message(of: _Chance) -> None:
    _drop(*of.pick(*_MESSAGES))


def _opposite_order(of: _Chance) -> None:
    """Two communications in turn change places, dependencies and all but what they are."""
    comms = [node for node in of.rank() if node.type in _COMM]
    pairs = [(one, other) for one, other in pairwise(comms)
             if one.type != other.type or [*one.attr] != [*other.attr]]  # fmt: skip
    if not pairs:
        pytest.skip("all communications are alike")
    one, other = of.random.choice(pairs)
    for name in ("type", "name"):
        (a, b) = getattr(one, name), getattr(other, name)
        setattr(one, name, b)
        setattr(other, name, a)
    first, second = [*one.attr], [*other.attr]
    del one.attr[:], other.attr[:]
    one.attr.extend(second)
    other.attr.extend(first)


def _group_of_all(of: _Chance) -> None:
    _, node = of.pick(pb.COMM_COLL_NODE)
    edited(node, "pg_name", string_val="0")


def _mixed(of: _Chance) -> None:
    """The nodes of a rank in any order: what they wait for may come after them."""
    of.random.shuffle(of.rank())


def _fewer_dependencies(of: _Chance) -> None:
    """Some computations wait for nothing any more; each rank stays a set that can be run."""
    nodes = of.rank()
    for node in of.random.sample(nodes, len(nodes) // 10):
        if node.type == pb.COMP_NODE:
            del node.data_deps[:]


def _first_of_all(of: _Chance) -> None:
    """A communication that waits for nothing is issued before all others."""
    _, node = of.pick(*_COMM)
    del node.data_deps[:]


def _earlier_communication(of: _Chance) -> None:
    """A communication that does not wait for those before it."""
    nodes, node = of.pick(*_COMM)
    del node.data_deps[:]
    node.data_deps.append(next(one.id for one in nodes if one.type == pb.COMP_NODE))


def _renumbered(of: _Chance) -> None:
    """A communication with the highest id, which comes after all others that are ready with it."""
    nodes, node = of.pick(*_COMM)
    new = max(one.id for one in nodes) + 1
    for other in nodes:
        for deps in (other.data_deps, other.ctrl_deps):
            kept = [new if one == node.id else one for one in deps]
            del deps[:]
            deps.extend(kept)
    node.id = new


MUTATIONS: list[Callable[[_Chance], None]] = [
    _unmatched, _lost_message, _opposite_order, _group_of_all, _mixed, _fewer_dependencies, _first_of_all,
    _earlier_communication, _renumbered,
]  # fmt: skip
"""A set may be a sound one after these. What is an error everywhere is tried on small sets, see `broken_sets`."""


@pytest.mark.parametrize("name", JOBS_OF)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__.strip("_"))
def test_mutated_sets_that_check_passes_run_to_the_end(
    mutation: Callable[[_Chance], None], name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    count = JOBS_OF[name]
    ranks, groups = _read(_converted(name, tmp_path_factory.getbasetemp()), count)
    mutation(of := _Chance(ranks, groups))
    prefix = write(tmp_path, of.ranks, of.groups)
    report = check(prefix, profile="astra-sim")
    ran = run_astra(prefix, count, timeout_s=20).complete
    assert not report.ok or ran, "a false negative: check finds nothing, and ASTRA-sim does not run it to the end"
    if not report.ok and ran:
        assert set(report.counts) <= STRICTER, report.counts
