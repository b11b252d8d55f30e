"""Decode blocks of Kineto events into columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import reduce
from itertools import compress
from operator import attrgetter, not_, or_
from typing import Any

import msgspec
import numpy as np

from ...trace.columns import IntColumn, exact_ns, int_column
from ...trace.conventions import EXACT_US, MAX_DURATION_NS, MAX_NS, PYTHON_CATEGORY
from ...trace.errors import UNREADABLE
from ...trace.printable import shortened
from ..text.json_text import NumberRows
from ..text.records import Block, check_utf8, decode_raws
from .corrections import GRAPH_ARROW, LAUNCH_FLOW
from .kineto_events import MEMORY_NUMBERS, NUMBERS, EventColumns, EventPart, Values

MODULE = "nn.Module: "  # Python calls with this prefix run the forward method of a module.

# JSON keys of the arguments in NUMBERS, in the same order
_WRITTEN = "External id,Record function id,Sequence number,correlation,stream,device,original_stream".split(",")

_MEMORY = "[memory]"  # Allocators write instant events with this name (`profile_memory=True`).
# JSON keys of the arguments in MEMORY_NUMBERS, in the same order
MEMORY_ARGUMENTS = ("Bytes", "Addr", "Total Allocated", "Total Reserved", "Device Type", "Device Id")

_EXACT_INTEGER = 2**53
_LONGEST_NAME = 60
_NO_OBJECT, _NEGATIVE = "an event with `args` that are not an object", "a negative time stamp"
_TOO_LATE = "a time of over 146 years"
_NONE = np.zeros(0, np.int64)
_LATEST_US = MAX_NS / 1000
_Placed = tuple[list[Any], IntColumn]  # events, and their positions in a block


def _args_type(number: Any, none: float) -> type[msgspec.Struct]:
    written = dict(zip(NUMBERS, _WRITTEN, strict=True))
    return msgspec.defstruct("_Args", [(name, number, none) for name in NUMBERS], rename=written, gc=False, frozen=True)


_Numbers, _AnyArgs = _args_type(float, -1.0), _args_type(Any, -1)
_NO_NUMBERS, _NO_ARGS = _Numbers(), _AnyArgs()


class _Complete(msgspec.Struct, tag_field="ph", tag="X", gc=False):
    """A duration event. The fields have the same order as in files, because this order is the fastest to decode."""

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


class RawArgs(msgspec.Struct, gc=False):
    args: msgspec.Raw = msgspec.Raw(b"{}")


_MemoryArgs = msgspec.defstruct(
    "_MemoryArgs",
    [(name, Any, None if name == "bytes" else -1) for name in MEMORY_NUMBERS],
    rename=dict(zip(MEMORY_NUMBERS, MEMORY_ARGUMENTS, strict=True)),
    gc=False,
)
_decode_memory = msgspec.json.Decoder(_MemoryArgs).decode
_decode_raw_args = msgspec.json.Decoder(list[RawArgs]).decode

# The phases of Chrome's format. Only the first four phases have tables: durations, flow starts, flow ends and instants.
KNOWN_PHASES = "XsfiMICtBEbnePNODRcSTpFVv"
_Others = [msgspec.defstruct(f"_{ph}", [], tag_field="ph", tag=ph, gc=False) for ph in KNOWN_PHASES[4:]]
_PlainEvent = reduce(or_, _Others, _Complete | _Start | _End | _Instant)
_LEFT_OUT: list[Any] = [*_Others, _End, _Instant]
_PHASES = {kind: kind.__struct_config__.tag for kind in _LEFT_OUT}

_CATEGORY, _NAME, _ARGS, _TS, _DUR = map(attrgetter, ("cat", "name", "args", "ts", "dur"))
_THREAD = attrgetter("pid", "tid")
_decode_plain = msgspec.json.Decoder(list[_PlainEvent]).decode  # type: ignore[valid-type]


_number_rows = NumberRows(_NO_NUMBERS, {name: key.encode() for name, key in zip(NUMBERS, _WRITTEN, strict=True)})


def read_events(blocks: Iterable[Block], *, modules: bool, invalid: Callable[[str], object] | None = None) -> EventPart:
    """Decode blocks of events. `modules` adds module forwards. Errors are passed to `invalid`, or raised if None."""
    columns, plain = EventColumns(), True
    for begin, end, array in blocks:
        check_utf8(array)
        try:
            plain = plain and decode_plain(array, columns, modules=modules)  # All blocks have the same format.
            if not plain:
                decode_any(array, columns, modules=modules)
        except UNREADABLE:
            if invalid is None:
                raise
            _decode_sound(array, columns, modules=modules, invalid=invalid)
        columns.end_block(begin, end)
    return columns.part()


def decode_plain(array: bytes | memoryview, columns: EventColumns, *, modules: bool) -> bool:
    """Add events to `columns` if they have PyTorch's format since 2024. If they have another format, return False."""
    try:
        decoded: list[Any] = _decode_plain(array)
    except msgspec.ValidationError:
        return False
    kinds = list(map(type, decoded))
    complete = [kind is _Complete for kind in kinds]
    events, at, frames = _kept(decoded, complete, modules)
    numbers = _number_rows.columns(list(map(_ARGS, events)))
    others = list(compress(decoded, map(not_, complete)))
    flows = [
        e for e in others if type(e) is _Start or (type(e) is _End and (e.cat != LAUNCH_FLOW or not _ends_launch(e)))
    ]
    phases = Counter(map(type, others))
    instants = np.flatnonzero([kind is _Instant for kind in kinds]) if _Instant in phases else _NONE
    memory_at = instants[[decoded[k].name == _MEMORY for k in instants.tolist()]] if len(instants) else _NONE
    memory = [decoded[k] for k in memory_at.tolist()]
    # Comprehensions are faster than attrgetter.
    ts = [np.fromiter([e.ts for e in of], np.float64, len(of)) for of in (events, flows, memory, frames[0])]
    dur = [np.fromiter([e.dur for e in of], np.float64, len(of)) for of in (events, frames[0])]
    times = [ts[0], dur[0], *ts[1:], dur[1]]
    if numbers is None or any(np.abs(us).max(initial=0.0) >= EXACT_US for us in times):
        return False
    times_ns = list(map(exact_ns, times))
    try:
        allocated = _allocations([event.args for event in memory], times_ns[3])
    except msgspec.ValidationError:
        return False
    starts = [type(e) is _Start for e in flows]
    kept = (events, at), frames, (flows, starts), (memory, memory_at)
    _add(columns, len(decoded), kept, times_ns, numbers, allocated)
    columns.phases.update({_PHASES[kind]: count for kind, count in phases.items() if kind is not _Start})
    _take_kept(columns.phases, starts, memory)
    return True


def _kept(decoded: list[Any], complete: list[bool], modules: bool) -> tuple[list[Any], IntColumn, _Placed]:
    events, at = list(compress(decoded, complete)), np.flatnonzero(complete)
    categories = [event.cat for event in events]
    if PYTHON_CATEGORY not in categories:
        return events, at, ([], _NONE)
    python = [category == PYTHON_CATEGORY for category in categories]
    frames, others = list(compress(events, python)), np.logical_not(np.fromiter(python, np.bool_, len(python)))
    places = np.flatnonzero(~others)
    if modules:
        others[places[[frame.name.startswith(MODULE) for frame in frames]]] = True
    return list(compress(events, others.tolist())), at[others], (frames, at[places])


def _threads_of(frames: list[Any]) -> Values:
    pids, tids = [frame.pid for frame in frames], [frame.tid for frame in frames]
    if pids.count(pids[0]) == tids.count(tids[0]) == len(frames):
        return np.zeros(len(frames), np.int64), [(pids[0], tids[0])]
    return list(zip(pids, tids, strict=True))


def _ends_launch(flow: Any) -> bool:
    """Return True if a flow ends at GPU work. The id of such a flow is the same as the event's correlation."""
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
    """An event with exact times. A double with the time since the epoch cannot represent fractions of a µs exactly."""

    ts: Decimal = Decimal(0)  # type: ignore[assignment]
    dur: Decimal = Decimal(0)  # type: ignore[assignment]


_decode_any, _decode_exact = (msgspec.json.Decoder(list[kind]).decode for kind in (_AnyEvent, _ExactEvent))  # type: ignore[valid-type]


def decode_any(array: bytes | memoryview, columns: EventColumns, *, modules: bool) -> None:
    """Decode events of any PyTorch version; this is slower than `decode_plain`."""
    decoded: list[Any] = _decode_any(array)
    ts = list(map(_TS, decoded))
    if ts and max(ts) >= EXACT_US and float in set(map(type, ts)):
        decoded = _decode_exact(array)
    complete = [event.ph == "X" for event in decoded]
    events, at, (frames, frames_at) = _kept(decoded, complete, modules)
    possible = [0 <= e.ts < _LATEST_US and 0 <= e.dur < _LATEST_US for e in frames]
    frames, frames_at = list(compress(frames, possible)), frames_at[possible]
    flows = [e for e in decoded if e.ph == "s" or (e.ph == "f" and not _ends_launch(e))]
    args = [_NO_ARGS if event.args is None else event.args for event in events]
    if not all(isinstance(a, _AnyArgs) for a in args):
        raise msgspec.ValidationError(_NO_OBJECT)
    memory_at = [k for k, e in enumerate(decoded) if e.ph == "i" and e.name == _MEMORY]
    memory = [decoded[k] for k in memory_at]
    of_times = ((_TS, events), (_DUR, events), (_TS, flows), (_TS, memory), (_TS, frames), (_DUR, frames))
    times = [_nanoseconds(of, get) for get, of in of_times]
    numbers = {name: int_column(list(map(attrgetter(name), args)), -1) for name in NUMBERS}
    texts: list[Any] = _decode_raw_args(array) if memory else []  # Only memory events need this second decoding.
    allocated = _allocations([texts[k].args for k in memory_at], times[3])
    starts = [e.ph == "s" for e in flows]
    kept = (events, at), (frames, frames_at), (flows, starts), (memory, np.array(memory_at, np.int64))
    _add(columns, len(decoded), kept, times, numbers, allocated)
    columns.impossible_frames += possible.count(False)
    columns.phases.update(event.ph for event in decoded if event.ph not in ("X", "s"))
    _take_kept(columns.phases, starts, memory)


def _take_kept(phases: Counter[str], starts: list[bool], memory: list[Any]) -> None:
    phases.subtract({"f": starts.count(False), "i": len(memory)})


def _decode_sound(
    array: bytes | memoryview, columns: EventColumns, *, modules: bool, invalid: Callable[[str], object]
) -> None:
    """Decode the valid events in a block. Report each invalid event and count it as an event without a phase."""
    sound: list[bytes | msgspec.Raw] = []
    for text in decode_raws(array):
        try:
            _check(b"[%b]" % text, modules)
            sound.append(text)
        except UNREADABLE as error:
            invalid(str(error))
            sound.append(b"{}")
    decode_any(b"[%b]" % b",".join(sound), columns, modules=modules)


def _check(array: bytes, modules: bool) -> None:
    """Raise the same error as `decode_any` for an array with one event, but 100 times faster."""
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
    elif event.ph == "s" or (event.ph == "f" and not _ends_launch(event)):
        _check_times(event.ts)
    elif event.ph == "i" and event.name == _MEMORY:
        decode_any(array, EventColumns(), modules=modules)


def _check_times(*times: float) -> None:
    if any(abs(us) * 1000 >= MAX_NS for us in times):
        raise msgspec.ValidationError(_TOO_LATE)


def _too_long(us: int, name: str) -> msgspec.ValidationError:
    return msgspec.ValidationError(
        f"a duration of {us} µs, which is over 104 days, of {shortened(name, _LONGEST_NAME)!r}"
    )


def _add(
    columns: EventColumns,
    total: int,
    kept: tuple[_Placed, _Placed, tuple[list[Any], list[bool]], _Placed],
    times: list[IntColumn],
    numbers: dict[str, IntColumn],
    allocated: dict[str, IntColumn],
) -> None:
    """Add a block. `times` is (`ts`, `dur`, `flow_ts`, `memory_ts`, `frame_ts`, `frame_dur`), all in ns."""
    (events, at), (frames, frames_at), (flows, starts), (memory, memory_at) = kept
    ts, dur, flow_ts, memory_ts, frame_ts, frame_dur = times
    if ts.min(initial=0) < 0:
        raise msgspec.ValidationError(_NEGATIVE)
    if dur.max(initial=0) >= MAX_DURATION_NS:
        longest = int(np.argmax(dur))
        raise _too_long(int(dur[longest]) // 1000, events[longest].name)
    threads = list(map(_THREAD, events))
    columns.add(list(map(_CATEGORY, events)), list(map(_NAME, events)), threads, ts, dur, at=at, **numbers)
    arrow_ids, arrow_threads = int_column([e.id for e in flows], -1), list(map(_THREAD, flows))
    columns.add_flows(np.array(starts, np.bool_), list(map(_CATEGORY, flows)), arrow_threads, arrow_ids, flow_ts)
    columns.add_memory(memory_at, memory_ts, list(map(_THREAD, memory)), allocated)
    if frames:
        columns.add_frames(frames_at, [frame.name for frame in frames], _threads_of(frames), frame_ts, frame_dur)
    columns.count += total


def _allocations(texts: list[msgspec.Raw], ts: IntColumn) -> dict[str, IntColumn]:
    args: list[Any] = [_decode_memory(text) for text in texts]
    if ts.min(initial=0) < 0:
        raise msgspec.ValidationError(_NEGATIVE)
    if any(type(given.bytes) is not int or abs(given.bytes) >= _EXACT_INTEGER for given in args):
        raise msgspec.ValidationError('a memory event has no "Bytes"')
    return {key: int_column(list(map(attrgetter(key), args)), -1) for key in MEMORY_NUMBERS}


def _nanoseconds(events: list[Any], of: Callable[[Any], Any]) -> IntColumn:
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
    except OverflowError:  # Floats cannot represent an integer with hundreds of digits.
        us = np.array([np.inf])
    if np.any(np.abs(us) >= MAX_NS / 1000):
        raise msgspec.ValidationError(_TOO_LATE)
    return exact_ns(us)
