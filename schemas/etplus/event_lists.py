"""The root's lists of events in an ET+ file, `unattached` and `memory`, as columns."""

from __future__ import annotations

from decimal import Decimal
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np

from ...trace.columns import IntColumn, decimal_ns, int_column, positions
from ...trace.conventions import MAX_DURATION_NS, MAX_NS, UNATTACHED_REASONS
from ...trace.errors import UNREADABLE, TraceFormatError
from ...trace.index import as_positions
from ...trace.memory_events import MemoryEvents
from ...trace.unattached_events import UnattachedEvents

_REMEDY = "make the file again with trace-link"
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

_MemoryRecord = tuple[Decimal, int, int, int, int, int, int, int | None, int]
"""`ts`, `bytes`, `address`, `allocated`, `reserved`, `device_type`, `device`, `parent`, `kineto_event`."""
_decode_memory = msgspec.json.Decoder(list[_MemoryRecord]).decode


def read_unattached(file: str, text: bytes) -> UnattachedEvents:
    """Read the list.

    Args:
        file: name for messages.
        text: the JSON array.

    Raises:
        TraceFormatError: not a list of such events.

    Example:
        >>> text = b'[{"name": "k", "cat": "kernel", "ts": 1.5, "dur": 2, "reason": "no launcher in the trace"}]'
        >>> read_unattached("x.json", text).ts.tolist()
        [1500]
    """
    try:
        events = sorted(_decode_unattached(text), key=lambda event: event.ts)
    except UNREADABLE as error:
        raise TraceFormatError(file, '"unattached"', f"cannot be read ({error})", _REMEDY) from None
    codes = {reason: code for code, reason in enumerate(UNATTACHED_REASONS) if code}
    for event in events:
        if event.reason not in codes:
            raise TraceFormatError(file, '"unattached"', f"unknown reason {event.reason[:40]!r}", "update etplus")
        if not (0 <= event.ts < _MAX_US and 0 <= event.dur < _MAX_DURATION_US):
            problem = "a time that is negative or over 146 years, or a duration of over 104 days"
            raise TraceFormatError(file, '"unattached"', problem, _REMEDY)
    if sum(event.dur for event in events) >= _MAX_US:
        raise TraceFormatError(file, '"unattached"', "durations of over 146 years together", _REMEDY)
    columns = {key: int_column([getattr(event, key) for event in events], -1) for key in _COLUMNS}
    return UnattachedEvents(
        names=[event.name for event in events], categories=[event.cat for event in events],
        ts=decimal_ns([event.ts for event in events]), dur=decimal_ns([event.dur for event in events]),
        reason=np.array([codes[event.reason] for event in events], np.int8),
        args=[bytes(event.args) for event in events], **columns,
    )  # fmt: skip


def read_memory(file: str, text: bytes, ids: IntColumn) -> MemoryEvents:
    """Read the list.

    Args:
        file: name for messages.
        text: the JSON array.
        ids: int64, of all rows of the trace.

    Raises:
        TraceFormatError: not a list of such events.

    Example:
        >>> found = read_memory("x.json", b"[[1.5, -512, 64, 0, 1024, 1, 0, 7, 3]]", np.array([5, 7]))
        >>> found.ts.tolist(), found.bytes.tolist(), found.row.tolist()
        ([1500], [-512], [1])
    """
    try:
        records = sorted(_decode_memory(text), key=itemgetter(0))
    except UNREADABLE as error:
        raise TraceFormatError(file, '"memory"', f"cannot be read ({error})", _REMEDY) from None
    if not records:
        return MemoryEvents.none()
    if any(not 0 <= record[0] < _MAX_US or abs(record[1]) >= _MAX_BYTES for record in records):
        raise TraceFormatError(file, '"memory"', "a time or size out of range", _REMEDY)
    ts, *numbers, parents, events = zip(*records, strict=True)
    try:
        size, address, allocated, reserved, kind, device = (np.array(one, np.int64) for one in numbers)
        parent = np.array([-1 if one is None else one for one in parents], np.int64)
        event = np.array(events, np.int64)
    except OverflowError:
        raise TraceFormatError(file, '"memory"', "a number beyond 64 bits", _REMEDY) from None
    row = as_positions(np.where(parent >= 0, positions(ids, parent), -1))
    return MemoryEvents(decimal_ns(ts), size, address, allocated, reserved, kind, device, row, event)
