"""ET+ to a Chakra protobuf trace (.et) that holds all of it: every node, time, dependency and communication."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import numpy as np

from ..schemas.chakra.et_def_pb2 import AttributeProto, GlobalMetadata, Node, NodeType
from ..schemas.chakra.stream import write_chakra
from ..schemas.comm_types import RECV, SEND
from ..schemas.communications import comm_rows
from ..schemas.secrets import mask
from ..trace.columns import IntColumn
from ..trace.conventions import COPY_CATEGORIES
from ..trace.index import Row
from ..trace.kinds import GPU, RUNTIME
from ..trace.trace import Trace
from .chakra_attributes import make, shared
from .chakra_nodes import describe
from .collectives import Communication, RankComms, agree, survey
from .dependencies import Dependencies, dependencies
from .host import host_rows, host_work
from .work import work_attributes

__all__ = ["CHAKRA_VERSION", "Written", "chakra_messages", "comm_attributes", "comm_node_type", "rounded", "write_et"]

CHAKRA_VERSION = "0.0.4"
"""Version of the Chakra schema, in every file's metadata."""
_LEFT_OUT = "dependencies by order of threads and streams left out, since edges contradict them"


@dataclass(frozen=True)
class Written:
    """What a conversion wrote.

    Attributes:
        nodes: how many.
        counts: what was changed or given up on the way, in words, and how often.
    """

    nodes: int
    counts: Counter[str] = field(default_factory=Counter)


def write_et(
    document: Trace,
    path: str | os.PathLike[str],
    *,
    comms: RankComms | None = None,
    memory_nodes: bool = False,
) -> Written:
    """Write a document as one Chakra file, gzipped if its name ends in ".gz".

    `data_deps` are the edges and the order of threads and streams, `ctrl_deps` the caller; a file in which nodes come
    after what they wait for. Durations are what a node itself does (see `host_work`), so that callers and waiting
    count once; measured times are in attributes. docs/converters.md lists all attributes.

    Args:
        comms: the rank's communications, if several ranks agreed on groups and tags.
        memory_nodes: copies and fills as MEM_LOAD_NODE (to the device) and MEM_STORE_NODE, else as COMP_NODE.

    Raises:
        ConvertError: the document's edges form a cycle, or a node is too large for the format.
        UsageError: the file cannot be written.
    """
    metadata, nodes, counts = chakra_messages(document, comms=comms, memory_nodes=memory_nodes)
    return Written(write_chakra(path, metadata, nodes), counts)


def chakra_messages(
    document: Trace, *, comms: RankComms | None = None, memory_nodes: bool = False
) -> tuple[GlobalMetadata, Iterator[Node], Counter[str]]:
    """The messages of `write_et`, the nodes' made one by one, and what was given up."""
    if comms is None:
        rank = document.rank or 0
        comms = agree([survey(document, rank)]).ranks[rank]
    needs = dependencies(document, comm_rows(document))
    counts = Counter(comms.counts)
    if needs.left_out:
        counts[_LEFT_OUT] = needs.left_out
    return _metadata(document), _nodes(document, needs, comms, memory_nodes), counts


def _nodes(document: Trace, needs: Dependencies, comms: RankComms, memory_nodes: bool) -> Iterator[Node]:
    talks = {comm.row: comm for comm in comms.found}
    work = work_attributes(document)
    durations = _durations(document)
    micros = rounded(durations, _lanes(document), np.where(document.ts >= 0, document.ts, 0))
    ids = document.id
    for row, record in zip(needs.order.tolist(), document.records(needs.order), strict=True):
        attributes, inputs, outputs = describe(document, row, record)
        source, kinds = needs.of(row)
        comm = talks.get(row)
        node = Node(
            id=int(ids[row]),
            name=document.name_of(row),
            type=_node_type(document, row, comm, memory_nodes),
            ctrl_deps=[int(ids[document.parent_row[row]])] if document.parent_row[row] >= 0 else [],
            data_deps=ids[source].tolist(),
            inputs=inputs,
            outputs=outputs,
            duration_micros=int(micros[row]),
        )
        on_host = comm is None and bool(document.kind[row] != GPU)
        node.attr.append(shared("is_cpu_op", on_host))
        node.attr.extend(attributes)
        node.attr.extend(_time_attributes(document, row, int(durations[row]), node))
        if comm is not None:
            node.attr.extend(comm_attributes(comm, comms.rank))
        elif node.type == NodeType.COMP_NODE:
            node.attr.extend(work.get(row, ()))
        if len(kinds):
            node.attr.append(make("data_dep_kinds", kinds.tolist()))
        if document.parent[row] >= 0 and document.parent_row[row] < 0:
            node.attr.append(make("call_parent", int(document.parent[row])))
        yield node


def comm_node_type(comm: Communication) -> NodeType:
    """Type of the node of a communication."""
    types = {SEND: NodeType.COMM_SEND_NODE, RECV: NodeType.COMM_RECV_NODE}
    return types.get(comm.kind, NodeType.COMM_COLL_NODE)


def comm_attributes(comm: Communication, rank: int) -> list[AttributeProto]:
    """What readers need to know of a communication."""
    if comm.kind >= 0:
        return [
            shared("comm_type", comm.kind),
            make("comm_size", comm.size),
            shared("pg_name", str(comm.group)),
        ]
    source, target = (rank, comm.peer) if comm.kind == SEND else (comm.peer, rank)
    return [
        shared("comm_src", source),
        shared("comm_dst", target),
        make("comm_tag", comm.tag),
        make("comm_size", comm.size),
    ]


def rounded(durations: IntColumn, lane: IntColumn, ts: IntColumn) -> IntColumn:
    """ns to whole µs; in each lane, in order of `ts`, what rounding takes from one is given to the next.

    So any run of a lane's rows sums up to within 1 µs of its exact sum, and each row is within 1 µs, too.
    """
    order = np.lexsort((np.arange(len(lane)), ts, lane))
    total = np.cumsum(durations[order])
    begins = np.flatnonzero(np.diff(lane[order], prepend=lane[order][:1] - 1))
    before = np.repeat((total - durations[order])[begins], np.diff(np.append(begins, len(order))))
    upto = total - before
    micros = np.empty(len(order), np.int64)
    micros[order] = (upto + 500) // 1000 - (upto - durations[order] + 500) // 1000
    return micros


def _durations(document: Trace) -> IntColumn:
    """What each row itself does, ns: GPU events and collectives as measured, host rows as `host_work` says."""
    communicating = comm_rows(document)
    rows = host_rows(document, communicating)
    durations = np.where(document.timed, document.dur, 0)
    durations[rows] = host_work(document, communicating)[rows]
    return durations


def _lanes(document: Trace) -> IntColumn:
    """A number each for the host's threads and the GPU's streams."""
    threads = np.unique(document.thread, return_inverse=True)[1].reshape(-1)
    return np.where(document.kind == GPU, -1 - document.stream_lane, threads)


def _node_type(document: Trace, row: Row, comm: Communication | None, memory_nodes: bool) -> NodeType:
    if comm is not None:
        return comm_node_type(comm)
    if document.structural[row]:
        return NodeType.METADATA_NODE
    if memory_nodes and document.categories[document.category[row]] in COPY_CATEGORIES:
        to_host = "DtoH" in document.name_of(row) or "Device -> Host" in document.name_of(row)
        return NodeType.MEM_STORE_NODE if to_host else NodeType.MEM_LOAD_NODE
    return NodeType.COMP_NODE


def _time_attributes(document: Trace, row: int, duration: int, node: Node) -> Iterator[AttributeProto]:
    """Exact times; those that equal `duration_ns` are left out."""
    yield make("duration_ns", duration)
    ts, dur, exclusive = (int(column[row]) for column in (document.ts, document.dur, document.exclusive))
    if ts < 0:
        return
    node.start_time_micros = (ts + 500) // 1000
    yield make("start_ns", ts)
    if dur != duration:
        yield make("inclusive_ns", dur)
    if exclusive != duration and document.kind[row] != RUNTIME:
        yield make("exclusive_ns", exclusive)


def _metadata(document: Trace) -> GlobalMetadata:
    """Version, and as JSON texts what ET+ has beside nodes and edges."""
    encode = msgspec.json.encode
    texts = {
        "header": mask(encode(document.header))[0],
        "etplus": mask(encode(document.summary))[0],
        "layout": encode("flat" if document.flat else "attrs"),
    }
    attributes = [AttributeProto(name=name, string_val=text.decode("utf-8", "replace")) for name, text in texts.items()]
    return GlobalMetadata(version=CHAKRA_VERSION, attr=attributes)
