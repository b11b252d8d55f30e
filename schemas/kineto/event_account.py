"""Count the events of a Kineto trace that were read, not used, or dropped. Also remove duplicate events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ...trace.brief import brief
from ...trace.columns import IntColumn, among
from ...trace.conventions import CPU_CATEGORIES, GPU_ANNOTATION_CATEGORY, GPU_CATEGORIES, PYTHON_CATEGORY
from ...trace.errors import UNREADABLE
from ...trace.printable import shortened
from ..text.records import RecordTexts
from .kineto_decode import KNOWN_PHASES
from .kineto_events import EventPart, is_runtime

Tables = dict[str, dict[str, npt.NDArray[Any]]]  # Maps each table's name in `EventPart` to the table's columns.

_READ = (
    CPU_CATEGORIES | GPU_CATEGORIES | {GPU_ANNOTATION_CATEGORY, *"cuda_sync graph_event_node graph_host_node".split()}
)
# Duration events in these categories of Kineto (libkineto/include/ActivityType.h) are not CPU or GPU work.
# Some events in these categories span the whole recording.
_NOT_USED = frozenset(
    (
        "Trace Net overhead external_correlation cpu_instant_event cuda_event cuda_profiler_range collective_comm "
        "mtia_workloadd mtia_insight mtia_counters xpu_sync gpu_pm_counter npu_wait"
    ).split()
)
_UNREADABLE = "a record that is not an event"
_NAMED = 5  # A message lists at most this many reasons.
_LONGEST = 40
_PLACE = ("ts", "dur", "thread", "name", "correlation")
_ALIKE = (*_PLACE, "category", "stream", "device")
_OWN_IDS = ("external_id", "rf_id", "seq")
# Duplicates of an event may differ in these arguments.
_IDS = frozenset({"External id", "Record function id", "Ev Idx"})
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # Multiplying by an odd number is reversible; this one mixes all bits.


@dataclass(frozen=True)
class EventAccount:
    read: dict[str, int] = field(default_factory=dict)  # event counts by category, "flow", "memory" or "end of a pair"
    not_used: dict[str, int] = field(default_factory=dict)  # event counts by category (or phase, if there is none)
    dropped: dict[str, int] = field(default_factory=dict)  # event counts by reason for dropping the events

    __repr__ = brief

    @property
    def total(self) -> int:
        return sum(sum(counts.values()) for counts in (self.read, self.not_used, self.dropped))

    @property
    def found(self) -> str:
        """The most frequent categories and phases of events that were not used or were dropped, as a string."""
        return _listed(Counter(self.not_used) + Counter(self.dropped))

    def warning(self, already_reported: int) -> str:
        """Return a warning about dropped events, or "". Another warning covers `already_reported` events."""
        dropped = +(Counter(self.dropped) - Counter({_UNREADABLE: already_reported}))
        if not dropped:
            return ""
        return f"{dropped.total():,} of {self.total:,} events were left out: {_listed(dropped)}"


def _listed(counts: Counter[str]) -> str:
    named = [f"{count:,} × {what}" for what, count in counts.most_common(_NAMED)]
    return ", ".join(named) + (f" and {len(counts) - _NAMED} other kinds" if len(counts) > _NAMED else "")


def account_for(
    parts: Sequence[EventPart], tables: Tables, categories: list[str], *, pairs: int, repeated: int
) -> EventAccount:
    """Count all events by outcome. `pairs` counts end events that have a begin event; `repeated` counts duplicates."""
    phases = sum((part.phases for part in parts), Counter[str]())
    read, not_used, dropped = Counter[str](), Counter[str](), Counter[str]()
    of_category = np.bincount(tables["events"]["category"], minlength=len(categories)).tolist()
    for category, count in zip(categories, of_category, strict=True):
        if category in _READ or is_runtime(category):
            read[category] += count
        elif category in _NOT_USED:
            not_used[category] += count
        elif category != PYTHON_CATEGORY:  # Module calls are counted as Python calls.
            dropped[f"category {shortened(category, _LONGEST)!r}" if category else "no category"] += count
    read[PYTHON_CATEGORY] += len(tables["frames"]["ts"])
    read.update(flow=len(tables["flows"]["ts"]), memory=len(tables["memory"]["ts"]))
    read["end of a pair"] += pairs
    for phase, count in phases.items():
        if phase in ("B", "E"):
            unpaired = "begin (B) without its end" if phase == "B" else "end (E) without its begin"
            dropped[unpaired] += count - (pairs if phase == "E" else 0)
        elif phase and (phase in KNOWN_PHASES):
            not_used[f"phase {phase}"] += count
        else:
            dropped[f"phase {shortened(phase, _LONGEST)!r}" if phase else _UNREADABLE] += count
    dropped["Python call with impossible times"] += sum(part.impossible_frames for part in parts)
    dropped["duplicate event"] += repeated
    return EventAccount(dict(+read), dict(+not_used), dict(+dropped))


def drop_repeated(tables: Tables, texts: RecordTexts, categories: list[str]) -> int:
    """Remove duplicate events from the tables, and return the number of removed events.

    Duplicates differ at most in the recorder's ids. A recursive call under 1 µs differs from its caller only in the
    recorder's ids, so calls without a correlation must have the same ids. Other events must have identical bytes.
    """
    rows = _suspects(tables["events"], _PLACE)
    events, count = {key: column[rows] for key, column in tables["events"].items()}, 0
    on_device = np.array([category in GPU_CATEGORIES for category in categories], np.bool_)[events["category"]]
    known = np.flatnonzero(on_device | (events["correlation"] > 0) | (events["external_id"] > 0))
    rows, events = rows[known], {key: column[known] for key, column in events.items()}
    compared = [events[key] for key in _ALIKE]
    compared += [np.where(events["correlation"] > 0, -1, events[key]) for key in _OWN_IDS]
    gone = {"events": rows[_repeated(compared, texts.of(events["index"]), _compared_arguments)]}
    for name in ("memory", "frames") if len(gone["events"]) else ():
        rows = _suspects(tables[name], ("ts",))
        gone[name] = rows[_repeated([], texts.of(tables[name]["index"][rows]), bytes)]
    for name, rows in gone.items():
        if len(rows):
            tables[name] = {key: np.delete(column, rows) for key, column in tables[name].items()}
            count += len(rows)
    return count


def _suspects(table: dict[str, npt.NDArray[Any]], keys: tuple[str, ...]) -> IntColumn:
    mixed = np.zeros(len(table["ts"]), np.uint64)
    for key in keys:
        mixed *= _FACTOR
        mixed += table[key].astype(np.int64, copy=False).view(np.uint64)
    ordered = np.sort(mixed)
    several = ordered[1:][ordered[1:] == ordered[:-1]]
    there = among(mixed.view(np.int64), several.view(np.int64)) if len(several) else np.zeros(len(mixed), np.bool_)
    return np.flatnonzero(there & (table["index"] >= 0))


def _repeated(columns: list[npt.NDArray[Any]], texts: list[bytes], compared: Callable[[bytes], Any]) -> IntColumn:
    seen, repeated = set[Any](), list[int]()
    for row, key in enumerate(zip(*(column.tolist() for column in columns), map(compared, texts), strict=True)):
        if key in seen:
            repeated.append(row)
        seen.add(key)
    return np.array(repeated, np.int64)


class _OnlyArguments(msgspec.Struct, gc=False):
    args: dict[str, msgspec.Raw] | None = None


_decode_arguments = msgspec.json.Decoder(_OnlyArguments).decode


def _compared_arguments(text: bytes) -> Any:
    try:
        args = _decode_arguments(text).args or {}
    except UNREADABLE:
        return text
    return tuple(sorted((name, bytes(value)) for name, value in args.items() if name not in _IDS))
