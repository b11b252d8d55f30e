"""Convert ET+ to a Chakra protobuf trace (.et) that has all nodes, times, dependencies and communications."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import accumulate, chain, pairwise, takewhile
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET

from ..schemas.chakra.attributes import MESSAGE_OF, MESSAGES, attribute, encoded, numbers, shared
from ..schemas.chakra.encode import (
    CTRL_DEPS,
    DURATION,
    ID,
    INPUTS,
    NAME,
    OUTPUTS,
    START,
    TYPE,
    Block,
    delimited,
    dependency_rows,
    field_cells,
    io_info,
    messages,
    text_field,
)
from ..schemas.chakra.et_def_pb2 import AttributeProto, GlobalMetadata, Node, NodeType
from ..schemas.chakra.node_records import ABSENT, EVENT_NUMBERS, FURTHER_ATTRIBUTES, form_of, read_records
from ..schemas.chakra.stream import messages_of, write_blocks
from ..schemas.communications import comm_rows
from ..schemas.execution_trace.arguments import ET_ATTRIBUTES, FLAT_TENSORS
from ..schemas.known_fields import known_sections
from ..schemas.wire_format import Cells, byte_rows
from ..trace.captured import CapturedGraphs
from ..trace.columns import IntColumn, decimal_ns, distinct
from ..trace.conventions import COPY_CATEGORIES
from ..trace.errors import UNREADABLE
from ..trace.index import Row
from ..trace.kinds import CPU, GPU, RUNTIME
from ..trace.node_texts import Record
from ..trace.trace import Trace
from .collectives import RankComms, agree, comm_attributes, comm_node_type, shared_rows, survey
from .node_work import host_rows, host_work, rounded, work_columns
from .row_dependencies import TraceDependencies, dependencies

# The metadata of every written file names this version of the Chakra schema.
CHAKRA_VERSION = "0.0.4"
# Number of nodes that are encoded per block. If blocks are smaller, the fixed cost per block dominates.
ROWS = 8192
COMP = NodeType.Value("COMP_NODE")
_LEFT_OUT = "dependencies from thread and stream order, left out because edges contradict them"


@dataclass(frozen=True)
class Written:
    nodes: int
    counts: Counter[str] = field(default_factory=Counter)


def write_et(
    trace: Trace, path: str | os.PathLike[str], *, comms: RankComms | None = None, memory_nodes: bool = False
) -> Written:
    """Write a Chakra file (gzipped if its name ends in ".gz"). See docs/reference/chakra.md for all attributes.
    `data_deps` contains the edges and the order of each thread and stream. `ctrl_deps` contains the caller. The
    duration of a node is its self time (see `host_work`). Attributes contain the measured times. Raise ConvertError if
    the edges form a cycle. `comms` contains the communications after all ranks have agreed on groups and tags.
    `memory_nodes` turns copies and memsets into MEM_LOAD_NODE (to the device) and MEM_STORE_NODE."""
    blocks, counts = _blocks(trace, comms=comms, memory_nodes=memory_nodes)
    return Written(write_blocks(path, _metadata(trace), blocks), counts)


def chakra_messages(trace: Trace) -> tuple[GlobalMetadata, Iterator[Node], Counter[str]]:
    blocks, counts = _blocks(trace)
    return _metadata(trace), messages_of(blocks), counts


def _blocks(
    trace: Trace, *, comms: RankComms | None = None, memory_nodes: bool = False
) -> tuple[Iterator[Block], Counter[str]]:
    if comms is None:
        rank = trace.rank or 0
        comms = agree([survey(trace, rank)]).ranks[rank]
    communicating = comm_rows(trace)
    needs = dependencies(trace, communicating)
    counts = Counter(comms.counts)
    if needs.left_out:
        counts[_LEFT_OUT] = needs.left_out
    encoder = _Encoder(trace, needs, comms, communicating, memory_nodes)
    spans = range(0, len(needs.order), ROWS)
    return (encoder.block(needs.order[at : at + ROWS]) for at in spans), counts


class _Encoder:
    """Encodes the nodes of a trace from columns, one kind at a time. All arrays have one entry per row."""

    def __init__(
        self, trace: Trace, needs: TraceDependencies, comms: RankComms, communicating: IntColumn, memory_nodes: bool
    ) -> None:
        nodes = trace.nodes
        self.trace, self.needs = trace, needs
        self.names = [text_field(NAME, name.encode()) for name in trace.names]
        self.has_times = bool(nodes.timed.any())
        self.type = _node_types(trace, comms, memory_nodes)
        # Self time of each row in ns. GPU events and collectives keep their measured duration.
        self.duration = np.where(nodes.timed, nodes.dur, 0)
        on_host = host_rows(trace, communicating)
        self.duration[on_host] = host_work(trace, communicating)[on_host]
        threads = np.unique(nodes.thread, return_inverse=True)[1].reshape(-1)
        lanes = np.where(nodes.kind == GPU, -1 - nodes.stream_lane, threads)
        self.micros = rounded(self.duration, lanes, np.where(nodes.ts >= 0, nodes.ts, 0))
        self.work = {name: np.where(self.type == COMP, values, -1) for name, values in work_columns(trace).items()}
        self.shared = shared_rows(comms.found)
        self.comms = {
            comm.row: encoded(*comm_attributes(comm, comms.rank)) for comm in comms.found if comm.row not in self.shared
        }
        self.rank = comms.rank
        first, rows = int(nodes.id.max(initial=0)) + 1, list(self.shared)
        ends = accumulate((len(self.shared[row]) for row in rows), initial=first)  # NumPy would overflow at 2**63 - 1.
        self.message_ids = {row: range(begin, end) for row, (begin, end) in zip(rows, pairwise(ends), strict=True)}
        self.message_micros = {row: int(self.micros[row]) for row in rows}
        self.micros[rows] = 0

    def block(self, rows: IntColumn) -> Block:
        nodes = np.empty(len(rows), object)
        parts = [row for row in rows.tolist() if row in self.shared]
        for kind in (CPU, GPU, RUNTIME):
            places = np.flatnonzero(self.trace.nodes.kind[rows] == kind)
            if len(places):
                nodes[places] = self._nodes(kind, rows[places])
        for place, row in enumerate(rows.tolist() if parts else ()):
            if row in self.shared:
                nodes[place] = b"".join(self._messages(row)) + nodes[place]
        return Block(len(nodes) + sum(len(self.shared[row]) for row in parts), b"".join(nodes.tolist()))

    def _messages(self, row: int) -> Iterator[bytes]:
        """Yield one node per message if a row has several. The row's own node follows them and takes no time."""
        trace, name = self.trace, self.trace.name_of(Row(row))
        needs = trace.nodes.id[self.needs.of_rows(np.array([row]))[1]].tolist()
        begin, took = (int(trace.nodes.ts[row]) + 500) // 1000, self.message_micros[row]
        on_cpu, message_of = AttributeProto(name="is_cpu_op", bool_val=False), int(trace.nodes.id[row])
        for number, comm in zip(self.message_ids[row], self.shared[row], strict=True):
            node = Node(id=number, name=name, type=comm_node_type(comm), data_deps=needs)
            node.start_time_micros, node.duration_micros = begin, took
            node.attr.extend([on_cpu, *comm_attributes(comm, self.rank), attribute(MESSAGE_OF, message_of)])
            yield delimited(node.SerializeToString())

    def _nodes(self, kind: int, rows: IntColumn) -> list[bytes]:
        trace = self.trace
        counts, sources, kinds = self.needs.of_rows(rows)
        needs, messages_of = trace.nodes.id[sources], [len(self.message_ids.get(row, ())) for row in rows.tolist()]
        ends = np.cumsum(counts)
        bits = kinds.tolist()
        edges = [tuple(bits[a:b]) for a, b in zip((ends - counts).tolist(), ends.tolist(), strict=True)]
        if any(messages_of):
            lists = np.split(needs, ends[:-1])
            own = [[*listed, *self.message_ids.get(row, ())] for listed, row in zip(lists, rows.tolist(), strict=True)]
            needs, counts = np.array(list(chain.from_iterable(own)), np.int64), counts + messages_of
        ts, parent, parent_row = trace.nodes.ts[rows], trace.nodes.parent[rows], trace.nodes.parent_row[rows]
        comms = [self.comms.get(row, b"") for row in rows.tolist()]
        tensors, attributes = describe(trace, kind, rows)
        caller = field_cells(CTRL_DEPS, trace.nodes.id[parent_row], parent_row >= 0)
        start = field_cells(START, np.where(ts >= 0, (ts + 500) // 1000, 0))
        return messages(
            byte_rows([field_cells(ID, trace.nodes.id[rows])]),
            [self.names[code] for code in trace.nodes.name[rows].tolist()],
            byte_rows([field_cells(TYPE, self.type[rows]), caller]),
            dependency_rows(needs, counts),
            byte_rows([start, field_cells(DURATION, self.micros[rows])]),
            *tensors,
            [shared("is_cpu_op", kind != GPU and not comm) for comm in comms],
            [shared(MESSAGES, count) if count else b"" for count in messages_of],
            *attributes,
            byte_rows(self._times(kind, rows)),
            comms,
            byte_rows([numbers(name, values[rows], values[rows] >= 0) for name, values in self.work.items()]),
            [shared("data_dep_kinds", those) if those else b"" for those in edges],
            byte_rows([numbers("call_parent", parent, (parent >= 0) & (parent_row < 0))]),
        )

    def _times(self, kind: int, rows: IntColumn) -> list[Cells]:
        """Return the attributes that contain exact times in ns. Omit the times that equal `duration_ns`."""
        ts, dur, exclusive = self.trace.nodes.ts[rows], self.trace.nodes.dur[rows], self.trace.nodes.exclusive[rows]
        if kind != CPU and np.any(ts < 0):
            ts, dur, exclusive = self._with_wrong_times(rows, ts, dur, exclusive)
        timed, duration = ts >= 0, self.duration[rows]
        return [
            numbers("duration_ns", duration, np.full(len(rows), self.has_times)),
            numbers("start_ns", ts, timed),
            numbers("inclusive_ns", dur, timed & (dur != duration)),
            numbers("exclusive_ns", exclusive, timed & (exclusive != duration) & (kind != RUNTIME)),
        ]

    def _with_wrong_times(self, rows: IntColumn, *times: IntColumn) -> list[IntColumn]:
        """Restore the impossible times that were recorded for events. The trace contains corrected times."""
        wrong = np.flatnonzero(times[0] < 0)
        records = list(self.trace.records(rows[wrong]))
        restored = []
        for column, key in zip(times, ("ts", "dur", "exclusive_dur"), strict=True):
            us = [Decimal(bytes(record.get(key, record.get("dur", b"0"))).decode()) for record in records]
            column = column.copy()
            column[wrong] = decimal_ns(us)
            restored.append(column)
        return restored


def _node_types(trace: Trace, comms: RankComms, memory_nodes: bool) -> IntColumn:
    kind = np.where(trace.nodes.structural, NodeType.Value("METADATA_NODE"), COMP)
    if memory_nodes:
        copies = np.array([category in COPY_CATEGORIES for category in trace.categories], np.bool_)
        to_host = np.array(["DtoH" in name or "Device -> Host" in name for name in trace.names], np.bool_)
        memory = np.where(to_host[trace.nodes.name], NodeType.Value("MEM_STORE_NODE"), NodeType.Value("MEM_LOAD_NODE"))
        kind = np.where(copies[trace.nodes.category] & ~trace.nodes.structural, memory, kind)
    several = shared_rows(comms.found)
    for comm in comms.found:
        kind[comm.row] = COMP if comm.row in several else comm_node_type(comm)
    return kind


def _metadata(trace: Trace) -> GlobalMetadata:
    encode, (header, summary) = msgspec.json.encode, known_sections(dict(trace.header), trace.summary)
    texts = {"header": encode(header), "etplus": summary, "layout": encode("flat" if trace.flat else "attrs")}
    attributes = [AttributeProto(name=name, string_val=text.decode("utf-8", "replace")) for name, text in texts.items()]
    attributes += _header_attributes(trace)
    return GlobalMetadata(version=CHAKRA_VERSION, attr=attributes)


def _header_attributes(trace: Trace) -> Iterator[AttributeProto]:
    """Yield the ET's `schema`, `pid`, `time`, `start_ts` and `finish_ts` in the form that Chakra's converter uses."""
    for name in ("schema", "pid", "time", "start_ts", "finish_ts"):
        with contextlib.suppress(*UNREADABLE):
            value = msgspec.json.decode(trace.header.get(name, b"null"))
            if isinstance(value, str):
                yield AttributeProto(name=name, string_val=value)
            elif type(value) is int and 0 <= value < 2**64:
                yield AttributeProto(name=name, uint64_val=value)


# Each list in `Parts` contains one piece of an encoded message per row (see `messages`).
Parts = list[list[bytes]]
# Maps the position of a row to the ET+ fields that no Chakra attribute can express.
Further = dict[int, Record]

_NUMBERS = tuple(name for name, (kind, _) in ET_ATTRIBUTES.items() if kind != "string")
_SIDES = {"inputs": INPUTS, "outputs": OUTPUTS}
_encode = msgspec.json.Encoder().encode
_further_of = attrgetter(*FURTHER_ATTRIBUTES)


def describe(trace: Trace, kind: int, rows: IntColumn) -> tuple[Parts, Parts]:
    texts = trace.texts.texts(rows)
    records, unusual = read_records(form_of(kind, flat=trace.flat), texts)
    further = {place: dict(fields) for place, fields in unusual.items()}
    event = {name: _numbers(records, name) for name in (*EVENT_NUMBERS, *(["pid"] if kind == GPU else []))}
    if kind == RUNTIME:
        tensors: Parts = []
        attributes = [_of_calls(trace, rows, records)]
    else:
        linked = _of_ops(trace, rows, records) if kind == CPU else _of_gpu(trace, rows, records, further)
        tensors, strides = _flat_tensors(records, further) if trace.flat else _tensors(records)
        attributes = [linked, *_et_attributes(trace, kind, rows, records, texts), *strides]
    further_texts = [
        encoded(attribute("et_fields", _encode(further[place]))) if place in further else b""
        for place in range(len(rows))
    ]
    cells = [numbers(name, values, values != ABSENT) for name, values in event.items()]
    return tensors, [byte_rows(cells), *attributes, further_texts]


def _numbers(records: Sequence[Any], path: str) -> IntColumn:
    return np.fromiter(map(attrgetter(path), records), np.int64, len(records))


def _of_calls(trace: Trace, rows: IntColumn, records: Sequence[Any]) -> list[bytes]:
    threads = trace.nodes.thread[rows].tolist()
    return [
        shared("cat", "runtime") + _text("kineto_tid", call.tid) + shared("tid", thread)
        for call, thread in zip(records, threads, strict=True)
    ]


def _of_ops(trace: Trace, rows: IntColumn, records: Sequence[Any]) -> list[bytes]:
    parts = [b"" if op.link is UNSET else shared("link", op.link) for op in records]
    waits_for = trace.nodes.inter_thread_dep[rows]
    for i in np.flatnonzero(waits_for >= 0).tolist():
        if records[i].inter_thread_dep is not UNSET:
            parts[i] += encoded(attribute("inter_thread_dep", int(waits_for[i])))
    for i, row in enumerate(rows.tolist()):
        if row in trace.sync_dep and records[i].sync_dep is not UNSET:
            parts[i] += encoded(attribute("sync_dep", trace.sync_dep[row]))
    return parts


def _of_gpu(trace: Trace, rows: IntColumn, records: Sequence[Any], further: Further) -> list[bytes]:
    """Return the attributes that GPU events have. If no attribute has the `pg_name` or `tid`, put it into `further`."""
    for i, (row, event) in enumerate(zip(rows.tolist(), records, strict=True)):
        comm = trace.comm.get(row)
        in_comm = comm is not None and event.comm is not UNSET and comm.pg_name == event.pg_name
        if event.pg_name is not UNSET and not in_comm:
            further.setdefault(i, {})["pg_name"] = msgspec.Raw(_encode(event.pg_name))
        if not trace.flat and event.tid != (event.stream if event.pid != ABSENT else ABSENT):
            further.setdefault(i, {})["tid"] = msgspec.Raw(_encode(event.tid))
    categories = trace.nodes.category[rows].tolist()
    parts = [
        shared("cat", trace.categories[category]) + encoded(*_texts_of(event))
        for category, event in zip(categories, records, strict=True)
    ]
    if trace.captured is not None:
        by_row = _of_captures(trace.captured)
        parts = [text + by_row.get(row, b"") for text, row in zip(parts, rows.tolist(), strict=True)]
    return parts


def _of_captures(graphs: CapturedGraphs) -> dict[int, bytes]:
    known: dict[int, bytes] = {}
    for op in distinct(graphs.links.op).tolist():
        known[op] = shared("captured_op", graphs.names[op])
        for name in ("shapes", "types"):
            given = msgspec.json.decode(graphs.texts[op]).get("inputs", {}).get(name)
            known[op] += shared(f"captured_{name}", _encode(given)) if given is not None else b""
    pairs = zip(graphs.links.event.tolist(), graphs.links.op.tolist(), strict=True)
    return {row: known[op] for row, op in pairs}


def _texts_of(event: Any) -> list[AttributeProto]:
    texts = {"args": event.args, "comm": event.comm, "captured_by": event.captured_by, "counterpart": event.counterpart}
    return [attribute(name, bytes(text)) for name, text in texts.items() if text is not UNSET]


def _et_attributes(trace: Trace, kind: int, rows: IntColumn, records: Sequence[Any], texts: Sequence[bytes]) -> Parts:
    """Return the attributes from the ET. A GPU event has the attributes of its operator, if it has an operator."""
    columns = {
        name: trace.nodes.thread[rows] if name == "tid" else getattr(trace.nodes, name)[rows] for name in _NUMBERS
    }
    if kind == GPU:
        columns["tid"] = np.zeros(len(rows), np.int64)
    owners = records if trace.flat else [node.attrs for node in records]
    usual = [owner for owner in owners if owner is not UNSET]
    places = np.flatnonzero([owner is not UNSET for owner in owners])
    suffix = "" if trace.flat else ".value"
    for name in _NUMBERS:
        own = _numbers(usual, name + suffix)
        columns[name][places] = np.where(own == ABSENT, columns[name][places], own)
    none = shared("op_schema", ET_ATTRIBUTES["op_schema"][1])
    schemas = [none] * len(rows)
    for i, schema in zip(places.tolist(), map(attrgetter("op_schema" + suffix), usual), strict=True):
        schemas[i] = shared("op_schema", schema)
    present = np.array([kind == CPU or schema != none for schema in schemas], np.bool_)
    for name in _NUMBERS:
        present |= columns[name] != ET_ATTRIBUTES[name][1]
    return [
        byte_rows([numbers(name, columns[name], present) for name in _NUMBERS]),
        [schema if there else b"" for schema, there in zip(schemas, present.tolist(), strict=True)],
        *([] if trace.flat else [_further_attributes(owners, texts)]),
    ]


def _further_attributes(owners: Sequence[Any], texts: Sequence[bytes]) -> list[bytes]:
    """Encode the additional attributes of each record as a JSON list. All lists use the separator of the first list."""
    lists = [[] if attrs is UNSET or attrs.further_0 is UNSET else _listed(attrs) for attrs in owners]
    first = next((i for i, those in enumerate(lists) if len(those) > 1), -1)
    between = b"" if first < 0 else texts[first].partition(lists[first][0])[2].partition(lists[first][1])[0]
    separator = between if between.strip() == b"," else b","
    return [shared("et_attrs", b"[%b]" % separator.join(those)) if those else b"" for those in lists]


def _listed(attrs: Any) -> list[bytes]:
    return [bytes(text) for text in takewhile(lambda text: text is not UNSET, _further_of(attrs))]


def _tensors(records: Sequence[Any]) -> tuple[Parts, Parts]:
    tensors, strides = [], []
    for name, tag in _SIDES.items():
        sides = [getattr(node, name) for node in records]
        texts = [() if side is UNSET else tuple(map(bytes, (side.values, side.shapes, side.types))) for side in sides]
        tensors.append([io_info(tag, *side) if side else b"" for side in texts])
        strides.append([b"" if side is UNSET else _text(f"{name[:-1]}_strides", side.strides) for side in sides])
    return tensors, strides


def _flat_tensors(records: Sequence[Any], further: Further) -> tuple[Parts, Parts]:
    """Return the encoded inputs and outputs. Put incomplete ones into `further`."""
    tensors = []
    for name, tag in _SIDES.items():
        part = []
        for i, node in enumerate(records):
            texts = {key: text for key in FLAT_TENSORS[name] if (text := getattr(node, key)) is not UNSET}
            complete = len(texts) == len(FLAT_TENSORS[name])
            part.append(io_info(tag, *map(bytes, texts.values())) if complete else b"")
            if texts and not complete:
                further.setdefault(i, {}).update(texts)
        tensors.append(part)
    return tensors, []


def _text(name: str, json: msgspec.Raw | msgspec.UnsetType) -> bytes:
    return b"" if json is UNSET else shared(name, bytes(json))
