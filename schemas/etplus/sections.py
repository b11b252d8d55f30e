"""Read and write parts of ET+ files: `unattached`, `memory`, `stacks`, `generated_kernels` and `counterpart`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from itertools import accumulate
from operator import itemgetter
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
import orjson

from ...trace.columns import IntColumn, decimal_ns, int_column, positions
from ...trace.conventions import MAX_DURATION_NS, MAX_NS, UNATTACHED_REASONS
from ...trace.counterparts import CounterpartLinks, Counterparts
from ...trace.errors import UNREADABLE, TraceFormatError
from ...trace.generated import GeneratedKernel, GeneratedKernels
from ...trace.index import as_positions
from ...trace.kinds import GPU
from ...trace.stacks import EVIDENCE_OF_STACKS, Stacks
from ...trace.tables import MemoryEvents, UnattachedEvents

_REMEDY = "create the file again with trace-link"
_Position = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_Id = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_PositionOrNone = Annotated[int, msgspec.Meta(ge=-1, lt=2**31)]


class _StacksSection(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    names: list[str]
    above_step: list[int]
    name: list[_Position]
    line: list[_PositionOrNone]
    id_step: list[int]
    entry: list[_Position]
    evidence: dict[str, list[_Position]] = {}


_decode_stacks = msgspec.json.Decoder(_StacksSection | None).decode


def stacks_section(stacks: Stacks, ids: IntColumn) -> bytes:
    kinds = dict(enumerate(EVIDENCE_OF_STACKS[1:], 1))
    others = {kind: np.flatnonzero(stacks.evidence == code).tolist() for code, kind in kinds.items()}
    columns = {key: getattr(stacks, key).tolist() for key in ("name", "line", "entry")}
    steps = {f"{key}_step": np.diff(of, prepend=0).tolist() for key, of in (("above", stacks.above), ("id", ids))}
    evidence = {kind: rows for kind, rows in others.items() if rows}
    return orjson.dumps({"names": stacks.names, **columns, **steps, "evidence": evidence})


def read_stacks(file: str, text: bytes, ids: IntColumn) -> Stacks:
    section = decode_section(file, "stacks", _decode_stacks, text)
    if section is None:
        return Stacks.none()
    name, line, entry = (np.array(column, np.int64) for column in (section.name, section.line, section.entry))
    try:
        above, id_ = (np.array(list(accumulate(of)), np.int64) for of in (section.above_step, section.id_step))
    except OverflowError:
        raise TraceFormatError(file, '"stacks"', "a number beyond 64 bits", _REMEDY) from None
    if not len(above) == len(name) == len(line) or len(id_) != len(entry):
        raise TraceFormatError(file, '"stacks"', "columns of different lengths", _REMEDY)
    if np.any((above < -1) | (above >= np.arange(len(above)))) or name.max(initial=-1) >= len(section.names):
        raise TraceFormatError(file, '"stacks"', "an entry precedes its caller, or has an unknown name", _REMEDY)
    row = positions(ids, id_)
    if row.min(initial=0) < 0 or entry.max(initial=-1) >= len(above):
        raise TraceFormatError(file, '"stacks"', "unknown id or entry", _REMEDY)
    evidence = np.zeros(len(row), np.int8)
    for of, at in section.evidence.items():
        if of not in EVIDENCE_OF_STACKS or max(at, default=0) >= len(row):
            raise TraceFormatError(file, '"stacks"', f"unknown evidence {of[:40]!r}, or without a row", "update etplus")
        evidence[at] = EVIDENCE_OF_STACKS.index(of)
    order = np.argsort(row, kind="stable")
    codes = name.astype(np.int32), line.astype(np.int32)
    return Stacks(section.names, above, *codes, as_positions(row[order]), entry[order], evidence[order])


class _GeneratedSection(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    kernels: tuple[GeneratedKernel, ...]
    id: list[_Id]
    kernel: list[_Id]


_decode_generated = msgspec.json.Decoder(_GeneratedSection | None).decode


def generated_section(generated: GeneratedKernels, ids: IntColumn) -> bytes:
    return msgspec.json.encode(_GeneratedSection(generated.kernels, ids.tolist(), generated.kernel.tolist()))


def read_generated(file: str, text: bytes, ids: IntColumn) -> GeneratedKernels:
    section = decode_section(file, "generated_kernels", _decode_generated, text)
    if section is None:
        return GeneratedKernels.none()
    row, kernel = positions(ids, np.array(section.id, np.int64)), np.array(section.kernel, np.int64)
    if len(row) != len(kernel) or row.min(initial=0) < 0 or kernel.max(initial=-1) >= len(section.kernels):
        raise TraceFormatError(file, '"generated_kernels"', "unknown id or kernel", _REMEDY)
    order = np.argsort(row, kind="stable")
    return GeneratedKernels(section.kernels, as_positions(row[order]), kernel[order])


class Counterpart(msgspec.Struct, gc=False, frozen=True):
    """The `counterpart` member of a GPU event. `node` is the id of a GPU node that repeats the same work."""

    node: _Id
    same_module: bool = False


class _RepeatedEvent(msgspec.Struct, gc=False):
    ts: Any = 0
    counterpart: Counterpart | None = None


_decode_repeated = msgspec.json.Decoder(list[_RepeatedEvent]).decode


def counterpart_texts(links: CounterpartLinks, ids: Sequence[int]) -> dict[int, bytes]:
    """Map each event to its JSON member `counterpart`, preceded by a comma. `ids` lists the counterparts' node ids."""
    same = (b"true" if known else b"false" for known in links.same_module.tolist())
    columns = zip(links.event.tolist(), ids, same, strict=True)
    return {event: b', "counterpart": {"node": %d, "same_module": %b}' % (of, known) for event, of, known in columns}


def read_counterparts(
    file: str, header: Mapping[str, msgspec.Raw], found: dict[int, Counterpart], ids: IntColumn, kind: IntColumn
) -> Counterparts:
    unattached: dict[int, Counterpart] = {}
    if b'"counterpart"' in bytes(header.get("unattached", b"")):
        events = decode_section(file, "unattached", _decode_repeated, header["unattached"])
        events.sort(key=lambda event: event.ts)  # the same order as in `read_unattached`
        unattached = {i: event.counterpart for i, event in enumerate(events) if event.counterpart is not None}
    if not found and not unattached:
        return Counterparts()
    return Counterparts(_links(file, found, ids, kind, rows=True), _links(file, unattached, ids, kind, rows=False))


def _links(
    file: str, found: dict[int, Counterpart], ids: IntColumn, kind: IntColumn, *, rows: bool
) -> CounterpartLinks:
    events = np.array(list(found), np.int64)
    nodes = np.array([link.node for link in found.values()], np.int64)
    at = positions(ids, nodes)
    wrong = (at < 0) | (kind[at] != GPU) | ((at == events) & rows)
    if rows and len(events):
        wrong |= kind[events] != GPU
    if wrong.any():
        problem = f"node {nodes[np.flatnonzero(wrong)[0]]} is not a valid counterpart: both must be GPU nodes"
        raise TraceFormatError(file, '"counterpart"', problem, _REMEDY)
    return CounterpartLinks(events, at, np.array([link.same_module for link in found.values()], np.bool_))


T = TypeVar("T")


def decode_section(file: str, key: str, decode: Callable[[bytes], T], text: bytes) -> T:
    try:
        return decode(text)
    except UNREADABLE as error:
        raise TraceFormatError(file, f'"{key}"', f"cannot be read ({error})", _REMEDY) from None


_MAX_US, _MAX_DURATION_US = Decimal(MAX_NS // 1000), Decimal(MAX_DURATION_NS // 1000)
_MAX_BYTES = 2**53
_COLUMNS = ("device", "stream", "correlation")


class _UnattachedEvent(msgspec.Struct, gc=False):
    name: str
    cat: str
    ts: Decimal
    dur: Decimal
    reason: str
    stream: Any = -1
    device: Any = -1
    correlation: Any = -1
    args: msgspec.Raw = msgspec.Raw(b"{}")


_decode_unattached = msgspec.json.Decoder(list[_UnattachedEvent]).decode

# Each record is (ts, bytes, address, allocated, reserved, device_type, device, parent, kineto_event).
_MemoryRecord = tuple[Decimal, int, int, int, int, int, int, int | None, int]
_decode_memory = msgspec.json.Decoder(list[_MemoryRecord]).decode


def read_unattached(file: str, text: bytes) -> UnattachedEvents:
    events = sorted(decode_section(file, "unattached", _decode_unattached, text), key=lambda event: event.ts)
    codes = {reason: code for code, reason in enumerate(UNATTACHED_REASONS) if code}
    for event in events:
        if event.reason not in codes:
            raise TraceFormatError(file, '"unattached"', f"unknown reason {event.reason[:40]!r}", "update etplus")
        if not (0 <= event.ts < _MAX_US and -_MAX_US < event.dur < _MAX_DURATION_US):
            problem = "a start that is negative or over 146 years, or a duration of over 104 days"
            raise TraceFormatError(file, '"unattached"', problem, _REMEDY)
    if sum(event.dur for event in events) >= _MAX_US:
        raise TraceFormatError(file, '"unattached"', "durations that add up to over 146 years", _REMEDY)
    columns = {key: int_column([getattr(event, key) for event in events], -1) for key in _COLUMNS}
    return UnattachedEvents(
        names=[event.name for event in events],
        categories=[event.cat for event in events],
        ts=decimal_ns([event.ts for event in events]),
        dur=decimal_ns([event.dur for event in events]),
        reason=np.array([codes[event.reason] for event in events], np.int8),
        args=[bytes(event.args) for event in events],
        **columns,
    )


def read_memory(file: str, text: bytes, ids: IntColumn) -> MemoryEvents:
    records = sorted(decode_section(file, "memory", _decode_memory, text), key=itemgetter(0))
    if not records:
        return MemoryEvents.none()
    if any(not 0 <= record[0] < _MAX_US or abs(record[1]) >= _MAX_BYTES for record in records):
        raise TraceFormatError(file, '"memory"', "a time or size is out of range", _REMEDY)
    ts, *numbers, parents, events = zip(*records, strict=True)
    try:
        size, address, allocated, reserved, kind, device = (np.array(number, np.int64) for number in numbers)
        parent = np.array([-1 if parent is None else parent for parent in parents], np.int64)
        event = np.array(events, np.int64)
    except OverflowError:
        raise TraceFormatError(file, '"memory"', "a number beyond 64 bits", _REMEDY) from None
    row = as_positions(np.where(parent >= 0, positions(ids, parent), -1))
    return MemoryEvents(decimal_ns(ts), size, address, allocated, reserved, kind, device, row, event)
