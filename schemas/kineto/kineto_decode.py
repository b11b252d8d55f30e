"""Decode a block of Kineto events into what matters of them, as lists and columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce
from itertools import compress
from operator import attrgetter, not_, or_
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ...trace.columns import IntColumn, exact_ns, int_column
from ...trace.conventions import EXACT_US, MAX_DURATION_NS, MAX_NS, PYTHON_CATEGORY
from ...trace.errors import UNREADABLE
from ...trace.printable import shortened
from ..text.number_rows import NumberRows
from ..text.records import decode_raws
from .cuspy import GRAPH_ARROW, LAUNCH_FLOW

MODULE = "nn.Module: "
"""How the names of Python calls begin that are a module's forward."""

NUMBERS = ("external_id", "rf_id", "seq", "correlation", "stream", "device", "original_stream")
"""The arguments that linking needs; all are numbers, −1 for none."""
_WRITTEN = (
    "External id",
    "Record function id",
    "Sequence number",
    "correlation",
    "stream",
    "device",
    "original_stream",
)
"""What they are called in a file."""

_MEMORY = "[memory]"
"""Name of the instant events that say what an allocator did (`profile_memory=True`)."""
MEMORY_NUMBERS = ("bytes", "address", "allocated", "reserved", "device_type", "device")
"""The arguments of memory events, integers; −1 for none."""
MEMORY_ARGUMENTS = ("Bytes", "Addr", "Total Allocated", "Total Reserved", "Device Type", "Device Id")
"""What they are called in a file."""

_EXACT_INTEGER = 2**53
_LONGEST_NAME = 60
_NO_OBJECT, _NEGATIVE = "an event whose `args` are not an object", "a negative time stamp"
_TOO_LATE = "a time of over 146 years"
_NONE = np.zeros(0, np.int64)


class Instants(NamedTuple):
    """The memory events (ph "i", name "[memory]") of a block, one entry each.

    Attributes:
        at: int64, positions among all events.
        ts: int64 ns.
        thread: (pid, tid), numbers or texts.
        numbers: int64 columns MEMORY_NUMBERS.
    """

    at: IntColumn
    ts: IntColumn
    thread: list[tuple[int | str, int | str]]
    numbers: dict[str, IntColumn]


def no_instants() -> Instants:
    """None at all."""
    return Instants(_NONE, _NONE, [], dict.fromkeys(MEMORY_NUMBERS, _NONE))


@dataclass(frozen=True)
class Decoded:
    """What a block of events holds.

    Attributes:
        count: how many events there are.
        at: int64, positions of the duration events (ph "X") that are kept; the next six have one entry for each.
        category, name: their texts.
        thread: (pid, tid), numbers or texts.
        ts, dur: int64 ns.
        numbers: int64 columns external_id, rf_id, seq, correlation, stream, device, original_stream; −1 for none.
        flow_start: for each flow event (ph "s" and "f", but no end of a launch) whether it is a start.
        flow_category, flow_thread: as those of duration events.
        flow_id: int64, −1 for none. flow_ts: int64 ns.
        memory: what allocators did.
    """

    count: int
    at: IntColumn
    category: list[str]
    name: list[str]
    thread: list[tuple[int | str, int | str]]
    ts: IntColumn
    dur: IntColumn
    numbers: dict[str, IntColumn]
    flow_start: npt.NDArray[np.bool_]
    flow_category: list[str]
    flow_thread: list[tuple[int | str, int | str]]
    flow_id: IntColumn
    flow_ts: IntColumn
    memory: Instants = field(default_factory=no_instants)


def _args_type(number: Any, none: float) -> type[msgspec.Struct]:
    written = dict(zip(NUMBERS, _WRITTEN, strict=True))
    return msgspec.defstruct("_Args", [(name, number, none) for name in NUMBERS], rename=written, gc=False, frozen=True)


_Numbers, _AnyArgs = _args_type(float, -1.0), _args_type(Any, -1)
_NO_NUMBERS, _NO_ARGS = _Numbers(), _AnyArgs()


class _Complete(msgspec.Struct, tag_field="ph", tag="X", gc=False):
    """Fields in the order in which they are written, which decodes fastest."""

    cat: str = ""
    name: str = ""
    pid: int | str = -1
    tid: int | str = -1
    ts: float = 0.0
    dur: float = 0.0
    args: _Numbers = _NO_NUMBERS  # type: ignore[valid-type]


class _Start(msgspec.Struct, tag_field="ph", tag="s", gc=False):
    id: int | str = -1
    pid: int | str = -1
    tid: int | str = -1
    ts: float = 0.0
    cat: str = ""


class _End(_Start, tag_field="ph", tag="f", gc=False):
    pass


class _Instant(msgspec.Struct, tag_field="ph", tag="i", gc=False):
    name: str = ""
    pid: int | str = -1
    tid: int | str = -1
    ts: float = 0.0
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _RawArgs(msgspec.Struct, gc=False):
    args: msgspec.Raw = msgspec.Raw(b"{}")


_MEMORY_WRITTEN = dict(zip(MEMORY_NUMBERS, MEMORY_ARGUMENTS, strict=True))
_MemoryArgs = msgspec.defstruct(
    "_MemoryArgs",
    [(name, Any, None if name == "bytes" else -1) for name in MEMORY_NUMBERS],
    rename=_MEMORY_WRITTEN,
    gc=False,
)
_decode_memory = msgspec.json.Decoder(_MemoryArgs).decode
_decode_raw_args = msgspec.json.Decoder(list[_RawArgs]).decode

_OTHER_PHASES = "MICtBEbnePNODRcSTpFVv"
_Others = (msgspec.defstruct(f"_{ph}", [], tag_field="ph", tag=ph, gc=False) for ph in _OTHER_PHASES)
_PlainEvent = reduce(or_, _Others, _Complete | _Start | _End | _Instant)

_CATEGORY, _NAME, _ARGS, _TS, _DUR = map(attrgetter, ("cat", "name", "args", "ts", "dur"))
_THREAD = attrgetter("pid", "tid")
_decode_plain = msgspec.json.Decoder(list[_PlainEvent]).decode  # type: ignore[valid-type]


_number_rows = NumberRows(_NO_NUMBERS, {name: key.encode() for name, key in zip(NUMBERS, _WRITTEN, strict=True)})


def decode_plain(array: bytes | memoryview, *, modules: bool) -> Decoded | None:
    """Decode events that are written as PyTorch does since 2024; None if `decode_any` is needed.

    Times are relative to the file's base, and numbers are numbers that a double holds exactly.

    Args:
        array: a JSON array of events.
        modules: keep Python calls that are a module's forward; others are left out.
    """
    try:
        decoded: list[Any] = _decode_plain(array)
    except msgspec.ValidationError:
        return None
    kinds = list(map(type, decoded))
    complete = [kind is _Complete for kind in kinds]
    events, at = _kept(decoded, complete, modules)
    numbers = _number_rows.columns(list(map(_ARGS, events)))
    others = list(compress(decoded, map(not_, complete)))
    flows = [
        e for e in others if type(e) is _Start or (type(e) is _End and (e.cat != LAUNCH_FLOW or not _ends_launch(e)))
    ]
    instants = np.flatnonzero([kind is _Instant for kind in kinds]) if _Instant in set(kinds) else _NONE
    places = instants[[decoded[k].name == _MEMORY for k in instants.tolist()]] if len(instants) else _NONE
    memory = [decoded[k] for k in places.tolist()]
    of_times = ((_TS, events), (_DUR, events), (_TS, flows), (_TS, memory))
    times = [np.fromiter(map(get, of), np.float64, len(of)) for get, of in of_times]
    if numbers is None or any(np.abs(us).max(initial=0.0) >= EXACT_US for us in times):
        return None
    starts = [type(e) is _Start for e in flows]
    *exact, memory_ts = map(exact_ns, times)
    try:
        allocations = _instants(memory, [event.args for event in memory], places, memory_ts)
    except msgspec.ValidationError:
        return None
    return _decoded(len(decoded), at, events, exact, numbers, flows, starts, allocations)


def _kept(decoded: list[Any], complete: list[bool], modules: bool) -> tuple[list[Any], IntColumn]:
    """The duration events that matter, and their positions."""
    events, at = list(compress(decoded, complete)), np.flatnonzero(complete)
    if PYTHON_CATEGORY in map(_CATEGORY, events):
        wanted = [e.cat != PYTHON_CATEGORY or (modules and e.name.startswith(MODULE)) for e in events]
        return list(compress(events, wanted)), at[wanted]
    return events, at


def _ends_launch(flow: Any) -> bool:
    """Whether the end of a flow says only what the correlation of the event there says, too."""
    return flow.cat == LAUNCH_FLOW and not (type(flow.id) is int and flow.id >= GRAPH_ARROW)


class _AnyEvent(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = -1
    tid: int | str = -1
    ts: int | float = 0
    dur: int | float = 0
    args: _AnyArgs | list[Any] | str | float | bool | None = _NO_ARGS  # type: ignore[valid-type]
    id: int | str = -1


class _ExactEvent(_AnyEvent, gc=False):
    """The same with the decimals of the times kept: epoch µs with a fraction do not fit a double."""

    ts: Decimal = Decimal(0)  # type: ignore[assignment]
    dur: Decimal = Decimal(0)  # type: ignore[assignment]


_decode_any, _decode_exact = (msgspec.json.Decoder(list[kind]).decode for kind in (_AnyEvent, _ExactEvent))  # type: ignore[valid-type]


def decode_any(array: bytes | memoryview, *, modules: bool) -> Decoded:
    """Decode events of any generation of files, more slowly.

    Args:
        array, modules: see `decode_plain`.

    Raises:
        msgspec.ValidationError: an invalid event, a time before the trace's base, or beyond 2**62 ns, 146 years, or
            a duration of MAX_DURATION_NS.
    """
    decoded: list[Any] = _decode_any(array)
    ts = list(map(_TS, decoded))
    if ts and max(ts) >= EXACT_US and float in set(map(type, ts)):
        decoded = _decode_exact(array)
    complete = [event.ph == "X" for event in decoded]
    events, at = _kept(decoded, complete, modules)
    flows = [e for e in decoded if e.ph == "s" or (e.ph == "f" and not _ends_launch(e))]
    args = [_NO_ARGS if event.args is None else event.args for event in events]
    if not all(isinstance(a, _AnyArgs) for a in args):
        raise msgspec.ValidationError(_NO_OBJECT)
    memory_at = [k for k, e in enumerate(decoded) if e.ph == "i" and e.name == _MEMORY]
    memory = [decoded[k] for k in memory_at]
    of_times = ((_TS, events), (_DUR, events), (_TS, flows), (_TS, memory))
    *times, memory_ts = (_nanoseconds(of, get) for get, of in of_times)
    numbers = {name: int_column(list(map(attrgetter(name), args)), -1) for name in NUMBERS}
    texts: list[Any] = _decode_raw_args(array) if memory else []  # decoded again, which files without them need not be
    instants = _instants(memory, [texts[k].args for k in memory_at], np.array(memory_at, np.int64), memory_ts)
    return _decoded(len(decoded), at, events, times, numbers, flows, [e.ph == "s" for e in flows], instants)


def decode_sound(array: bytes | memoryview, *, modules: bool, invalid: Callable[[Exception], object]) -> Decoded:
    """Decode the events of a block that are valid, one by one; an invalid one counts as an event of no kind.

    Args:
        array, modules: see `decode_plain`.
        invalid: called with what is wrong with each of the others.
    """
    sound: list[bytes | msgspec.Raw] = []
    for text in decode_raws(array):
        try:
            _check(b"[%b]" % text, modules)
            sound.append(text)
        except UNREADABLE as error:
            invalid(error)
            sound.append(b"{}")
    return decode_any(b"[%b]" % b",".join(sound), modules=modules)


def _check(array: bytes, modules: bool) -> None:
    """Raise what `decode_any` raises for an array of one event, at a hundredth of the cost."""
    event: Any = _decode_any(array)[0]
    if event.ph == "X":
        if event.cat == PYTHON_CATEGORY and not (modules and event.name.startswith(MODULE)):
            return
        if event.args is not None and not isinstance(event.args, _AnyArgs):
            raise msgspec.ValidationError(_NO_OBJECT)
        _check_times(event.ts, event.dur)
        if event.dur * 1000 >= MAX_DURATION_NS:
            raise _too_long(int(event.dur), event.name)
        if event.ts < 0 and round(event.ts * 1000) < 0:
            raise msgspec.ValidationError(_NEGATIVE)
    elif event.ph in ("s", "f"):
        _check_times(event.ts)
    elif event.ph == "i" and event.name == _MEMORY:
        decode_any(array, modules=modules)


def _check_times(*times: float) -> None:
    if any(abs(us) * 1000 >= MAX_NS for us in times):
        raise msgspec.ValidationError(_TOO_LATE)


def _too_long(us: int, name: str) -> msgspec.ValidationError:
    return msgspec.ValidationError(
        f"a duration of {us} µs, which is over 104 days, of {shortened(name, _LONGEST_NAME)!r}"
    )


def _decoded(
    count: int, at: IntColumn, events: list[Any], times: list[IntColumn], numbers: dict[str, IntColumn],
    flows: list[Any], starts: list[bool], memory: Instants,
) -> Decoded:  # fmt: skip
    """What both decoders return; `times` are the events' ts and dur, and the flows' ts."""
    ts, dur, flow_ts = times
    if len(ts) and ts.min() < 0:
        raise msgspec.ValidationError(_NEGATIVE)
    if len(dur) and dur.max() >= MAX_DURATION_NS:
        longest = int(np.argmax(dur))
        raise _too_long(int(dur[longest]) // 1000, events[longest].name)
    return Decoded(
        count, at, list(map(_CATEGORY, events)), list(map(_NAME, events)), list(map(_THREAD, events)), ts, dur, numbers,
        np.array(starts, np.bool_), list(map(_CATEGORY, flows)), list(map(_THREAD, flows)),
        int_column([e.id for e in flows], -1), flow_ts, memory,
    )  # fmt: skip


def _instants(events: list[Any], texts: list[msgspec.Raw], at: IntColumn, ts: IntColumn) -> Instants:
    """Columns of memory events.

    Args:
        texts: their undecoded arguments.

    Raises:
        msgspec.ValidationError: arguments that are not an object, a time before the trace's base, no or absurd sizes.
    """
    args: list[Any] = [_decode_memory(text) for text in texts]
    numbers = {key: int_column(list(map(attrgetter(key), args)), -1) for key in MEMORY_NUMBERS}
    if ts.min(initial=0) < 0:
        raise msgspec.ValidationError(_NEGATIVE)
    if any(type(one.bytes) is not int or abs(one.bytes) >= _EXACT_INTEGER for one in args):
        raise msgspec.ValidationError('a memory event without its number of "Bytes"')
    return Instants(at, ts, list(map(_THREAD, events)), numbers)


def _nanoseconds(events: list[Any], of: Callable[[Any], Any]) -> IntColumn:
    """Times in µs, as doubles or Decimals, to int64 ns."""
    values = list(map(of, events))
    kinds = set(map(type, values))
    if kinds <= {int} and max(map(abs, values), default=0) * 1000 < MAX_NS:
        return np.fromiter(values, np.int64, len(values)) * 1000
    if Decimal in kinds:
        exact = [int((v * 1000).to_integral_value()) if abs(v) * 1000 < MAX_NS else None for v in values]
        if None not in exact:
            return np.array(exact, np.int64)
    try:
        us = np.fromiter(values, np.float64, len(values))
    except OverflowError:  # an integer of hundreds of digits
        us = np.array([np.inf])
    if np.any(np.abs(us) >= MAX_NS / 1000):
        raise msgspec.ValidationError(_TOO_LATE)
    return exact_ns(us)
