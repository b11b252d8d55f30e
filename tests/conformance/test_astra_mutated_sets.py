"""Converted sets of whole jobs, broken at random: what `check` passes, the real ASTRA-sim runs to the last node."""

from __future__ import annotations

import random
import shutil
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
from etplus.trace.errors import TraceFormatError
from made_jobs import JOBS
from support import shared_job

JOBS_OF = {"made fsdp": 4, "made pipeline": 2, "made moe": 4, "block.pp2": 2, "block.fsdp-tp4": 4}
"""Sets, and how many ranks they have."""
SEEDS = range(1)
STRICTER = {
    "collective": "the analytical backend does not compare what ranks call the k-th collective of a group",
}
_COMM = (pb.COMM_COLL_NODE, pb.COMM_SEND_NODE, pb.COMM_RECV_NODE)
_MESSAGES = (pb.COMM_SEND_NODE, pb.COMM_RECV_NODE)


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

    def __init__(self, ranks: Ranks, groups: dict[int, list[int]], seed: int) -> None:
        self.ranks, self.groups, self.random = ranks, groups, random.Random(seed)

    def rank(self) -> list[pb.Node]:
        return self.random.choice(self.ranks)

    def pick(self, *kinds: int) -> tuple[list[pb.Node], pb.Node]:
        """A node of these types (of any, if none are given) on some rank, and the rank's nodes."""
        found = [(nodes, node) for nodes in self.ranks for node in nodes if not kinds or node.type in kinds]
        if not found:
            pytest.skip("the set has no such node")
        return self.random.choice(found)

    def free(self, nodes: list[pb.Node]) -> int:
        return max(node.id for node in nodes) + 1


def _dangling(of: _Chance) -> None:
    nodes, node = of.pick()
    node.data_deps.append(of.free(nodes) + 7)


def _dangling_call(of: _Chance) -> None:
    nodes, node = of.pick()
    node.ctrl_deps.append(of.free(nodes) + 7)


def _lost_node(of: _Chance) -> None:
    """Others still depend on it."""
    nodes, node = of.pick(pb.COMP_NODE)
    nodes.remove(node)


def _cycle(of: _Chance) -> None:
    nodes = of.rank()
    after = of.random.choice([node for node in nodes if node.data_deps])
    before = of.random.choice(after.data_deps)
    next(node for node in nodes if node.id == before).data_deps.append(after.id)


def _waits_for_the_end(of: _Chance) -> None:
    """An early node waits for the last one, which follows it over many others."""
    nodes = of.rank()
    nodes[0].data_deps.append(nodes[-1].id)


def _waits_for_itself(of: _Chance) -> None:
    _, node = of.pick()
    node.data_deps.append(node.id)


def _duplicate_id(of: _Chance) -> None:
    nodes = of.rank()
    one, other = of.random.sample(nodes, 2)
    one.id = other.id


def _duplicate_dependency(of: _Chance) -> None:
    nodes = of.rank()
    node = of.random.choice([node for node in nodes if node.data_deps])
    node.data_deps.append(node.data_deps[0])


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


def _one_more(of: _Chance) -> None:
    nodes, node = of.pick(*_COMM)
    more = pb.Node()
    more.CopyFrom(node)
    more.id = of.free(nodes)
    del more.data_deps[:], more.ctrl_deps[:]
    more.data_deps.append(nodes[-1].id)
    nodes.append(more)


def _value_of(node: pb.Node, name: str) -> int:
    return int(next(one.int64_val or one.int32_val for one in node.attr if one.name == name))


def _other_size(of: _Chance) -> None:
    _, node = of.pick(pb.COMM_COLL_NODE)
    edited(node, "comm_size", int64_val=2 * _value_of(node, "comm_size") + 4096)


def _other_message_size(of: _Chance) -> None:
    _, node = of.pick(*_MESSAGES)
    edited(node, "comm_size", int64_val=_value_of(node, "comm_size") + 4)


def _no_bytes(of: _Chance) -> None:
    _, node = of.pick(*_COMM)
    edited(node, "comm_size", int64_val=0)


def _other_type(of: _Chance) -> None:
    _, node = of.pick(pb.COMM_COLL_NODE)
    types = (pb.ALL_REDUCE, pb.ALL_GATHER, pb.REDUCE_SCATTER, pb.ALL_TO_ALL)
    edited(node, "comm_type", int64_val=of.random.choice([k for k in types if k != _value_of(node, "comm_type")]))


def _unknown_type(of: _Chance) -> None:
    _, node = of.pick(pb.COMM_COLL_NODE)
    edited(node, "comm_type", int64_val=of.random.choice([pb.BARRIER, pb.SCATTER, 42]))


def _opposite_order(of: _Chance) -> None:
    """Two communications in turn change places, dependencies and all but what they are."""
    nodes = of.rank()
    comms = [node for node in nodes if node.type in _COMM]
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


def _peer_that_is_not(of: _Chance) -> None:
    _, node = of.pick(*_MESSAGES)
    edited(node, "comm_dst" if node.type == pb.COMM_SEND_NODE else "comm_src", int32_val=len(of.ranks) + 3)


def _other_tag(of: _Chance) -> None:
    _, node = of.pick(*_MESSAGES)
    edited(node, "comm_tag", int32_val=977)


def _unknown_group(of: _Chance) -> None:
    _, node = of.pick(pb.COMM_COLL_NODE)
    edited(node, "pg_name", string_val="977")


def _group_of_others(of: _Chance) -> None:
    nodes, node = of.pick(pb.COMM_COLL_NODE)
    rank = of.ranks.index(nodes)
    of.groups[978] = [one for one in range(len(of.ranks) + 1) if one != rank][:2]
    edited(node, "pg_name", string_val="978")


def _group_of_one(of: _Chance) -> None:
    nodes, node = of.pick(pb.COMM_COLL_NODE)
    of.groups[979] = [of.ranks.index(nodes)]
    edited(node, "pg_name", string_val="979")


def _group_of_all(of: _Chance) -> None:
    _, node = of.pick(pb.COMM_COLL_NODE)
    edited(node, "pg_name", string_val="0")


def _without_an_attribute(of: _Chance) -> None:
    _, node = of.pick(*_COMM)
    own = {pb.COMM_COLL_NODE: "comm_type", pb.COMM_SEND_NODE: "comm_dst", pb.COMM_RECV_NODE: "comm_src"}[node.type]
    needed = [one for one in node.attr if one.name in ("comm_size", own)]
    node.attr.remove(of.random.choice(needed))


def _text_for_a_number(of: _Chance) -> None:
    _, node = of.pick(*_COMM)
    edited(node, "comm_size", string_val="4096")


def _metadata(of: _Chance) -> None:
    _, node = of.pick()
    node.type = pb.METADATA_NODE


def _to_itself(of: _Chance) -> None:
    nodes, node = of.pick(*_MESSAGES)
    edited(node, "comm_dst" if node.type == pb.COMM_SEND_NODE else "comm_src", int32_val=of.ranks.index(nodes))


def _empty(of: _Chance) -> None:
    of.rank().clear()


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
    new = of.free(nodes)
    for other in nodes:
        for deps in (other.data_deps, other.ctrl_deps):
            kept = [new if one == node.id else one for one in deps]
            del deps[:]
            deps.extend(kept)
    node.id = new


MUTATIONS: list[Callable[[_Chance], None]] = [
    _dangling, _dangling_call, _lost_node, _cycle, _waits_for_the_end, _waits_for_itself, _duplicate_id,
    _duplicate_dependency, _unmatched, _lost_message, _one_more, _other_size, _other_message_size, _no_bytes,
    _other_type, _unknown_type, _opposite_order, _peer_that_is_not, _other_tag, _unknown_group, _group_of_others,
    _group_of_one, _group_of_all, _without_an_attribute, _text_for_a_number, _metadata, _to_itself, _empty, _mixed,
    _fewer_dependencies, _first_of_all, _earlier_communication, _renumbered,
]  # fmt: skip
HARMLESS = {
    _duplicate_dependency,
    _lost_message,
    _unmatched,
    _mixed,
    _fewer_dependencies,
    _first_of_all,
    _earlier_communication,
    _renumbered,
    _opposite_order,
    _group_of_all,
}
"""A set may be a sound one after these."""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", JOBS_OF)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__.strip("_"))
def test_what_check_passes_runs(
    mutation: Callable[[_Chance], None], name: str, seed: int, tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    count = JOBS_OF[name]
    ranks, groups = _read(_converted(name, tmp_path_factory.getbasetemp()), count)
    mutation(of := _Chance(ranks, groups, seed))
    prefix = write(tmp_path, of.ranks, of.groups)
    report = check(prefix, profile="astra-sim")
    ran = run_astra(prefix, count, timeout_s=20).complete
    assert not report.ok or ran, "a false negative: check finds nothing, and ASTRA-sim does not run it to the end"
    if not report.ok and ran:
        assert set(report.counts) <= set(STRICTER), report.counts
    assert mutation in HARMLESS or not report.ok


def _cut_off(prefix: Path, rank: int) -> None:
    file = Path(f"{prefix}.{rank}.et")
    file.write_bytes(file.read_bytes()[:-3])


def _half(prefix: Path, rank: int) -> None:
    file = Path(f"{prefix}.{rank}.et")
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _missing(prefix: Path, rank: int) -> None:
    Path(f"{prefix}.{rank}.et").unlink()


def _no_groups(prefix: Path, rank: int) -> None:
    groups = Path(f"{prefix}{GROUPS_SUFFIX}")
    if not groups.exists() or len(groups.read_bytes()) < 4:
        pytest.skip("the set has one group, of all ranks")
    groups.unlink()


def _not_chakra(prefix: Path, rank: int) -> None:
    Path(f"{prefix}.{rank}.et").write_bytes(b'{"traceEvents": []}')


def _passes(prefix: Path) -> bool:
    try:
        return check(prefix, profile="astra-sim").ok
    except TraceFormatError:
        return False


@pytest.mark.parametrize("name", JOBS_OF)
@pytest.mark.parametrize("spoil", [_cut_off, _half, _missing, _no_groups, _not_chakra])
def test_files_that_check_passes_run(
    spoil: Callable[[Path, int], None], name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = _converted(name, tmp_path_factory.getbasetemp())
    for file in whole.parent.glob("set*"):
        if file.is_file():
            shutil.copy(file, tmp_path)
    spoil(tmp_path / "set", 0)
    assert not _passes(tmp_path / "set")
    if spoil is not _cut_off:  # the simulator takes a message that is cut off for what is left of it
        assert not run_astra(tmp_path / "set", JOBS_OF[name], timeout_s=20).complete
