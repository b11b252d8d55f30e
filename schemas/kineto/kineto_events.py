"""Read blocks of Kineto events into columns; which events are kept, and what is kept of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...trace.columns import StringTable, joined_columns
from ...trace.conventions import CPU_CATEGORIES
from ...trace.errors import UNREADABLE
from ..text.records import Block, check_utf8
from .kineto_decode import Decoded, Instants, decode_any, decode_plain, decode_sound

_HOST_SIDE = frozenset({"hpu_op"})
"""Runtime calls by Kineto's definition ("HPU host side runtime event") whose category does not say so."""
_ON_CPU_ONLY, _ELSEWHERE_ONLY = ("rf_id", "seq"), ("correlation", "stream", "device")
"""Arguments that only events of CPU ops and annotations have, and those that only others have."""

Codes = npt.NDArray[np.int32]
_Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class EventPart:
    """What consecutive blocks of events hold.

    Attributes:
        spans: begin, end and number of events of each block.
        events, flows, memory: columns of `EventTable`, `FlowTable` and `MemoryTable`; `index` counts from the part's
            first event.
        values: the texts of the codes of `category`, `name` and `thread` in this part.
    """

    spans: list[tuple[int, int, int]]
    events: _Columns
    flows: _Columns
    memory: _Columns
    values: dict[str, list[Any]]


def read_events(
    blocks: Iterable[Block], *, modules: bool, invalid: Callable[[Exception], object] | None = None
) -> EventPart:
    """Decode blocks of events, so that no block's Python objects outlive it.

    Args:
        modules: keep Python calls that are a module's forward.
        invalid: leave out invalid events, and call this with what is wrong with each.

    Raises:
        msgspec.MsgspecError, UnicodeDecodeError: an invalid event, without `invalid`.
    """
    reader = _Reader(modules, invalid)
    for begin, end, array in blocks:
        reader.add(begin, end, array)
    if not reader.spans:
        reader.add(0, 0, b"[]")
    return reader.part()


def part_of(decoded: Decoded) -> EventPart:
    """Events that come from another format, as one block."""
    reader = _Reader(modules=True, invalid=None)
    reader.take(0, 0, decoded)
    return reader.part()


def is_runtime(category: str) -> bool:
    """Whether events of a category are calls into a device runtime or driver (launches, copies, synchronisation).

    Example:
        >>> [is_runtime(one) for one in ("mtia_runtime", "privateuse1_driver", "hpu_op", "mtia_ccp_events")]
        [True, True, True, False]
    """
    return category.endswith(("_runtime", "_driver")) or category.startswith("hip") or category in _HOST_SIDE


class _Reader:
    def __init__(self, modules: bool, invalid: Callable[[Exception], object] | None) -> None:
        self.modules, self.invalid, self.plain = modules, invalid, True
        self.categories, self.names, self.threads = StringTable(), StringTable(), StringTable()
        self.spans: list[tuple[int, int, int]] = []
        self.events: list[_Columns] = []
        self.flows: list[_Columns] = []
        self.memory: list[_Columns] = []
        self.count = 0

    def add(self, begin: int, end: int, array: bytes | memoryview) -> None:
        check_utf8(array)
        try:
            decoded = decode_plain(array, modules=self.modules) if self.plain else None
            self.plain = decoded is not None  # one block of another kind is hardly alone
            self.take(begin, end, decoded or decode_any(array, modules=self.modules))
        except UNREADABLE:
            if self.invalid is None:
                raise
            self.take(begin, end, decode_sound(array, modules=self.modules, invalid=self.invalid))

    def take(self, begin: int, end: int, decoded: Decoded) -> None:
        self.events.append(self._event_columns(decoded))
        self.flows.append(self._flow_columns(decoded))
        self.memory.append(self._memory_columns(decoded.memory))
        self.spans.append((begin, end, decoded.count))
        self.count += decoded.count

    def part(self) -> EventPart:
        values = {"category": self.categories.values, "name": self.names.values, "thread": self.threads.values}
        events, flows, memory = map(joined_columns, (self.events, self.flows, self.memory))
        return EventPart(self.spans, events, flows, memory, values)

    def _event_columns(self, events: Decoded) -> _Columns:
        category = self.categories.codes(events.category)
        on_cpu = np.array([name in CPU_CATEGORIES for name in self.categories.values], np.bool_)[category]
        numbers = dict(events.numbers)
        original = numbers.pop("original_stream")
        numbers["stream"] = np.where(original >= 0, original, numbers["stream"])
        for have, only in ((on_cpu, _ON_CPU_ONLY), (~on_cpu, _ELSEWHERE_ONLY)):
            numbers |= {name: np.where(have, numbers[name], -1) for name in only}
        return {
            "index": events.at + self.count,
            "ts": events.ts,
            "dur": events.dur,
            "category": category,
            "name": self.names.codes(events.name),
            "thread": self.threads.codes(events.thread),
            **numbers,
        }

    def _flow_columns(self, events: Decoded) -> _Columns:
        return {
            "start": events.flow_start,
            "category": self.categories.codes(events.flow_category),
            "id": events.flow_id,
            "ts": events.flow_ts,
            "thread": self.threads.codes(events.flow_thread),
        }

    def _memory_columns(self, events: Instants) -> _Columns:
        thread = self.threads.codes(events.thread)
        return {"index": events.at + self.count, "ts": events.ts, "thread": thread, **events.numbers}
