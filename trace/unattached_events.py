"""GPU events of an ET+ file that have no node: the root's `unattached`, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from .brief import brief
from .columns import IntColumn, decimal_ns, int_column
from .conventions import MAX_DURATION_NS, MAX_NS, UNATTACHED_REASONS
from .errors import UNREADABLE, TraceFormatError

_REMEDY = "make the file again with trace-link"
_MAX_US, _MAX_DURATION_US = Decimal(MAX_NS // 1000), Decimal(MAX_DURATION_NS // 1000)
_COLUMNS = ("device", "stream", "correlation")


class _Event(msgspec.Struct, gc=False):
    name: str
    cat: str
    ts: Decimal
    dur: Decimal
    reason: str
    stream: Any = -1
    device: Any = -1
    correlation: Any = -1
    args: msgspec.Raw = msgspec.Raw(b"{}")


_decode = msgspec.json.Decoder(list[_Event]).decode


@dataclass(frozen=True)
class UnattachedEvents:
    """Kernels, copies and memsets that no operator of the ET is known to have launched, in order of start.

    Attributes:
        names, categories: texts, one entry an event.
        ts, dur: int64 ns; not negative.
        device, stream, correlation: int64, −1 for none.
        reason: int8, index into `UNATTACHED_REASONS`.
        args: Kineto's arguments, JSON.
    """

    names: list[str]
    categories: list[str]
    ts: IntColumn
    dur: IntColumn
    device: IntColumn
    stream: IntColumn
    correlation: IntColumn
    reason: npt.NDArray[np.int8]
    args: list[bytes]

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.names)

    @staticmethod
    def none() -> UnattachedEvents:
        """No events."""
        none = np.zeros(0, np.int64)
        return UnattachedEvents([], [], none, none, none, none, none, none.astype(np.int8), [])


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
        events = sorted(_decode(text), key=lambda event: event.ts)
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
