"""Write linked traces as ET+ files. The JSON of the ET's nodes is copied; columns and GPU nodes are added."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import orjson

from ...trace.brief import brief
from ...trace.captured import CapturedGraphs
from ...trace.columns import IntColumn, StringTable, distinct_rows, scatter
from ...trace.comm_kernels import Comm
from ...trace.conventions import EDGE_KINDS, GPU_ANNOTATION_CATEGORY, PYTHON_CATEGORY, UNATTACHED_REASONS
from ...trace.counterparts import Counterparts
from ...trace.kinds import CERTAIN, CPU, GPU, RUNTIME, UNVERIFIED
from ...trace.node_texts import LazyTexts, Record
from ...trace.trace import Trace
from ..execution_trace.arguments import launched_members
from ..execution_trace.read_et import NodeTexts
from ..kineto.read_kineto import EventRecords
from ..known_fields import known_args
from ..text.files import open_output, write_all
from ..text.gc_control import gc_disabled
from ..text.json_text import Part, choice, integers, joined_rows, microseconds, signed
from ..text.json_text import rows as texts_of_rows
from ..text.parallel import parallel_map, processes
from .captured_graphs import CAPTURED_VERSION, captured_by_texts, edited_file, section_of
from .record_store import (
    EVENT_NUMBERS,
    NODE_KEYS,
    RUNTIME_KEYS,
    TIMES,
    FileRecords,
    Key,
    RowSource,
    TextRecords,
    renumbered_node,
)
from .sections import counterpart_texts, generated_section, stacks_section

FORMAT_VERSION = "1.1"  # the `etplus.version` of files without captured graphs

_NODES, _GPU_NODES, _ROWS = 4096, 2048, 8192  # number of ET nodes, GPU nodes or other rows per piece (a few MB)
_WORTH_A_PROCESS = 8  # A process gets at least this many pieces; for fewer, starting one would waste time.
_SEPARATOR = b",\n    "
_LINKS = (b'"unverified"', b'"certain"')
_DOUBTFUL = b', "link": "unverified"'
_DEPENDENT = b', "inter_thread_dep": %b, "sync_dep": %b'
_INDEPENDENT = _DEPENDENT % (b"null", b"[]")
_END = b"}" + _SEPARATOR
# Each sequence has one string per node. Joining a node's strings gives its JSON, followed by the separator.
_Pieces = tuple[Sequence[bytes], ...]
_Piece = Callable[[], bytes]  # a function that returns one part of the output


_encode = msgspec.json.encode


@dataclass(frozen=True)
class LinkedRecords(TextRecords):
    """The undecoded records of a linked trace. The ET+ file is generated from these records and the columns."""

    rows: RowSource
    summary: dict[str, Any]  # the `etplus` object in the root of the file
    comm: dict[int, Comm]
    nodes: NodeTexts  # the JSON of the ET's nodes; it is copied
    before: bytes  # JSON before the ET's nodes, reduced to known keys
    after: bytes  # JSON after the ET's nodes, reduced to known keys
    et_id: IntColumn | None  # original ids of `nodes`; None if the nodes were not renumbered
    events: EventRecords
    captured: CapturedGraphs | None = None
    counterparts: Counterparts = field(default_factory=Counterparts)
    whole_us: bool = False  # True if the Kineto trace has times in whole µs

    __repr__ = brief

    @gc_disabled()
    def write(self, path: str | os.PathLike[str], *, jobs: int = 1) -> None:
        pieces = self._pieces()
        with (
            open_output(path) as file,
            processes(jobs),
            parallel_map(lambda i: pieces[i](), len(pieces), most=len(pieces) // _WORTH_A_PROCESS) as texts,
        ):
            write_all(file, texts)

    def chunks(self) -> Iterator[bytes]:
        for piece in self._pieces():
            yield piece()

    def texts(self, rows: IntColumn) -> list[bytes]:
        kind, result = self.rows.kind[rows], np.empty(len(rows), object)
        for value, make in ((CPU, self._node_pieces), (GPU, self._gpu_pieces), (RUNTIME, self._runtime_pieces)):
            at = np.flatnonzero(kind == value)
            if len(at):
                wanted, back = np.unique(rows[at], return_inverse=True)
                records = (b"".join(parts).removesuffix(_SEPARATOR) for parts in zip(*make(wanted), strict=True))
                made = np.array([*records, None], object)[:-1]
                result[at] = made[back]
        return result.tolist()

    def tensor_texts(self, rows: IntColumn) -> tuple[IntColumn, Sequence[bytes]]:
        wanted, which = distinct_rows(self.rows.node_of(rows))
        return which, LazyTexts(self.nodes.tensors_of, wanted[:, 0])

    def other_events(self) -> Iterator[tuple[int, bytes]]:
        return self.events.others(frozenset({PYTHON_CATEGORY, GPU_ANNOTATION_CATEGORY}))

    @cached_property
    def header(self) -> Record:
        header = msgspec.json.decode(self.before + self.after, type=Record)
        sections = {"unattached": self._unattached_pieces()}
        sections |= {"memory": self._memory_pieces()} if len(self.rows.memory) else {}
        found = {key: value for key, value in header.items() if key != "nodes"}
        found |= {key: msgspec.Raw(b"[%b]" % b"".join(make() for make in made)) for key, made in sections.items()}
        found |= {"stacks": msgspec.Raw(self._stacks())} if len(self.rows.stacks) else {}
        found |= {"generated_kernels": msgspec.Raw(self._generated())} if len(self.rows.generated) else {}
        captured = self.captured
        return found if captured is None else found | {"captured_graphs": msgspec.Raw(section_of(captured))}

    def _of_kind(self, kind: int) -> IntColumn:
        return np.flatnonzero(self.rows.kind == kind)

    def _pieces(self) -> list[_Piece]:
        trace, captured = self.rows, self.captured
        nodes: list[_Piece] = [
            partial(_joined_of, self._node_pieces, part) for part in _parts(self._of_kind(CPU), _NODES)
        ]
        nodes += [partial(_joined_of, self._gpu_pieces, part) for part in _parts(self._of_kind(GPU), _GPU_NODES)]
        runtime = _parts(self._of_kind(RUNTIME), _ROWS)
        calls: list[_Piece] = [partial(_joined_of, self._runtime_pieces, part) for part in runtime]
        edges: list[_Piece] = [partial(_edge_text, part) for part in _parts(trace.edges, _ROWS)]
        return [
            lambda: self.before + b"\n    ",
            *_separated(nodes if self.et_id is None else [self._renumbered]),
            lambda: b"\n  " + self.after.rstrip()[:-1] + b',\n  "runtime": [',
            *_separated(calls),
            lambda: b"]" + b',\n  "edges": [',
            *_separated(edges),
            lambda: b"]" + b',\n  "unattached": [',
            *self._unattached_pieces(),
            *([lambda: b"]" + b',\n  "memory": [', *self._memory_pieces()] if len(trace.memory) else []),
            lambda: b"]" + (b',\n  "stacks": ' + self._stacks() if len(trace.stacks) else b""),
            lambda: b',\n  "generated_kernels": ' + self._generated() if len(trace.generated) else b"",
            lambda: b"" if captured is None else b',\n  "captured_graphs": ' + section_of(captured),
            lambda: b',\n  "etplus": ' + orjson.dumps(self.summary) + b"\n}\n",
        ]

    def _renumbered(self) -> bytes:
        texts = np.empty(len(self.rows.kind), object)
        for kind, make in ((CPU, self._node_pieces), (GPU, self._gpu_pieces)):
            rows = self._of_kind(kind)
            texts[rows] = np.array([*map(b"".join, zip(*make(rows), strict=True)), None], object)[:-1]
        return b"".join(texts[self.rows.kind != RUNTIME].tolist())

    def _node_pieces(self, rows: IntColumn) -> _Pieces:
        texts = self.nodes.of(self.rows.node_of(rows))
        if self._new_ids is not None:
            texts = [renumbered_node(text, self._new_ids) for text in texts]
        return [text.rstrip()[:-1].rstrip() for text in texts], self._added(rows)

    @cached_property
    def _new_ids(self) -> dict[int, int] | None:
        if self.et_id is None:
            return None
        rows = self._of_kind(CPU)
        ids = self.rows.column("id", rows)
        return dict(zip(self.et_id[self.rows.node_of(rows)].tolist(), ids.tolist(), strict=True))

    def _added(self, rows: IntColumn, end: bytes = _END) -> list[bytes]:
        columns = self._columns(NODE_KEYS, rows)
        unlinked = columns["kineto_event"] < 0
        columns |= {key: np.maximum(columns[key], 0) for key in ("ts", "kineto_event")}
        columns["link"] = (columns["link"] == CERTAIN).astype(np.int64)
        added = texts_of_rows(
            len(rows), [*_fields(NODE_KEYS, columns, self._times, {"link": _LINKS}), _INDEPENDENT + end]
        )
        for i in np.flatnonzero(unlinked).tolist():
            added[i] = end
        before = self.rows.column("inter_thread_dep", rows)
        for i in np.flatnonzero((before >= 0) | np.isin(rows, self._waiting)).tolist():
            other = orjson.dumps(int(before[i]) if before[i] >= 0 else None)
            waits = other, orjson.dumps(self.rows.sync_dep.get(int(rows[i]), []))
            added[i] = added[i].removesuffix(_INDEPENDENT + end) + _DEPENDENT % waits + end
        return added

    def _times(self, ns: IntColumn) -> Part:
        if not self.whole_us:
            return microseconds(ns)
        return integers(ns // 1000) if ns.min(initial=0) >= 0 else signed(ns // 1000)

    def _columns(self, keys: Sequence[Key], rows: IntColumn) -> dict[str, npt.NDArray[Any]]:
        return {column: self.rows.column(column, rows) for column in dict.fromkeys(key.column for key in keys)}

    @cached_property
    def _waiting(self) -> IntColumn:
        return np.array(sorted(self.rows.sync_dep), np.int64)

    def _gpu_pieces(self, gpu: IntColumn) -> _Pieces:
        trace, columns = self.rows, self._columns((*TIMES, *EVENT_NUMBERS), gpu)
        id_, parent, name, category = (trace.column(key, gpu) for key in ("id", "parent", "name", "category"))
        caller = b', "parent": ' if trace.flat else b', "ctrl_deps": '
        # Kineto and the original trace_link.py also write `pid` and `tid`.
        process: list[Part] = [b', "pid": ', integers(columns["device"]), b', "tid": ', integers(columns["stream"])]
        return (
            texts_of_rows(len(gpu), [b'{"id": ', integers(id_), b', "name": ']),
            _texts_of(trace.names, name),
            texts_of_rows(len(gpu), [caller, integers(parent), b", "]),
            self._launched_members(trace.node_of(gpu)),
            texts_of_rows(len(gpu), self._event_fields(category, columns, process)),
            known_args(self.events.args(columns["kineto_event"])),
            self._ends(gpu),
        )

    def _unattached_pieces(self) -> list[_Piece]:
        return _separated([partial(self._unattached, *span) for span in _spans(len(self.rows.unattached), _GPU_NODES)])

    def _unattached(self, begin: int, end: int) -> bytes:
        events, index = self.rows.unattached_events(begin, end), self.rows.unattached[begin:end]
        reasons = [b', "reason": ' + orjson.dumps(reason) for reason in UNATTACHED_REASONS]
        reason: Part = choice(events.reason.astype(np.int64), reasons)
        columns = {key: getattr(events, key) for key in ("ts", "dur", "stream", "device", "correlation")}
        columns |= {"exclusive": columns["dur"], "kineto_event": index}
        category = StringTable(self.rows.categories).codes(events.categories)
        names = [b'{"name": ' + orjson.dumps(name) for name in events.names]
        fields = self._event_fields(category, columns, [reason])
        captured, counterpart = self._captured_by[1], self._counterpart[1]
        ends = [counterpart.get(i, b"") + captured.get(i, b"") + _END for i in range(begin, end)]
        return _joined((names, texts_of_rows(len(index), fields), known_args(events.args), ends))

    @cached_property
    def _captured_by(self) -> tuple[dict[int, bytes], dict[int, bytes]]:
        captured = self.captured
        if captured is None:
            return {}, {}
        return captured_by_texts(captured.links), captured_by_texts(captured.unattached)

    @cached_property
    def _counterpart(self) -> tuple[dict[int, bytes], dict[int, bytes]]:
        parts = self.counterparts.links, self.counterparts.unattached
        own, others = (counterpart_texts(of, self.rows.column("id", of.row).tolist()) for of in parts)
        return own, others

    def _memory_pieces(self) -> list[_Piece]:
        return _separated([partial(self._memory, *span) for span in _spans(len(self.rows.memory), _ROWS)])

    def _memory(self, begin: int, end: int) -> bytes:
        memory, of = self.rows.memory, slice(begin, end)
        has = np.flatnonzero(memory.row[of] >= 0)
        parents = scatter(end - begin, has, self.rows.column("id", memory.row[of][has]))
        numbers = (memory.address, memory.allocated, memory.reserved, memory.device_type, memory.device)
        parts: list[Part] = [b"[", self._times(memory.ts[of]), b", ", signed(memory.bytes[of])]
        parts += [part for column in numbers for part in (b", ", signed(column[of]))]
        parts += [b", ", integers(parents, b"null"), b", ", integers(memory.kineto_event[of]), b"]", _SEPARATOR]
        return joined_rows(end - begin, parts)

    def _stacks(self) -> bytes:
        stacks = self.rows.stacks
        return stacks_section(stacks, self.rows.column("id", stacks.row))

    def _generated(self) -> bytes:
        generated = self.rows.generated
        return generated_section(generated, self.rows.column("id", generated.row))

    def _event_fields(
        self, category: npt.NDArray[np.int32], columns: Mapping[str, npt.NDArray[Any]], more: list[Part]
    ) -> list[Part]:
        texts = list(map(orjson.dumps, self.rows.categories))
        times, numbers = (_fields(keys, columns, self._times) for keys in (TIMES, EVENT_NUMBERS))
        return [b', "cat": ', choice(category, texts), b', "ph": "X"', *times, *numbers, *more, b', "args": ']

    def _launched_members(self, parents: IntColumn) -> list[bytes]:
        known, back = np.unique(parents, return_inverse=True)
        texts = self.nodes.of(known)
        if self._new_ids is not None:
            texts = [renumbered_node(text, self._new_ids) for text in texts]
        texts = [launched_members(text, flat=self.rows.flat) for text in texts]
        return [texts[i] for i in back.tolist()]

    def _ends(self, gpu: IntColumn) -> list[bytes]:
        captured, counterpart = self._captured_by[0], self._counterpart[0]
        ends = [_END] * len(gpu)
        if captured or counterpart:
            ends = [counterpart.get(row, b"") + captured.get(row, b"") + _END for row in gpu.tolist()]
        for k in np.flatnonzero(self.rows.column("link", gpu) == UNVERIFIED).tolist():
            ends[k] = _DOUBTFUL + ends[k]
        for k in np.flatnonzero(np.isin(gpu, self._communicating)).tolist():
            comm = self.comm[int(gpu[k])].members()
            if self.captured is None:  # In version 1.1 of the format, `bytes` is the last key of `comm`.
                comm["bytes"] = comm.pop("bytes")
            ends[k] = b', "comm": %b, "pg_name": %b' % (_encode(comm), _encode(comm["pg_name"])) + ends[k]
        return ends

    @cached_property
    def _communicating(self) -> IntColumn:
        return np.array(sorted(self.comm), np.int64)

    def _runtime_pieces(self, calls: IntColumn) -> _Pieces:
        trace = self.rows
        parts = [*_fields(RUNTIME_KEYS, self._columns(RUNTIME_KEYS, calls), self._times, {"tid": trace.tids}), _END]
        return _texts_of(trace.names, trace.column("name", calls), b'{"name": '), texts_of_rows(len(calls), parts)


def summary_as_read(summary: Mapping[str, Any]) -> dict[str, Any]:
    read: dict[str, Any] = orjson.loads(orjson.dumps(summary))
    return read


def with_captured(trace: Trace, captured: CapturedGraphs) -> Trace:
    """Add captured graphs to a trace and its file. The trace must already have its final `comm` and `names`."""
    records = trace.texts
    if isinstance(records, LinkedRecords):
        summary = {**trace.summary, "version": CAPTURED_VERSION}
        records = replace(records, summary=summary, comm=trace.comm, captured=captured)
        return trace.with_(texts=records, header=records.header, captured=captured, summary=summary)
    if not isinstance(records, FileRecords):  # The trace was read from a Chakra file.
        from .read_etplus import read_etplus  # This import comes late because only the linker needs it.

        records = read_etplus(b"".join(records.chunks())).texts
        assert isinstance(records, FileRecords)
    return edited_file(trace, records, captured)


def with_counterparts(trace: Trace, counterparts: Counterparts, summary: dict[str, Any]) -> Trace:
    """Add counterparts to a newly linked trace and its file, and replace the summary."""
    records, summary = trace.texts, summary_as_read(summary)
    assert isinstance(records, LinkedRecords)
    records = replace(records, summary=summary, counterparts=counterparts)
    return trace.with_(texts=records, header=records.header, summary=summary, counterparts=counterparts)


def _fields(
    keys: Sequence[Key],
    columns: Mapping[str, npt.NDArray[Any]],
    times: Callable[[IntColumn], Part],
    texts: Mapping[str, Sequence[bytes]] | None = None,
) -> list[Part]:
    parts: list[Part] = []
    for key in keys:
        values, known = columns[key.column], (texts or {}).get(key.column)
        none = b"null" if key.name == "parent" else b"-1"
        parts.append(b', "%b": ' % key.name.encode())
        if known is not None:
            parts.append(choice(values, known))
        else:
            parts.append(times(values) if key.is_time else integers(values, none))
    return parts


def _joined(pieces: _Pieces) -> bytes:
    return b"".join(chain.from_iterable(zip(*pieces, strict=True)))


def _joined_of(make: Callable[[IntColumn], _Pieces], rows: IntColumn) -> bytes:
    return _joined(make(rows))


def _spans(count: int, size: int) -> list[tuple[int, int]]:
    return [(at, min(at + size, count)) for at in range(0, count, size)]


def _parts(rows: IntColumn, size: int) -> list[IntColumn]:
    return [rows[begin:end] for begin, end in _spans(len(rows), size)]


def _separated(pieces: list[_Piece]) -> list[_Piece]:
    return [*pieces[:-1], lambda: pieces[-1]().removesuffix(_SEPARATOR)] if pieces else []


def _texts_of(values: list[Any], codes: npt.NDArray[np.int32], before: bytes = b"") -> list[bytes]:
    texts = {code: before + orjson.dumps(values[code]) for code in np.flatnonzero(np.bincount(codes)).tolist()}
    return [texts[code] for code in codes.tolist()]


def _edge_text(edges: IntColumn) -> bytes:
    source, target, kind = edges.T
    kinds = [f'"{name}"'.encode() for name in EDGE_KINDS]
    parts: list[Part] = [b"[", integers(source), b", ", integers(target), b", ", choice(kind, kinds), b"]", _SEPARATOR]
    return joined_rows(len(edges), parts)
