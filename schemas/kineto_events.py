"""Decode blocks of Kineto events into columns; which events are kept, and what is kept of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from itertools import compress
from operator import attrgetter, not_
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from .records import Block, IntColumn, StringTable, check_utf8, exact_ns, int_column, joined_columns

__all__ = ["CPU_CATEGORIES", "PYTHON_CATEGORY", "Codes", "EventPart", "read_events"]

CPU_CATEGORIES = frozenset({"cpu_op", "user_annotation"})
"""Categories of the calls that the ET has as nodes."""
PYTHON_CATEGORY = "python_function"
"""Never needed for linking, and most of a file recorded with_stack."""
_MODULE = "nn.Module: "
"""How the names of Python calls begin that are a module's forward."""

_EXACT_US = 2.0**43
"""Below this many µs a double with three decimals rounds to the right ns (half an ulp is under 0.5 ns)."""
_MAX_NS = 2.0**62

Codes = npt.NDArray[np.int32]
_Columns = dict[str, npt.NDArray[Any]]


class _Args(msgspec.Struct, gc=False, frozen=True):
    correlation: Any = -1
    external_id: Any = msgspec.field(default=-1, name="External id")
    rf_id: Any = msgspec.field(default=-1, name="Record function id")
    seq: Any = msgspec.field(default=-1, name="Sequence number")
    stream: Any = -1
    device: Any = -1


_CPU_ARGS = {"external_id": -1, "rf_id": -1, "seq": -1}
_OTHER_ARGS = {"external_id": -1, "correlation": -1, "stream": -1, "device": -1}
"""The arguments that events of CPU ops and annotations, and those of all others, can have; with the value for none."""
_NO_ARGS = _Args()


class _Event(msgspec.Struct, gc=False):
    """Fields in the order in which they are written, which decodes fastest."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = -1
    tid: int | str = -1
    ts: int | float = 0
    dur: int | float = 0
    args: _Args | list[Any] | str | float | bool | None = _NO_ARGS
    id: int | str = -1


class _ExactEvent(_Event, gc=False):
    """The same with the decimals of the times kept: epoch µs with a fraction do not fit a double."""

    ts: Decimal = Decimal(0)  # type: ignore[assignment]
    dur: Decimal = Decimal(0)  # type: ignore[assignment]


_PHASE, _TS, _DUR, _CATEGORY, _NAME, _ARGS = map(attrgetter, ("ph", "ts", "dur", "cat", "name", "args"))
_THREAD = attrgetter("pid", "tid")
_decode = msgspec.json.Decoder(list[_Event]).decode
_decode_exact = msgspec.json.Decoder(list[_ExactEvent]).decode


@dataclass(frozen=True)
class EventPart:
    """What consecutive blocks of events hold.

    Attributes:
        spans: begin, end and number of events of each block.
        events, flows: columns of `EventTable` and `FlowTable`; `index` counts from the part's first event.
        values: what the codes of `category`, `name` and `thread` stand for in this part.
    """

    spans: list[tuple[int, int, int]]
    events: _Columns
    flows: _Columns
    values: dict[str, list[Any]]


def read_events(blocks: Iterable[Block], *, modules: bool) -> EventPart:
    """Decode blocks of events, so that no block's Python objects outlive it.

    Args:
        modules: keep Python calls that are a module's forward.

    Raises:
        msgspec.MsgspecError, UnicodeDecodeError: what is no event.
    """
    reader = _Reader(modules)
    for begin, end, array in blocks:
        reader.add(begin, end, array)
    if not reader.spans:
        reader.add(0, 0, b"[]")
    return reader.part()


class _Reader:
    def __init__(self, modules: bool) -> None:
        self.modules = modules
        self.categories, self.names, self.threads = StringTable(), StringTable(), StringTable()
        self.spans: list[tuple[int, int, int]] = []
        self.events: list[_Columns] = []
        self.flows: list[_Columns] = []
        self.count = 0

    def add(self, begin: int, end: int, array: bytes | memoryview) -> None:
        decoded: list[Any] = _decode(array)
        check_utf8(array)
        ts = list(map(_TS, decoded))
        if ts and max(ts) >= _EXACT_US and float in set(map(type, ts)):
            decoded = _decode_exact(array)
        complete = [phase == "X" for phase in map(_PHASE, decoded)]
        kept, others = list(compress(decoded, complete)), compress(decoded, map(not_, complete))
        rows = np.flatnonzero(np.array(complete, np.bool_))
        if PYTHON_CATEGORY in map(_CATEGORY, kept):
            wanted = [e.cat != PYTHON_CATEGORY or self._is_module(e) for e in kept]
            kept, rows = list(compress(kept, wanted)), rows[wanted]
        self.events.append(self._event_columns(kept, rows + self.count))
        self.flows.append(self._flow_columns([e for e in others if e.ph == "s" or (e.ph == "f" and e.cat != "ac2g")]))
        self.spans.append((begin, end, len(decoded)))
        self.count += len(decoded)

    def part(self) -> EventPart:
        values = {"category": self.categories.values, "name": self.names.values, "thread": self.threads.values}
        return EventPart(self.spans, joined_columns(self.events), joined_columns(self.flows), values)

    def _is_module(self, event: Any) -> bool:
        return self.modules and event.name.startswith(_MODULE)

    def _event_columns(self, events: list[Any], index: IntColumn) -> _Columns:
        category = self.categories.codes(list(map(_CATEGORY, events)))
        return {
            "index": index,
            **_times(events),
            "category": category,
            "name": self.names.codes(list(map(_NAME, events))),
            "thread": self.threads.codes(list(map(_THREAD, events))),
            **self._arg_columns(list(map(_ARGS, events)), category),
        }

    def _arg_columns(self, args: list[Any], category: Codes) -> dict[str, IntColumn]:
        """The columns of `_CPU_ARGS` and `_OTHER_ARGS`, each looked up only in the events that can have it."""
        if not set(map(type, args)) <= {_Args}:
            args = [_NO_ARGS if a is None else a for a in args]
            if not all(isinstance(a, _Args) for a in args):
                raise msgspec.ValidationError("an event whose `args` are no object")
        on_cpu = np.array([name in CPU_CATEGORIES for name in self.categories.values], np.bool_)[category]
        columns: dict[str, IntColumn] = {
            name: np.full(len(args), none, np.int64) for name, none in (_CPU_ARGS | _OTHER_ARGS).items()
        }
        for members, wanted in ((on_cpu, _CPU_ARGS), (~on_cpu, _OTHER_ARGS)):
            rows = np.flatnonzero(members)
            mine = args if len(rows) == len(args) else [args[i] for i in rows.tolist()]
            for name, none in wanted.items() if mine else ():
                columns[name][rows] = int_column(list(map(attrgetter(name), mine)), none)
        return columns

    def _flow_columns(self, events: list[Any]) -> _Columns:
        return {
            "start": np.fromiter([e.ph == "s" for e in events], np.bool_, len(events)),
            "category": self.categories.codes(list(map(_CATEGORY, events))),
            "id": int_column([e.id for e in events], -1),
            "ts": _nanoseconds(list(map(_TS, events))),
            "thread": self.threads.codes(list(map(_THREAD, events))),
        }


def _times(events: list[Any]) -> dict[str, IntColumn]:
    """`ts` and `dur` of events.

    Raises:
        msgspec.ValidationError: a time before the trace's base, or out of range.
    """
    ts, dur = _nanoseconds(list(map(_TS, events))), _nanoseconds(list(map(_DUR, events)))
    if len(ts) and ts.min() < 0:
        raise msgspec.ValidationError("a negative time stamp")
    return {"ts": ts, "dur": dur}


def _nanoseconds(values: list[Any]) -> IntColumn:
    """µs, as doubles or Decimals, to int64 ns.

    Raises:
        msgspec.ValidationError: a time beyond 2**62 ns, 146 years.
    """
    kinds = set(map(type, values))
    if kinds <= {int} and max(map(abs, values), default=0) * 1000 < _MAX_NS:
        return np.fromiter(values, np.int64, len(values)) * 1000
    if Decimal in kinds:
        exact = [int((v * 1000).to_integral_value()) if abs(v) * 1000 < _MAX_NS else None for v in values]
        if None not in exact:
            return np.array(exact, np.int64)
    us = np.fromiter(values, np.float64, len(values))
    if np.any(np.abs(us) >= _MAX_NS / 1000):
        raise msgspec.ValidationError("a time of over 146 years")
    return exact_ns(us)
