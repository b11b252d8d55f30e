"""Copy sets of Chakra traces from other programs message by message. Change only nodes that a simulator cannot run.

The copy does not use `Trace`, which would lose nodes without a start time, `num_ops` of nodes without tensors, and
unknown attributes. Example: node 3 waits for METADATA node 2, and node 2 waits for node 1. In the copy, node 3 waits
for node 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..linker.naming import number_before_suffix
from ..schemas.chakra.attributes import attribute, values_of
from ..schemas.chakra.chakra_reader import written_by_etplus
from ..schemas.chakra.comm_groups import (
    Groups,
    find_groups,
    group_members,
    group_name,
    prefix_of,
    read_groups,
    write_groups,
)
from ..schemas.chakra.encode import Block, delimited
from ..schemas.chakra.et_def_pb2 import CollectiveCommType, Node, NodeType
from ..schemas.chakra.json_form import begins_like_workload
from ..schemas.chakra.stream import Messages, node_heads, read_messages, write_blocks
from ..schemas.comm_types import RECV, SEND, WORLD
from ..schemas.text.sniff import head_of
from ..schemas.text.transaction import check_outputs
from ..timeline.network_file import network_dict, parse_network
from ..trace.errors import UsageError
from .astra_config import DEFAULT, write_astra_config
from .astra_links import astra_links
from .astra_sim import for_simulator, simulated_ranks
from .chakra import CHAKRA_VERSION, Written
from .collectives import ALL_RANKS, Agreement, Communication, RankComms, group_numbers
from .exporter import Conversion
from .traces import Traces

if TYPE_CHECKING:
    from .builtin import AstraSimOptions

_COMM_TYPES = (NodeType.COMM_COLL_NODE, NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE)
_MEMORY_TYPES = (NodeType.MEM_LOAD_NODE, NodeType.MEM_STORE_NODE)
_COMM_ATTRIBUTES = frozenset(
    ("comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "comm_priority", "pg_name", "involved_dim")
)
_COPIED = "the set comes from another program; its durations, dependencies and attributes are copied"
_REMOVED = "metadata nodes left out; their dependents now wait for their dependencies"
_MEMORY = "memory nodes run as computations of equal duration, because ASTRA-sim needs a remote memory for memory nodes"
_DANGLING = "dependencies on missing nodes, left out"
_REPEATED = "repeated dependencies of a node, kept once"
_VERSION = "files without a schema version, written with a version"


@dataclass(frozen=True)
class GivenRank:
    """The result of the first pass over a rank's file.

    Attributes:
        removed: maps the ids of METADATA and INVALID nodes to the ids of the nodes that they wait for.
        comms: communications in file order. `row` is the node's id, and `named` does not list ranks yet.
        ids: sorted ids of all nodes (uint64). None if no dependency is missing, removed, or listed twice.
    """

    path: str
    rank: int
    removed: Mapping[int, tuple[int, ...]]
    comms: tuple[Communication, ...]
    ids: npt.NDArray[np.uint64] | None


def files_to_copy(traces: Traces) -> dict[int, str] | None:
    """Map ranks to files if all files are complete Chakra files from other programs. Otherwise, return None."""
    paths = traces.whole_files
    if not paths or not all(path.endswith((".et", ".et.gz")) or begins_like_workload(head_of(path)) for path in paths):
        return None
    if any(written_by_etplus(read_messages(path)[0]) for path in paths):
        return None
    numbers = [number_before_suffix(path) for path in paths]
    ranks = [position if number is None else number for position, number in enumerate(numbers)]
    files = dict(sorted(zip(ranks, paths, strict=True)))
    if len(files) < len(paths):
        return None
    return {rank: path for rank, path in files.items() if traces.wanted in (None, rank)} or None


def survey_file(path: str, rank: int) -> GivenRank:
    _, blocks = read_messages(path)
    removed: dict[int, tuple[int, ...]] = {}
    comms: list[Communication] = []
    ids, needed, repeats = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)], False
    for messages in blocks:
        heads = node_heads(messages)
        if heads is None:  # At least one node repeats a dependency or has an unusual field order.
            repeats = True
            nodes = [node for node, _ in messages.nodes()]
            ids.append(np.array([node.id for node in nodes], np.uint64))
        else:
            nodes = [messages.node(at)[0] for at in np.flatnonzero(heads.kinds != NodeType.COMP_NODE).tolist()]
            ids.append(heads.ids)
            needed.append(heads.depends_on)
        for node in nodes:
            if node.type in _COMM_TYPES:
                if (comm := _communication(node)) is not None:
                    comms.append(comm)
            elif node.type not in (NodeType.COMP_NODE, *_MEMORY_TYPES):
                removed[node.id] = (*node.ctrl_deps, *node.data_deps)
    every = np.sort(np.concatenate(ids))
    odd = repeats or bool(removed) or not np.all(np.isin(np.concatenate(needed), every))
    in_turn = tuple(sorted(comms, key=lambda comm: comm.row))
    return GivenRank(path, rank, removed, in_turn, every if odd else None)


def _communication(node: Node) -> Communication | None:
    """Return a node's communication, or None if attributes are missing or it is a broadcast (ASTRA-sim replays it)."""
    values = values_of(node.attr)
    size, kind = values.get("comm_size"), values.get("comm_type", 0)
    peer: Any = -1
    if node.type != NodeType.COMM_COLL_NODE:
        kind, other = (SEND, "comm_dst") if node.type == NodeType.COMM_SEND_NODE else (RECV, "comm_src")
        peer = values.get(other)
    elif kind == CollectiveCommType.BROADCAST or kind not in CollectiveCommType.values():
        return None
    if not isinstance(size, int) or not isinstance(peer, int):
        return None
    name = group_name(values.get("pg_name")) if kind >= 0 else ""
    return Communication(node.id, kind, size, peer=peer, named=(name, ()) if name else WORLD)


def with_groups(ranks: Sequence[GivenRank], groups: Groups | None) -> list[RankComms]:
    members = group_members({given.rank: [comm.named[0] for comm in given.comms] for given in ranks}, groups)

    def grouped(comm: Communication) -> Communication:
        return comm if comm.named == WORLD else replace(comm, named=(comm.named[0], members[comm.named[0]]))

    return [RankComms(given.rank, len(ranks), tuple(map(grouped, given.comms))) for given in ranks]


def numbered(ranks: Sequence[RankComms]) -> Agreement:
    numbers = group_numbers({comm.named for comms in ranks for comm in comms.found} - {WORLD})
    by_rank = {}
    for comms in ranks:
        found = tuple(replace(comm, group=numbers.get(comm.named, ALL_RANKS)) for comm in comms.found)
        by_rank[comms.rank] = replace(comms, found=found)
    groups = {number: list(named[1]) for named, number in numbers.items()}
    return Agreement(by_rank, groups, {number: named[0] for named, number in numbers.items()}, ())


class _Changes:
    def __init__(self, given: GivenRank, comms: RankComms | None) -> None:
        self.given, self.rank = given, given.rank if comms is None else comms.rank
        self.before = {comm.row: comm for comm in given.comms}
        self.after = None if comms is None else {comm.row: comm for comm in comms.found}
        self.counts: Counter[str] = Counter()

    def block(self, messages: Messages) -> Block:
        edges = [messages.begin, *messages.ends]
        edited = dict(self._edited(messages)) if self.after is not None else {}
        texts = [edited.get(at, messages.data[edges[at] : edges[at + 1]]) for at in range(len(messages.ends))]
        return Block(len(texts) - texts.count(b""), b"".join(texts))

    def _edited(self, messages: Messages) -> Iterator[tuple[int, bytes]]:
        """Yield (position, new message) for each changed node. The message is b"" if the node is removed."""
        heads = None if self.given.ids is not None else node_heads(messages)
        others = range(len(messages.ends)) if heads is None else np.flatnonzero(heads.kinds != NodeType.COMP_NODE)
        for place in map(int, others):
            node, body = messages.node(place)
            if node.id in self.given.removed:
                self.counts[_REMOVED] += 1
                yield place, b""
                continue
            self._change(node)
            text = node.SerializeToString()
            if text != body:
                yield place, delimited(text)

    def _change(self, node: Node) -> None:
        if self.given.ids is not None:
            for listed in (node.data_deps, node.ctrl_deps):
                self._keep_dependencies(listed)
        if node.type in _MEMORY_TYPES:
            self.counts[_MEMORY] += 1
            node.type = NodeType.COMP_NODE
        elif node.id in self.before and node.type in _COMM_TYPES:
            self._change_communication(node, self.before[node.id])

    def _keep_dependencies(self, listed: Any) -> None:
        """Replace each removed node with the nodes that it waits for. Drop missing and repeated dependencies."""
        expanded = [number for dependency in listed for number in self._behind(dependency)]
        assert self.given.ids is not None
        is_known = np.isin(np.array(expanded, np.uint64), self.given.ids)
        known = [number for number, is_there in zip(expanded, is_known.tolist(), strict=True) if is_there]
        kept = list(dict.fromkeys(known))
        self.counts[_DANGLING] += len(expanded) - len(known)
        self.counts[_REPEATED] += len(listed) - len(set(listed))
        if kept != list(listed):
            del listed[:]
            listed.extend(kept)

    def _behind(self, number: int) -> list[int]:
        """Return the node's own id or, if the node is removed, the ids of the nodes that it waits for."""
        result, waiting, seen = list[int](), [number], set[int]()
        while waiting:
            current = waiting.pop()
            if current not in self.given.removed:
                result.append(current)
            elif current not in seen:
                seen.add(current)
                waiting += reversed(self.given.removed[current])
        return result

    def _change_communication(self, node: Node, before: Communication) -> None:
        assert self.after is not None
        after = self.after.get(node.id)
        if after is None:
            node.type = NodeType.COMP_NODE
            _set_attributes(node, dict.fromkeys(_COMM_ATTRIBUTES))
            return
        changed: dict[str, Any] = {"comm_type": after.kind} if after.kind != before.kind else {}
        if after.size != before.size:
            changed["comm_size"] = after.size
        if after.kind >= 0 and str(after.group or "") != before.named[0]:
            changed["pg_name"] = str(after.group)
        if after.kind < 0 and (after.peer != before.peer or self.rank != self.given.rank):
            ends = (self.rank, after.peer) if after.kind == SEND else (after.peer, self.rank)
            changed |= dict(zip(("comm_src", "comm_dst"), ends, strict=True))
        if changed:
            _set_attributes(node, changed)


def _set_attributes(node: Node, values: Mapping[str, Any]) -> None:
    kept = [given for given in node.attr if given.name not in values]
    new = [attribute(name, value) for name, value in values.items() if value is not None]
    del node.attr[:]
    node.attr.extend([*kept, *new])


def write_copy(given: GivenRank, output: str, comms: RankComms | None = None) -> Written:
    changes = _Changes(given, comms)
    metadata, blocks = read_messages(given.path)
    if not metadata.version:
        metadata.version = CHAKRA_VERSION
        changes.counts[_VERSION] += 1
    nodes = write_blocks(output, metadata, map(changes.block, blocks))
    return Written(nodes, +changes.counts + (comms.counts if comms is not None else Counter()))


def copy_set(files: Mapping[int, str], output: str, *, prefix: bool, groups: str | None) -> Conversion:
    paths = {rank: f"{output}.{rank}.et" if prefix else output for rank in files}
    check_outputs(paths.values())
    counts: Counter[str] = Counter()
    nodes = 0
    for rank, path in files.items():
        written = write_copy(GivenRank(path, rank, {}, (), None), paths[rank])
        nodes, counts = nodes + written.nodes, counts + written.counts
    known = _groups_of(files, groups)
    made = write_groups(output, known, {number: str(number) for number in known}) if prefix and known else []
    return Conversion((*paths.values(), *made), nodes, counts, (_COPIED,))


def copy_for_astra_sim(files: Mapping[int, str], output: str, options: AstraSimOptions) -> Conversion:
    if options.roofline is not None:
        raise UsageError("roofline needs operators; a .et file from another producer keeps its num_ops")
    network = DEFAULT if options.network is None else parse_network(options.network)
    given = {rank: survey_file(path, rank) for rank, path in files.items()}
    surveyed = with_groups(list(given.values()), _groups_of(files, options.groups))
    ranks, sources, moved = simulated_ranks(surveyed, renumber=options.renumber_ranks, replicate=options.replicate)
    agreement = for_simulator(numbered(ranks))
    check_outputs(f"{output}.{rank}.et" for rank in sources)
    counts: Counter[str] = Counter()
    nodes = 0
    for rank, source in sorted(sources.items()):
        written = write_copy(given[source], f"{output}.{rank}.et", agreement.ranks[rank])
        nodes, counts = nodes + written.nodes, counts + written.counts
    made = write_groups(output, agreement.groups, agreement.names)
    links = astra_links(network, len(sources))
    config, about = write_astra_config(output, network, links, groups=bool(agreement.groups))
    names = [f"{output}.{rank}.et" for rank in sorted(sources)]
    notes = (_COPIED, *moved, *agreement.notes, *about)
    return Conversion((*names, *made, *config), nodes, counts, notes, network=network_dict(network))


def _groups_of(files: Mapping[int, str], groups: str | None) -> Groups | None:
    path = groups or find_groups(prefix_of(next(iter(files.values()))))
    return None if path is None else read_groups(path)
