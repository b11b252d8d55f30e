"""Collect events from any recorder into the columns of an `EventTable`, and decide which events are runtime calls."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...trace.columns import IntColumn, StringTable, joined_columns
from ...trace.conventions import CPU_CATEGORIES, MAX_DURATION_NS

# Linking needs these numeric arguments; they are −1 if not recorded.
NUMBERS = ("external_id", "rf_id", "seq", "correlation", "stream", "device", "original_stream")
# Memory events have these integer arguments; they are −1 if not recorded.
MEMORY_NUMBERS = ("bytes", "address", "allocated", "reserved", "device_type", "device")
# These columns store strings as codes. Python calls have separate codes, so that they do not change other codes.
INTERNED = ("category", "name", "thread", "frame", "frame_thread")
RANKS = "ranks"  # In merged files from etplus, this key maps each rank's process id to the rank's header.
# Kineto defines these categories as runtime calls ("HPU host side runtime event"), regardless of the event's name.
_HOST_SIDE = frozenset({"hpu_op"})
# `rf_id` and `seq` occur only on CPU operators and annotations, and the other arguments only on other events.
_ON_CPU_ONLY, _ELSEWHERE_ONLY = ("rf_id", "seq"), ("correlation", "stream", "device")

Codes = npt.NDArray[np.int32]
# The values of a column: a list with one value per event, or indices and the list that they refer to.
Values = list[Any] | tuple[IntColumn, list[Any]]
_Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class EventPart:
    spans: list[tuple[int, int, int]]  # (begin, end, number of events) of each block
    events: _Columns  # columns of `EventTable`, but `index` counts from the first event of this part
    flows: _Columns
    memory: _Columns
    frames: _Columns
    values: dict[str, list[Any]]  # Maps each column in INTERNED to its strings, indexed by code.
    phases: Counter[str]  # number of events without a table, by phase (`ph`)
    impossible_frames: int  # number of Python calls that `frames` omits, because their times are impossible


class EventColumns:
    """The events that were collected so far; `count` includes events that are not kept."""

    def __init__(self) -> None:
        self.count = self._blocks_end = self.impossible_frames = 0
        self.phases = Counter[str]()
        self._texts = {kind: StringTable() for kind in INTERNED}
        self._events: list[_Columns] = []
        self._flows: list[_Columns] = []
        self._memory: list[_Columns] = []
        self._frames: list[_Columns] = []
        self._spans: list[tuple[int, int, int]] = []
        none = np.zeros(0, np.int64)  # Adding zero events creates all columns.
        self.add([], [], [], none, none)
        self.add_flows(none.astype(np.bool_), [], [], none, none)
        self.add_memory(none, none, [], dict.fromkeys(MEMORY_NUMBERS, none))
        self.add_frames(none, [], [], none, none)

    def add(
        self, category: Values, name: Values, thread: Values, ts: IntColumn, dur: IntColumn, *,
        at: IntColumn | None = None, **numbers: IntColumn,
    ) -> None:  # fmt: skip
        """Append duration events (ph "X"). If `at` contains positions in a block, the caller updates `count`."""
        none = {} if len(numbers) == len(NUMBERS) else dict.fromkeys(NUMBERS, np.full(len(ts), -1, np.int64))
        texts = {"category": category, "name": name, "thread": thread}
        codes = {kind: self._codes(kind, values) for kind, values in texts.items()}
        index = self.count + (np.arange(len(ts)) if at is None else at)
        self._events.append({"index": index, "ts": ts, "dur": dur, **codes, **none, **numbers})
        self.count += len(ts) if at is None else 0

    def add_flows(
        self, start: npt.NDArray[np.bool_], category: Values, thread: Values, flow_id: IntColumn, ts: IntColumn
    ) -> None:
        """Append flow events. `start` is True for ph "s", False for "f". `flow_id` is −1 if unknown. `ts` is in ns."""
        codes = {"category": self._codes("category", category), "thread": self._codes("thread", thread)}
        self._flows.append({"start": start, "id": flow_id, "ts": ts, **codes})

    def add_memory(self, at: IntColumn, ts: IntColumn, thread: Values, numbers: dict[str, IntColumn]) -> None:
        """Append allocator events (ph "i", name "[memory]") with the columns MEMORY_NUMBERS."""
        self._memory.append({"index": at + self.count, "ts": ts, "thread": self._codes("thread", thread), **numbers})

    def add_frames(self, at: IntColumn, name: list[str], thread: Values, ts: IntColumn, dur: IntColumn) -> None:
        columns: _Columns = {
            "index": at + self.count,
            "ts": ts,
            "dur": dur,
            "frame": self._codes("frame", name),
            "frame_thread": self._codes("frame_thread", thread),
        }
        possible = (ts >= 0) & (dur >= 0) & (dur < MAX_DURATION_NS)
        self._frames.append({key: column[possible] for key, column in columns.items()})
        self.impossible_frames += int(np.count_nonzero(~possible))

    def end_block(self, begin: int, end: int) -> None:
        self._spans.append((begin, end, self.count - self._blocks_end))
        self._blocks_end = self.count

    @property
    def values(self) -> dict[str, list[Any]]:
        return {kind: table.values for kind, table in self._texts.items()}

    def events(self) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of `EventTable` and release them."""
        events = joined_columns(self._events)
        original = events.pop("original_stream")
        return events | {"stream": np.where(original >= 0, original, events["stream"])}

    def part(self) -> EventPart:
        """Return all blocks; events keep only the arguments that Kineto writes for their category."""
        values, events = self.values, self.events()
        on_cpu = np.array([name in CPU_CATEGORIES for name in values["category"]], np.bool_)[events["category"]]
        for have, only in ((on_cpu, _ON_CPU_ONLY), (~on_cpu, _ELSEWHERE_ONLY)):
            events |= {name: np.where(have, events[name], -1) for name in only}
        flows, memory, frames = map(joined_columns, (self._flows, self._memory, self._frames))
        return EventPart(self._spans, events, flows, memory, frames, values, self.phases, self.impossible_frames)

    def _codes(self, kind: str, values: Values) -> Codes:
        if isinstance(values, list):
            return self._texts[kind].codes(values)
        position, distinct = values
        return self._texts[kind].codes(distinct)[position]


def is_runtime(category: str) -> bool:
    return category.endswith(("_runtime", "_driver")) or category.startswith("hip") or category in _HOST_SIDE
