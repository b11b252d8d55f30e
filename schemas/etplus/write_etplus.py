"""ET+ documents as the linker makes them: the ET's own bytes, the links' times, the GPU nodes; streamed out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from pickle import PickleBuffer
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import orjson

from ...trace.brief import brief
from ...trace.columns import IntColumn, inverse_positions, scatter
from ...trace.conventions import EDGE_KINDS, UNATTACHED_REASONS
from ...trace.errors import UNREADABLE
from ..execution_trace.arguments import tensor_members
from ..execution_trace.read_et import ExecutionTrace
from ..kineto.read_kineto import EventTable, MemoryTable
from ..text.files import open_output, write_all
from ..text.gc_control import gc_disabled
from ..text.json_text import Part, choice, integers, joined_rows, microseconds, rows, signed
from ..text.parallel import parallel_map, processes
from ..text.secrets import mask

FORMAT_VERSION = "1.1"
"""Version of the ET+ format, `etplus.version` in a file."""

_MOST_BLOCKS, _GPU_NODES, _ROWS = 4, 2048, 8192
"""Blocks of nodes (at most), GPU nodes, and runtime calls or edges that are made at once."""
_WORTH_A_PROCESS = 8
"""Pieces of some megabytes; with fewer, starting a process takes longer than it saves."""
_FEWEST = 16
"""Nodes are made in so many pieces at least, if they are in more blocks than that."""
_SEPARATOR = b",\n    "
_GPU_NODE = (
    b'%b, "attrs": '
    b'[{"name": "rf_id", "type": "uint64", "value": 0}, {"name": "fw_parent", "type": "uint64", "value": 0}, '
    b'{"name": "seq_id", "type": "int64", "value": -1}, {"name": "scope", "type": "uint64", "value": 0}, '
    b'{"name": "tid", "type": "uint64", "value": 0}, {"name": "fw_tid", "type": "uint64", "value": 0}, '
    b'{"name": "op_schema", "type": "string", "value": ""}]'
)
_FLAT_GPU_NODE = b'"rf_id": 0, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 0, "fw_tid": 0, "op_schema": "", %b'
_LINKS = (b'"equivalent"', b'"certain"')
_INDEPENDENT = b', "inter_thread_dep": null, "sync_dep": []'
_END = b"}" + _SEPARATOR
_Pieces = tuple[Sequence[bytes], ...]
"""Texts that, put one after the other, are a node and the separator; one of each sequence for each node."""
_Piece = Callable[[], bytes]
"""What makes a part of the output."""


@dataclass(frozen=True)
class Numbering:
    """Ids of the written nodes.

    Attributes:
        node: int64, id of each ET node (its own unless renumbered).
        gpu: int64, id of each GPU node. runtime: int64, id of each runtime call.
        renumbered: ET nodes have new ids and are written in order of id, each with its GPU nodes after it.
    """

    node: IntColumn
    gpu: IntColumn
    runtime: IntColumn
    renumbered: bool = False

    __repr__ = brief

    @staticmethod
    def of(et: ExecutionTrace, gpu_parent: IntColumn, runtime_count: int, *, renumber: bool) -> Numbering:
        """Number GPU nodes (in order of GPU start) and runtime calls after the largest ET id; or all anew."""
        gpu_count = len(gpu_parent)
        if not renumber:
            first = int(et.id.max()) + 1
            return Numbering(
                et.id,
                np.arange(first, first + gpu_count),
                np.arange(first + gpu_count, first + gpu_count + runtime_count),
            )
        order = np.argsort(et.id, kind="stable")
        rank = inverse_positions(len(et), order)
        children = np.bincount(rank[gpu_parent], minlength=len(et))
        before = np.cumsum(children) - children
        by_parent = np.argsort(rank[gpu_parent], kind="stable")
        gpu = scatter(gpu_count, by_parent, rank[gpu_parent[by_parent]] + 2 + np.arange(gpu_count))
        last = len(et) + gpu_count + 1
        return Numbering(rank + before[rank] + 1, gpu, np.arange(last, last + runtime_count), renumbered=True)


@dataclass(frozen=True)
class EtPlus:
    """An ET+ document in memory; `write` and `chunks` give the file's bytes.

    All per-node arrays have one entry a node of `et`; times are ns.

    Attributes:
        et: the input ET, whose bytes are copied.
        events: the Kineto events that the rows below refer to.
        summary: the root's `etplus` object.
        numbering: ids of all nodes.
        kineto_event: int64, index in `traceEvents`, −1 for a node that is not linked.
        ts, dur, exclusive: int64 ns.
        certain: bool.
        inter_thread_dep: by position of a node, the id of the node on another thread that it waits for.
        sync_dep: by position of a node, the ids of the GPU nodes that it waits for.
        gpu_row: int64, event row of each GPU node, in order of GPU start. gpu_parent: int64, position of its ET node.
        comm: per GPU node that is a communication kernel, its `comm` object, by position in `gpu_row`.
        unattached_row: int64, event row of each GPU event without a node, in order of GPU start, without those outside
            the ET's window. unattached_reason: int8, index into UNATTACHED_REASONS.
        runtime_row: int64, event row of each runtime call. runtime_parent: int64, position of its ET node or −1.
        edges: int64 (m, 3): source id, target id, index into EDGE_KINDS; sorted, no duplicates.
        memory: allocations and frees, in order of time. memory_parent: int64, position of each one's ET node or −1.
        captured_graphs: value of the root's member of that name, b"" for none.
        gpu_ends, unattached_ends: by position in `gpu_row` and `unattached_row`, further members of a record's text,
            each with a comma before it.
    """

    et: ExecutionTrace
    events: EventTable
    summary: dict[str, Any]
    numbering: Numbering
    kineto_event: IntColumn
    ts: IntColumn
    dur: IntColumn
    exclusive: IntColumn
    certain: npt.NDArray[np.bool_]
    inter_thread_dep: dict[int, int]
    sync_dep: dict[int, list[int]]
    gpu_row: IntColumn
    gpu_parent: IntColumn
    comm: dict[int, dict[str, Any]]
    unattached_row: IntColumn
    unattached_reason: npt.NDArray[np.int8]
    runtime_row: IntColumn
    runtime_parent: IntColumn
    edges: IntColumn
    memory: MemoryTable
    memory_parent: IntColumn
    captured_graphs: bytes = b""
    gpu_ends: dict[int, bytes] = field(default_factory=dict)
    unattached_ends: dict[int, bytes] = field(default_factory=dict)

    __repr__ = brief

    @gc_disabled()
    def write(self, path: str | os.PathLike[str], *, jobs: int = 1) -> None:
        """Write the file atomically, gzipped if its name ends in ".gz"; the same document gives the same bytes.

        Args:
            jobs: processes to make the text with; the bytes are the same for any number.

        Raises:
            UsageError: the folder does not exist or cannot be written to.
        """
        pieces = self._pieces()
        with (
            open_output(path) as file,
            processes(jobs),
            parallel_map(
                lambda i: PickleBuffer(pieces[i]()), len(pieces), most=len(pieces) // _WORTH_A_PROCESS
            ) as texts,
        ):
            write_all(file, texts)

    def chunks(self) -> Iterator[bytes]:
        """The file's bytes, a few megabytes at a time."""
        for piece in self._pieces():
            yield piece()

    def node_texts(self, nodes: IntColumn) -> list[bytes]:
        """The records of some ET nodes (positions, ascending) as the file has them."""
        texts = self.et.texts.of(nodes)
        if self.numbering.renumbered:
            ids = dict(zip(self.et.id.tolist(), self.numbering.node.tolist(), strict=True))
            texts = [_renumber(text, ids) for text in texts]
        own = [text.rstrip()[:-1].rstrip() for text in texts]
        return _records((own, self._added(nodes)))

    def gpu_texts(self, gpu: IntColumn) -> list[bytes]:
        """The records of some GPU nodes (positions in `gpu_row`, ascending)."""
        return _records(self._gpu_pieces(gpu))

    def runtime_texts(self, calls: IntColumn) -> list[bytes]:
        """The records of some runtime calls (positions in `runtime_row`, ascending)."""
        return _records(self._runtime_pieces(calls))

    def _pieces(self) -> list[_Piece]:
        """What makes the file's bytes, in their order; each piece by itself."""
        count = self.et.texts.block_count
        blocks = _spans(count, min(max(count // _FEWEST, 1), _MOST_BLOCKS))
        nodes: list[_Piece] = [partial(self._nodes, *span) for span in blocks]
        nodes += [partial(self._gpu_nodes, *span) for span in _spans(len(self.gpu_row), _GPU_NODES)]
        return [
            lambda: mask(self.et.before)[0] + b"\n    ",
            *_separated([self._renumbered] if self.numbering.renumbered else nodes),
            lambda: b"\n  " + mask(self.et.after)[0].rstrip()[:-1] + b',\n  "runtime": [',
            *_separated([partial(self._runtime_text, *span) for span in _spans(len(self.runtime_row), _ROWS)]),
            lambda: b"]" + b',\n  "edges": [',
            *_separated([partial(_edge_text, self.edges[slice(*span)]) for span in _spans(len(self.edges), _ROWS)]),
            lambda: b"]" + b',\n  "unattached": [',
            *self._unattached_pieces(),
            *([lambda: b"]" + b',\n  "memory": [', *self._memory_pieces()] if len(self.memory) else []),
            lambda: b"]" + (b',\n  "captured_graphs": ' + self.captured_graphs if self.captured_graphs else b""),
            lambda: b',\n  "etplus": ' + orjson.dumps(self.summary) + b"\n}\n",
        ]

    def _nodes(self, begin: int, end: int) -> bytes:
        """The nodes of some blocks."""
        texts = self.et.texts
        cuts = [texts.cut(block) for block in range(begin, end)]
        opener = cuts[0][0]
        if any(other != opener for other, _ in cuts):  # one was parsed
            return b"".join(self._nodes(block, block + 1) for block in range(begin, end))
        added = self._added(np.arange(texts.first[begin], texts.first[end]), _END + opener)
        added[-1] = added[-1].removesuffix(opener)
        return opener + _joined((list(chain.from_iterable(pieces for _, pieces in cuts)), added))

    def _gpu_nodes(self, begin: int, end: int) -> bytes:
        return _joined(self._gpu_pieces(np.arange(begin, end)))

    def _renumbered(self) -> bytes:
        ids = dict(zip(self.et.id.tolist(), self.numbering.node.tolist(), strict=True))
        nodes = np.arange(len(self.et))
        own = [_renumber(text, ids)[:-1] for text in self.et.texts.of(nodes)]
        pieces = (own, self._added(nodes)), self._gpu_pieces(np.arange(len(self.gpu_row)))
        texts = [b"".join(text) for made in pieces for text in zip(*made, strict=True)]
        return b"".join([texts[i] for i in np.argsort(np.concatenate([self.numbering.node, self.numbering.gpu]))])

    def _added(self, nodes: IntColumn, end: bytes = _END) -> list[bytes]:
        """What follows on what the ET says of each of some nodes."""
        linked = self.kineto_event[nodes] >= 0
        dur = microseconds(self.dur[nodes])
        parts: list[Part] = [
            b', "ts": ', microseconds(self.ts[nodes]), b', "dur": ', dur, b', "inclusive_dur": ', dur,
            b', "exclusive_dur": ', microseconds(self.exclusive[nodes]), b', "kineto_event": ',
            integers(np.maximum(self.kineto_event[nodes], 0)), b', "link": ',
            choice(self.certain[nodes].astype(np.int64), _LINKS), _INDEPENDENT + end,
        ]  # fmt: skip
        added = rows(len(nodes), parts)
        for i in np.flatnonzero(~linked).tolist():
            added[i] = end
        for i in np.flatnonzero(np.isin(nodes, self._dependent)).tolist():
            added[i] = added[i].removesuffix(_INDEPENDENT + end) + self._dependencies(int(nodes[i])) + end
        return added

    @cached_property
    def _dependent(self) -> IntColumn:
        """Linked nodes that wait for something."""
        nodes = np.array(sorted(self.inter_thread_dep.keys() | self.sync_dep.keys()), np.int64)
        return nodes[self.kineto_event[nodes] >= 0]

    def _dependencies(self, node: int) -> bytes:
        before = self.inter_thread_dep.get(node)
        released = self.sync_dep.get(node, [])
        return b', "inter_thread_dep": %b, "sync_dep": %b' % (orjson.dumps(before), orjson.dumps(released))

    def _gpu_pieces(self, gpu: IntColumn) -> _Pieces:
        events, at, parents = self.events, self.gpu_row[gpu], self.gpu_parent[gpu]
        caller = b', "parent": ' if self.et.flat else b', "ctrl_deps": '
        return (
            rows(len(at), [b'{"id": ', integers(self.numbering.gpu[gpu]), b', "name": ']),
            _texts_of(events.names, events.name[at]),
            rows(len(at), [caller, integers(self.numbering.node[parents]), b", "]),
            self._parents_tensors(parents),
            rows(len(at), self._gpu_times(at, [])),
            events.args_of(at),
            self._ends(gpu),
        )

    def unattached_text(self) -> bytes:
        """The elements of the root's `unattached`."""
        return b"".join(piece() for piece in self._unattached_pieces())

    def _unattached_pieces(self) -> list[_Piece]:
        return _separated([partial(self._unattached, *span) for span in _spans(len(self.unattached_row), _GPU_NODES)])

    def _unattached(self, begin: int, end: int) -> bytes:
        events, at = self.events, self.unattached_row[begin:end]
        reasons = [b', "reason": ' + orjson.dumps(reason) for reason in UNATTACHED_REASONS]
        reason: Part = choice(self.unattached_reason[begin:end].astype(np.int64), reasons)
        names = _texts_of(events.names, events.name[at], b'{"name": ')
        ends = [self.unattached_ends.get(i, b"") + _END for i in range(begin, end)]
        return _joined((names, rows(len(at), self._gpu_times(at, [reason])), events.args_of(at), ends))

    def memory_text(self) -> bytes:
        """The elements of the root's `memory`."""
        return b"".join(piece() for piece in self._memory_pieces())

    def _memory_pieces(self) -> list[_Piece]:
        return _separated([partial(self._memory, *span) for span in _spans(len(self.memory), _ROWS)])

    def _memory(self, begin: int, end: int) -> bytes:
        memory, of = self.memory, slice(begin, end)
        parents = np.where(self.memory_parent[of] >= 0, self.numbering.node[self.memory_parent[of]], -1)
        numbers = (memory.address, memory.allocated, memory.reserved, memory.device_type, memory.device)
        parts: list[Part] = [b"[", microseconds(memory.ts[of]), b", ", signed(memory.bytes[of])]
        parts += [part for column in numbers for part in (b", ", signed(column[of]))]
        parts += [b", ", integers(parents, b"null"), b", ", integers(memory.index[of]), b"]", _SEPARATOR]
        return joined_rows(end - begin, parts)

    def _gpu_times(self, at: IntColumn, more: list[Part]) -> list[Part]:
        """The fields of GPU events from `cat` to `args`, whose value comes next."""
        events, dur = self.events, microseconds(np.maximum(self.events.dur[at], 0))
        categories = [orjson.dumps(category) for category in events.categories]
        return [
            b', "cat": ', choice(events.category[at], categories), b', "ph": "X", "ts": ', microseconds(events.ts[at]),
            b', "dur": ', dur, b', "inclusive_dur": ', dur, b', "exclusive_dur": ', dur,
            b', "stream": ', integers(events.stream[at]), b', "device": ', integers(events.device[at]),
            b', "correlation": ', integers(events.correlation[at]), b', "kineto_event": ', integers(events.index[at]),
            *more, b', "args": ',
        ]  # fmt: skip

    def _parents_tensors(self, parents: IntColumn) -> list[bytes]:
        known, back = np.unique(parents, return_inverse=True)
        form = _FLAT_GPU_NODE if self.et.flat else _GPU_NODE
        texts = [form % tensor_members(text, flat=self.et.flat) for text in self.et.texts.of(known)]
        return [texts[i] for i in back.tolist()]

    def _ends(self, gpu: IntColumn) -> list[bytes]:
        """What ends each of some GPU nodes: its `comm` if it has one, and further members."""
        ends = [self.gpu_ends.get(k, b"") + _END for k in gpu.tolist()] if self.gpu_ends else [_END] * len(gpu)
        for k in np.flatnonzero(np.isin(gpu, self._communicating)).tolist():
            comm = self.comm[int(gpu[k])]
            ends[k] = b', "comm": %b, "pg_name": %b' % (orjson.dumps(comm), orjson.dumps(comm["pg_name"])) + ends[k]
        return ends

    @cached_property
    def _communicating(self) -> IntColumn:
        return np.array(sorted(self.comm), np.int64)

    def _runtime_text(self, begin: int, end: int) -> bytes:
        return _joined(self._runtime_pieces(np.arange(begin, end)))

    def _runtime_pieces(self, calls: IntColumn) -> _Pieces:
        events, at, callers = self.events, self.runtime_row[calls], self.runtime_parent[calls]
        parents = np.where(callers >= 0, self.numbering.node[callers], -1)
        threads = [msgspec.json.encode(tid) for _, tid in events.threads]
        parts: list[Part] = [
            b', "ts": ', microseconds(events.ts[at]), b', "dur": ', microseconds(np.maximum(events.dur[at], 0)),
            b', "tid": ', choice(events.thread[at], threads), b', "correlation": ', integers(events.correlation[at]),
            b', "kineto_event": ', integers(events.index[at]), b', "id": ', integers(self.numbering.runtime[calls]),
            b', "parent": ', integers(parents, b"null"), _END,
        ]  # fmt: skip
        return _texts_of(events.names, events.name[at], b'{"name": '), rows(len(at), parts)


def _records(pieces: _Pieces) -> list[bytes]:
    """Each record by itself, without the separator."""
    return [b"".join(parts).removesuffix(_SEPARATOR) for parts in zip(*pieces, strict=True)]


def _joined(pieces: _Pieces) -> bytes:
    return b"".join(chain.from_iterable(zip(*pieces, strict=True)))


def _spans(count: int, size: int) -> list[tuple[int, int]]:
    return [(at, min(at + size, count)) for at in range(0, count, size)]


def _separated(pieces: list[_Piece]) -> list[_Piece]:
    """The same pieces, each ending with the separator, but the last."""
    return [*pieces[:-1], *(partial(_without_separator, last) for last in pieces[-1:])]


def _without_separator(make: _Piece) -> bytes:
    return make().removesuffix(_SEPARATOR)


def _texts_of(values: list[Any], codes: npt.NDArray[np.int32], before: bytes = b"") -> list[bytes]:
    """JSON texts of interned values, each made once."""
    texts = {code: before + orjson.dumps(values[code]) for code in np.flatnonzero(np.bincount(codes)).tolist()}
    return [texts[code] for code in codes.tolist()]


def _edge_text(edges: IntColumn) -> bytes:
    source, target, kind = edges.T
    kinds = [f'"{name}"'.encode() for name in EDGE_KINDS]
    parts: list[Part] = [b"[", integers(source), b", ", integers(target), b", ", choice(kind, kinds), b"]", _SEPARATOR]
    return joined_rows(len(edges), parts)


def _renumber(text: bytes, ids: dict[int, int]) -> bytes:
    """A node's text with its own id and those it refers to replaced, and the old id kept as `et_id`."""
    node = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    old = node["id"]
    for key in ("id", "parent", "ctrl_deps", "fw_parent"):
        if key in node:
            node[key] = _new_id(node[key], ids)
    if "attrs" in node:
        node["attrs"] = _renumbered_attrs(node["attrs"], ids)
    return msgspec.json.encode({**node, "et_id": old})


def _renumbered_attrs(raw: msgspec.Raw, ids: dict[int, int]) -> msgspec.Raw:
    """A node's attributes with the id of its forward operator replaced; anything but a list of attributes is kept."""
    try:
        attrs = msgspec.json.decode(raw, type=list[dict[str, msgspec.Raw]])
    except UNREADABLE:
        return raw
    for attr in attrs:
        if "value" in attr and bytes(attr.get("name", b"")) == b'"fw_parent"':
            attr["value"] = _new_id(attr["value"], ids)
    return msgspec.Raw(msgspec.json.encode(attrs))


def _new_id(raw: msgspec.Raw, ids: dict[int, int]) -> msgspec.Raw:
    """The new id in place of an old one; 0, which no node has, for a node that is not in the file. Text, null and the
    like name no node and stay."""
    try:
        return msgspec.Raw(b"%d" % ids.get(msgspec.json.decode(raw, type=int), 0))
    except UNREADABLE:
        return raw
