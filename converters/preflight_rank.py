"""Run the pre-flight check of one rank's file: read its nodes into columns in one pass, and then check the columns."""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..schemas.chakra.attributes import INTEGERS, MEMBERS, SIMULATED_COLLECTIVES
from ..schemas.chakra.et_def_pb2 import CollectiveCommType, Node, NodeType
from ..schemas.chakra.stream import Messages, node_heads, read_messages
from ..schemas.text.sniff import GZIP_MAGIC
from ..timeline.topological_order import IntArray, find_cycle, issue_order
from ..trace.columns import among, mask_at, run_starts, scatter
from ..trace.errors import TraceFormatError
from .preflight_findings import PreflightFindings

UNKNOWN_RANK = -1
_SHOWN_OF_A_CYCLE = 8
_NEEDED: dict[int, tuple[str, ...]] = {
    NodeType.COMM_COLL_NODE: ("comm_type", "comm_size"),
    NodeType.COMM_SEND_NODE: ("comm_dst", "comm_tag", "comm_size"),
    NodeType.COMM_RECV_NODE: ("comm_src", "comm_tag", "comm_size"),
}
# ASTRA-sim reads these attributes of every node that has them.
# ASTRA-sim reads `num_ops` and `tensor_size` only for a roofline simulation.
_READ = {*chain(*_NEEDED.values()), "is_cpu_op", "comm_priority", "pg_name", "involved_dim"}
# ASTRA-sim parses the name of a group with `std::stoi`, so both " 01" and "1e0" mean group 1.
_LEADING_NUMBER = re.compile(r"\s*\+?([0-9]{1,10})", re.ASCII)
_GROUP = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_MAX_GROUP = 2**31 - 1
_MOST_BYTES = 2**53
_MOST_MICROS = 2**53 // 1000  # A double can hold this time in ns exactly. In tests, ASTRA-sim stopped near 2**63 ns.
_MANY_READY = 20_000  # In tests, ASTRA-sim became very slow at about 20,000 ready nodes.


@dataclass(frozen=True)
class RankFile:
    """A file and its rank, which is `UNKNOWN_RANK` if the file name does not contain a rank."""

    path: Path
    rank: int


@dataclass(frozen=True)
class IndexGraph:
    """Dependencies: each ``target`` waits for its ``source``. Index i refers to the node with the i-th lowest id."""

    count: int
    source: npt.NDArray[np.int32]
    target: npt.NDArray[np.int32]


@dataclass(frozen=True)
class CommTable:
    """The communication nodes of a rank, in issue order.

    Attributes:
        index: the index of the node in the rank's `IndexGraph`.
        op: for a collective, a CollectiveCommType; for a message, -1.
        group: the number of the process group, which is 0 for the group of all ranks; for a message, -1.
        peer: the destination of a send or the source of a receive; for a collective, -1.
        behind: 1 if the node is a receive or depends on the previous communication, and 0 if durations set the order.
    """

    node: npt.NDArray[np.uint64]
    index: IntArray
    type: IntArray
    op: IntArray
    size: IntArray
    group: IntArray
    peer: IntArray
    tag: IntArray
    behind: IntArray


@dataclass(frozen=True)
class RankScan:
    """The scan of a rank's file. `flaw` is the reason why the file cannot be compared with other ranks, or ""."""

    file: RankFile
    nodes: int
    graph: IndexGraph
    comm: CommTable
    micros: IntArray
    on_host: npt.NDArray[np.bool_]
    begins_at_once: int | None
    flaw: str


@dataclass
class ChakraNodes:
    """Node columns, filled in file order. Each row in ``comm`` has the values of `CommTable` from ``type`` on."""

    ids: array[int] = field(default_factory=lambda: array("Q"))
    degrees: array[int] = field(default_factory=lambda: array("q"))
    depends_on: array[int] = field(default_factory=lambda: array("Q"))
    comm_at: array[int] = field(default_factory=lambda: array("q"))
    comm: array[int] = field(default_factory=lambda: array("q"))
    micros: array[int] = field(default_factory=lambda: array("Q"))
    on_host: array[int] = field(default_factory=lambda: array("b"))
    invalid: list[int] = field(default_factory=list)  # ASTRA-sim hangs if these nodes have predecessors and successors.
    dimensions: int | None = None
    flaw: str = ""


def scan(
    file: RankFile, findings: PreflightFindings, *, known_attributes: bool = False, dimensions: int | None = None
) -> RankScan:
    """Read and check one file. If etplus encoded the file (`known_attributes`), check only communications."""
    columns = _read(file, findings, ChakraNodes(dimensions=dimensions), known_attributes)
    ids, graph = _graph(columns, file.rank, findings)
    order = issue_order(graph.count, graph.source, graph.target)
    if len(order) < graph.count:
        _report_cycle(ids, graph, order, file.rank, findings)
        columns.flaw = columns.flaw or "has a cycle"
    ready = graph.count - int(mask_at(graph.count, graph.target).sum())
    if ready >= _MANY_READY:
        findings.add("many-ready", file.rank, (), "{} of {} nodes have no dependencies", ready, graph.count)
    comm = _comm_table(columns, ids, graph, order)
    places = np.searchsorted(ids, np.frombuffer(columns.ids, np.uint64))
    micros = scatter(
        graph.count, places, np.minimum(np.frombuffer(columns.micros, np.uint64), _MOST_MICROS).astype(np.int64)
    )
    on_host = scatter(graph.count, places, np.frombuffer(columns.on_host, np.int8)).astype(np.bool_)
    first = _first_collective(comm, graph)
    for number in columns.invalid:
        if np.any(ids[graph.source] == number) and np.any(ids[graph.target] == number):
            findings.add("unsupported-node", file.rank, (number,), "node {} is of type INVALID_NODE", number)
    return RankScan(file, len(columns.ids), graph, comm, micros, on_host, first, columns.flaw)


def _read(file: RankFile, findings: PreflightFindings, columns: ChakraNodes, known_attributes: bool) -> ChakraNodes:
    rank = file.rank
    if _is_gzip(file.path):
        findings.add("gzip", rank, (), "{}: decompress it", file.path.name)
    if file.path.is_file() and not file.path.stat().st_size:
        findings.add("no-nodes", rank, (), "{} is empty", file.path.name)
        columns.flaw = "has no nodes"
        return columns
    metadata, blocks = read_messages(file.path)
    if not metadata.version:
        findings.add("no-version", rank, (), "{}", file.path.name)
    try:
        for messages in blocks:
            if not known_attributes or not _take_written(messages, columns, rank, findings):
                for node, _ in messages.nodes():
                    _take(node, columns, rank, findings)
    except TraceFormatError as error:
        findings.add("damaged", rank, (), "{}", error)
        columns.flaw = "is damaged"
    together = sum(columns.micros)
    if together > _MOST_MICROS:
        findings.add("overflow", rank, (), "its nodes take {:,} µs in total", together)
    if not columns.ids and not columns.flaw:
        findings.add("no-nodes", rank, (), "{} has metadata only", file.path.name)
        columns.flaw = "has no nodes"
    return columns


def _is_gzip(path: Path) -> bool:
    """Return True if the content of a file is gzipped. Other readers look only for the suffix ".gz"."""
    try:
        with path.open("rb") as file:
            return file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    except OSError:  # The reader reports the error.
        return False


def _take(node: Node, columns: ChakraNodes, rank: int, findings: PreflightFindings) -> None:
    number, degree = node.id, 0
    for name, listed in (("data_deps", node.data_deps), ("ctrl_deps", node.ctrl_deps)):
        if listed:
            degree += len(listed)
            columns.depends_on.extend(listed)
            if len(listed) > 1 and len(set(listed)) < len(listed):
                findings.add("duplicate-dependency", rank, (number,), "in {} of node {}", name, number)
    values = _attributes(node, rank, findings)
    _take_kind(len(columns.ids), number, node.type, values, columns, rank, findings)
    columns.on_host.append(bool(values.get("is_cpu_op")))
    columns.micros.append(node.duration_micros)
    columns.ids.append(number)
    columns.degrees.append(degree)


def _take_written(messages: Messages, columns: ChakraNodes, rank: int, findings: PreflightFindings) -> bool:
    """Append all nodes at once if they have the encoding that etplus writes. Otherwise, return False."""
    heads = node_heads(messages)
    if heads is None:
        return False
    first = len(columns.ids)
    columns.ids.frombytes(heads.ids.tobytes())
    columns.degrees.frombytes(heads.degrees.tobytes())
    columns.depends_on.frombytes(heads.depends_on.tobytes())
    columns.micros.frombytes(heads.micros.tobytes())
    columns.on_host.extend(bytes(len(heads.ids)))
    for place in np.flatnonzero(heads.kinds != NodeType.COMP_NODE).tolist():
        number, kind = columns.ids[first + place], int(heads.kinds[place])
        values = _attributes(messages.node(place)[0], rank, findings) if kind in _NEEDED else {}
        _take_kind(first + place, number, kind, values, columns, rank, findings)
    return True


def _take_kind(
    node_index: int,
    number: int,
    kind: int,
    values: dict[str, Any],
    columns: ChakraNodes,
    rank: int,
    findings: PreflightFindings,
) -> None:
    if kind in _NEEDED:
        row = _comm_row(number, kind, values, rank, findings, columns.dimensions)
        if row:
            columns.comm_at.append(node_index)
            columns.comm.extend(row)
        else:
            columns.flaw = columns.flaw or "has communication nodes with wrong attributes"
    elif kind == NodeType.COMP_NODE:
        if values.get("is_cpu_op"):
            findings.add("host-node", rank, (number,), "node {} is a CPU operator", number)
    elif kind in (NodeType.MEM_LOAD_NODE, NodeType.MEM_STORE_NODE):
        findings.add("memory-node", rank, (number,), "node {} is of type {}", number, _type_name(kind))
    elif kind == NodeType.INVALID_NODE:
        columns.invalid.append(number)
    else:
        findings.add("unsupported-node", rank, (number,), "node {} is of type {}", number, _type_name(kind))


def _type_name(kind: int) -> str:
    return str(NodeType.Name(kind)) if kind in NodeType.values() else str(kind)


def _attributes(node: Node, rank: int, findings: PreflightFindings) -> dict[str, Any]:
    """Map attributes to values. The first of duplicates wins. Values that ASTRA-sim cannot read become None."""
    values: dict[str, Any] = {}
    for attribute in node.attr:
        name = attribute.name
        member = MEMBERS.get(name)
        if member is None:
            continue
        if name in values:
            findings.add("duplicate-attribute", rank, (node.id,), "{} of node {}", name, node.id)
            continue
        actual = attribute.WhichOneof("value")
        values[name] = None if actual is None else getattr(attribute, actual)
        if actual == member:
            continue
        readable = actual in INTEGERS and member in INTEGERS
        kind = "attribute-type" if readable or name not in _READ else "attribute-unreadable"
        text = "{} of node {} is {}, not {}"
        findings.add(kind, rank, (node.id,), text, name, node.id, actual or "without a value", member)
        values[name] = values[name] if readable else None
    return values


def _comm_row(
    number: int, kind: int, values: dict[str, Any], rank: int, findings: PreflightFindings, dimensions: int | None
) -> tuple[int, ...] | None:
    """Return the values of a `CommTable` row from ``type`` on, or None if an attribute is missing or wrong."""
    absent = [name for name in _NEEDED[kind] if name not in values]
    for name in absent:
        findings.add("missing-attribute", rank, (number,), "node {} ({}) has no {}", number, _type_name(kind), name)
    wrong = list(_wrong_values(kind, values, rank))
    for name, text in wrong:
        text = f"node {{}}: {name} is {{!r}}, {text}"
        findings.add("attribute-value", rank, (number,), text, number, values[name])
    if absent or wrong or any(values[name] is None for name in _NEEDED[kind]) or values.get("pg_name", "") is None:
        return None
    size = values["comm_size"]
    if kind == NodeType.COMM_COLL_NODE:
        if size > _MOST_BYTES:
            findings.add("overflow", rank, (number,), "node {} communicates {:,} bytes", number, size)
        op = values["comm_type"]
        named = values.get("pg_name")
        if "pg_name" not in values:
            findings.add("no-group", rank, (number,), "node {} has no pg_name", number)
        elif named and not _GROUP.fullmatch(named):
            findings.add("group-name", rank, (number,), "pg_name of node {} is {!r}", number, named)
        group, chosen = _group_number(named), values.get("involved_dim")
        if chosen is not None and not group and not any(chosen.values[:dimensions]):
            findings.add("no-dimension", rank, (number,), "node {}: all values of involved_dim are false", number)
        _check_simulated(number, op, size, rank, findings)
        return kind, op, size, group, -1, 0
    if size == 0:
        findings.add("empty-message", rank, (number,), "node {} ({}) has 0 bytes", number, _type_name(kind))
    peer = values["comm_dst" if kind == NodeType.COMM_SEND_NODE else "comm_src"]
    if peer == rank:
        findings.add("self-message", rank, (number,), "node {} is a message from rank {} to itself", number, rank)
    return kind, -1, size, -1, peer, values["comm_tag"]


def _group_number(name: str | None) -> int:
    """Return the number that ASTRA-sim parses from the name of a group, or −1 if it cannot parse the name."""
    if not name:
        return 0
    leading = _LEADING_NUMBER.match(name)
    number = int(leading[1]) if leading else -1
    return number if number or name == "0" else -1


def _wrong_values(kind: int, values: dict[str, Any], rank: int) -> list[tuple[str, str]]:
    """Return the attributes of a communication node that have impossible values, each with the expected value."""
    wrong = []
    if values.get("is_cpu_op"):
        wrong.append(("is_cpu_op", "but readers do not run communication on the CPU"))
    if (values.get("comm_size") or 0) < 0:
        wrong.append(("comm_size", "but a size is a number of bytes"))
    if kind == NodeType.COMM_COLL_NODE:
        if (values.get("comm_type") or 0) not in CollectiveCommType.values():
            wrong.append(("comm_type", "which is not a CollectiveCommType"))
        group = values.get("pg_name")
        if group and not (0 <= _group_number(group) <= _MAX_GROUP):
            wrong.append(("pg_name", "but readers need a decimal integer"))
        return wrong
    own, other = ("comm_src", "comm_dst") if kind == NodeType.COMM_SEND_NODE else ("comm_dst", "comm_src")
    if rank != UNKNOWN_RANK and (values.get(own) if values.get(own) is not None else rank) != rank:
        wrong.append((own, f"but the node is on rank {rank}"))
    if (values.get("comm_tag") or 0) < 0:
        wrong.append(("comm_tag", "but tags count from 0"))
    if (values.get(other) or 0) < 0:
        wrong.append((other, "but ranks count from 0"))
    return wrong


def _check_simulated(number: int, op: int, size: int, rank: int, findings: PreflightFindings) -> None:
    name = CollectiveCommType.Name(op)
    if op == CollectiveCommType.BROADCAST:
        findings.add("replayed-collective", rank, (number,), "node {} is a {}", number, name)
    elif op not in SIMULATED_COLLECTIVES:
        findings.add("unsupported-collective", rank, (number,), "node {} is a {}", number, name)
    if op == CollectiveCommType.ALL_GATHER and not size:
        findings.add("empty-all-gather", rank, (number,), "node {} gathers 0 bytes", number)


def _first_collective(comm: CommTable, graph: IndexGraph) -> int | None:
    """Return the id of the simulated collective that the rank starts at time 0, or None if there is none."""
    first = np.flatnonzero(~mask_at(graph.count, graph.target)[comm.index] & (comm.type != NodeType.COMM_RECV_NODE))
    if len(first) and comm.op[at := first[np.argmin(comm.node[first])]] in SIMULATED_COLLECTIVES:
        return int(comm.node[at])
    return None


def _graph(columns: ChakraNodes, rank: int, findings: PreflightFindings) -> tuple[npt.NDArray[np.uint64], IndexGraph]:
    """Return the sorted ids and all dependencies, except dependencies on missing or duplicate nodes."""
    numbers = np.frombuffer(columns.ids, dtype=np.uint64)
    ordered = np.sort(numbers)
    starts = np.flatnonzero(run_starts(ordered))
    ids, counts = ordered[starts], np.diff(np.append(starts, len(ordered)))
    unique = counts == 1
    if not unique.all():
        columns.flaw = columns.flaw or "has duplicate ids"
    for again, times in zip(ids[~unique].tolist(), counts[~unique].tolist(), strict=True):
        findings.add("duplicate-id", rank, (again,), "{} nodes have the id {}", times, again)
    depends_on = np.frombuffer(columns.depends_on, dtype=np.uint64)
    owner = np.repeat(np.arange(len(numbers)), np.frombuffer(columns.degrees, dtype=np.int64))
    source = np.searchsorted(ids, depends_on)
    is_known = source < len(ids)
    is_known[is_known] = ids[source[is_known]] == depends_on[is_known]
    text = "node {} depends on {}, but the file does not have it"
    for node, missing in zip(numbers[owner[~is_known]].tolist(), depends_on[~is_known].tolist(), strict=True):
        findings.add("dangling-dependency", rank, (node, missing), text, node, missing)
    target = np.searchsorted(ids, numbers)[owner]
    source, target = source[is_known], target[is_known]
    sure = unique[source]  # Nodes with the same id are merged, and this could create a false cycle.
    return ids, IndexGraph(len(ids), source[sure].astype(np.int32), target[sure].astype(np.int32))


def _report_cycle(
    ids: npt.NDArray[np.uint64], graph: IndexGraph, order: IntArray, rank: int, findings: PreflightFindings
) -> None:
    cycle = ids[find_cycle(graph.count, graph.source, graph.target, order)].tolist()
    shown = " -> ".join(map(str, cycle[:_SHOWN_OF_A_CYCLE]))
    more = f" -> ({len(cycle) - _SHOWN_OF_A_CYCLE} more)" if len(cycle) > _SHOWN_OF_A_CYCLE else ""
    text = "{}{} -> {}; {} of {} nodes are never issued"
    findings.add("cycle", rank, tuple(cycle), text, shown, more, cycle[0], graph.count - len(order), graph.count)


def _comm_table(columns: ChakraNodes, ids: npt.NDArray[np.uint64], graph: IndexGraph, order: IntArray) -> CommTable:
    node = np.frombuffer(columns.ids, dtype=np.uint64)[np.frombuffer(columns.comm_at, dtype=np.int64)]
    index = np.searchsorted(ids, node)
    place = scatter(len(ids), order, np.arange(len(order)), len(ids))  # Nodes that are never issued come last.
    issued = np.argsort(place[index], kind="stable")
    rows = np.frombuffer(columns.comm, dtype=np.int64).reshape(-1, 6)[issued]
    turns = rows[:, 0] != NodeType.COMM_RECV_NODE
    behind = np.ones(len(issued), np.int64)
    behind[turns] = _behind(index[issued[turns]], graph, order)
    kind, op, size, group, peer, tag = map(np.ascontiguousarray, rows.T)
    return CommTable(node[issued], index[issued], kind, op, size, group, peer, tag, behind)


def _behind(index: IntArray, graph: IndexGraph, order: IntArray) -> IntArray:
    """For each communication in issue order, return True if it depends directly or indirectly on the previous one."""
    key = index[:-1] * graph.count + index[1:]
    direct = among(key, graph.source.astype(np.int64) * graph.count + graph.target)
    if direct.all():
        return np.ones(len(index), np.int64)
    turn, needs = np.full(graph.count, -1, np.int64).tolist(), [list[int]() for _ in range(graph.count)]
    for number, node in enumerate(index.tolist()):
        turn[node] = number
    for source, target in zip(graph.source.tolist(), graph.target.tolist(), strict=True):
        needs[target].append(source)
    latest, waits = [-1] * graph.count, [-1] * graph.count  # last communication up to each node, and before each node
    for node in order.tolist():
        waits[node] = max((latest[needed] for needed in needs[node]), default=-1)
        latest[node] = max(waits[node], turn[node])
    return np.array([waits[node] == number - 1 for number, node in enumerate(index.tolist())], np.int64)
