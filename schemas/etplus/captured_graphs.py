"""Read and write captured CUDA graphs in ET+ files: the root key `captured_graphs`, and `captured_by` in GPU events."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from ...trace.captured import CALL_KINDS, CallKind, CapturedGraph, CapturedGraphs, CaptureLinks, GraphReplay
from ...trace.columns import IntColumn
from ...trace.comm_kernels import Comm
from ...trace.errors import TraceFormatError
from ...trace.kinds import LINK_NAMES
from ...trace.trace import Trace
from ..execution_trace.arguments import ABSENT, WholeSides, decode_whole_sides
from .record_store import FileRecords, decode_record, offset_in
from .sections import decode_section

CAPTURED_VERSION = "1.2"  # Files with captured graphs have this `etplus.version`; readers of 1.1 ignore the graphs.
_KEY = "captured_graphs"
_REMEDY = "create the file again with trace-link"

Position = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class CapturedBy(msgspec.Struct, gc=False, frozen=True):
    """The `captured_by` member of a GPU event. `op` and `replay` are indices into the lists in `captured_graphs`."""

    op: Position
    link: Literal["certain", "unverified"]
    replay: Position


class _Call(msgspec.Struct, gc=False, omit_defaults=True):
    name: str
    kind: CallKind
    parent: Position | None
    graph: Position | None
    inputs: msgspec.Raw = ABSENT
    outputs: msgspec.Raw = ABSENT
    comm: Comm | None = None


class _Section(msgspec.Struct, gc=False):
    graphs: list[CapturedGraph]
    replays: list[GraphReplay]
    ops: list[_Call]
    notes: list[str]


class _Event(msgspec.Struct, gc=False):
    ts: Any = 0
    captured_by: CapturedBy | None = None


_encode = msgspec.json.encode
_decode_captured = msgspec.json.Decoder(_Section).decode
_decode_events = msgspec.json.Decoder(list[_Event]).decode


def section_of(captured: CapturedGraphs) -> bytes:
    above, graphs = ([None if at < 0 else at for at in of.tolist()] for of in (captured.parent, captured.graph))
    sides = map(decode_whole_sides, captured.texts)
    columns = zip(captured.names, captured.kind.tolist(), above, graphs, sides, strict=True)
    calls = [
        _Call(name, CALL_KINDS[kind], parent, graph, side.inputs, side.outputs, captured.comm.get(i))
        for i, (name, kind, parent, graph, side) in enumerate(columns)
    ]
    return _encode(_Section(list(captured.graphs), list(captured.replays), calls, list(captured.notes)))


def captured_by_texts(links: CaptureLinks) -> dict[int, bytes]:
    """Map each linked event to its JSON member `captured_by`, preceded by a comma."""
    columns = (column.tolist() for column in (links.event, links.op, links.link, links.replay))
    return {
        event: b', "captured_by": {"op": %d, "link": "%b", "replay": %d}' % (op, LINK_NAMES[link].encode(), replay)
        for event, op, link, replay in zip(*columns, strict=True)
    }


def read_captured(file: str, header: Mapping[str, msgspec.Raw], found: dict[int, CapturedBy]) -> CapturedGraphs | None:
    """Read the captured graphs of an ET+ file; None if it contains none. `found` maps rows to `captured_by`."""
    if _KEY not in header:
        if found:
            raise TraceFormatError(file, f'"{_KEY}"', "is missing, but device events refer to it", _REMEDY)
        return None
    section = decode_section(file, _KEY, _decode_captured, header[_KEY])
    events = decode_section(file, "unattached", _decode_events, header.get("unattached", msgspec.Raw(b"[]")))
    events.sort(key=lambda event: event.ts)  # the same order as in `read_unattached`
    unattached = {i: event.captured_by for i, event in enumerate(events) if event.captured_by is not None}
    _check(file, section, [*found.values(), *unattached.values()])
    calls = section.ops
    return CapturedGraphs(
        graphs=tuple(section.graphs),
        replays=tuple(section.replays),
        names=[call.name for call in calls],
        kind=np.array([CALL_KINDS.index(call.kind) for call in calls], np.int8),
        parent=_positions([call.parent for call in calls]),
        graph=_positions([call.graph for call in calls]),
        texts=[_encode(WholeSides(call.inputs, call.outputs)) for call in calls],
        comm={i: call.comm for i, call in enumerate(calls) if call.comm is not None},
        links=_links(found),
        unattached=_links(unattached),
        notes=tuple(section.notes),
    )


def _check(file: str, section: _Section, links: Sequence[CapturedBy]) -> None:
    for i, call in enumerate(section.ops):
        if (call.parent is not None and call.parent >= i) or (call.graph or 0) > max(len(section.graphs) - 1, 0):
            problem = "its caller does not precede it, or its graph is unknown"
            raise TraceFormatError(file, f"{_KEY}.ops[{i}]", problem, _REMEDY)
    for i, replay in enumerate(section.replays):
        if replay.graph is not None and not 0 <= replay.graph < len(section.graphs):
            raise TraceFormatError(file, f"{_KEY}.replays[{i}]", f"unknown graph {replay.graph}", _REMEDY)
    for link in links:
        if link.op >= len(section.ops) or link.replay >= len(section.replays):
            problem = f"op {link.op} or replay {link.replay} is not in {_KEY}"
            raise TraceFormatError(file, '"captured_by"', problem, _REMEDY)


def _positions(values: list[int | None]) -> IntColumn:
    return np.array([-1 if value is None else value for value in values], np.int64)


def _links(found: dict[int, CapturedBy]) -> CaptureLinks:
    links = [LINK_NAMES.index(link.link) for link in found.values()]
    event, op, replay = np.array([(i, link.op, link.replay) for i, link in found.items()], np.int64).reshape(-1, 3).T
    return CaptureLinks(event, op, np.array(links, np.int8), replay)


def edited_file(trace: Trace, records: FileRecords, captured: CapturedGraphs) -> Trace:
    """Add captured graphs to a trace and its ET+ file in memory. `trace.comm` must not change afterwards."""
    data, edits = records.data, list[tuple[int, int, bytes]]()
    root = decode_record(data)
    for row, text in captured_by_texts(captured.links).items():
        start, end = int(records.start[row]), int(records.end[row])
        comm = trace.comm.get(row)
        if comm is None:
            edits.append((end - 1, end - 1, text))
        else:
            node = decode_record(data[start:end]) | decode_record(b"{" + text.removeprefix(b",") + b"}")
            changed = {"comm": msgspec.Raw(_encode(comm.members())), "pg_name": msgspec.Raw(_encode(comm.pg_name))}
            edits.append((start, end, _encode(node | changed)))
    section = msgspec.Raw(section_of(captured))
    header = {**trace.header, _KEY: section}
    if "unattached" in root:
        header["unattached"] = msgspec.Raw(_with_members(bytes(root["unattached"]), captured))
        edits.append((*_span(data, root["unattached"]), bytes(header["unattached"])))
    summary = {**trace.summary, "version": CAPTURED_VERSION}
    if "etplus" in root:
        edits.append((*_span(data, root["etplus"]), _encode(summary)))
    last = data.rindex(b"}")
    edits.append((last, last, b',\n  "%b": %b\n' % (_KEY.encode(), bytes(section))))
    edits.sort()
    ends = np.array([end for _, end, _ in edits])
    grown = np.array([len(text) - (end - start) for start, end, text in edits])
    total = np.concatenate([[0], np.cumsum(grown)])
    moved = [at + total[np.searchsorted(ends, at, side="right")] for at in (records.start, records.end)]
    kept = zip([0, *(end for _, end, _ in edits)], [*(start for start, _, _ in edits), len(data)], strict=True)
    texts = itertools.zip_longest((data[a:b] for a, b in kept), (text for _, _, text in edits), fillvalue=b"")
    whole = b"".join(itertools.chain.from_iterable(texts))
    return trace.with_(texts=FileRecords(whole, *moved), header=header, summary=summary, captured=captured)


def _span(data: bytes, raw: msgspec.Raw) -> tuple[int, int]:
    start = offset_in(data, raw)
    return start, start + len(memoryview(raw))


def _with_members(unattached: bytes, captured: CapturedGraphs) -> bytes:
    events = msgspec.json.decode(unattached, type=list[dict[str, msgspec.Raw]])
    starts = [msgspec.json.decode(event["ts"]) for event in events]
    order = sorted(range(len(events)), key=starts.__getitem__)  # the same order as in `read_unattached`
    for position, text in captured_by_texts(captured.unattached).items():
        events[order[position]] |= decode_record(b"{" + text.removeprefix(b",") + b"}")
    return _encode(events)
