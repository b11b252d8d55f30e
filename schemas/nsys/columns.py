"""Gather the events of several tables as the columns of one `EventTable`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...trace.columns import IntColumn, StringTable
from ..kineto.read_kineto import EventTable, EventTexts

Values = list[Any] | tuple[IntColumn, list[Any]]
"""A value for each event; or for each the position of its value, and the values."""

_NUMBERS = ("correlation", "external_id", "rf_id", "seq", "stream", "device")


@dataclass
class EventColumns:
    """Events gathered so far, and the texts of the codes in their columns.

    Attributes:
        count: how many there are.
    """

    count: int = 0
    _names: StringTable = field(default_factory=StringTable)
    _categories: StringTable = field(default_factory=StringTable)
    _threads: StringTable = field(default_factory=StringTable)
    _parts: list[dict[str, npt.NDArray[Any]]] = field(default_factory=list)

    def add(
        self, category: Values, name: Values, thread: Values, ts: IntColumn, dur: IntColumn, **numbers: IntColumn
    ) -> None:
        """Append events; what is not given of correlation, external_id, rf_id, seq, stream and device is −1.

        Args:
            category, name: texts. thread: (pid, tid) of each. ts, dur: int64 ns.
        """
        none = dict.fromkeys(_NUMBERS, np.full(len(ts), -1, np.int64))
        self._parts.append({
            "ts": ts, "dur": dur, "category": _codes(self._categories, category), "name": _codes(self._names, name),
            "thread": _codes(self._threads, thread), **none, **numbers,
        })  # fmt: skip
        self.count += len(ts)

    def table(self, texts: EventTexts) -> EventTable:
        """All events in the order in which they were added, which is their index; they are not kept here."""
        if not self._parts:
            self.add([], [], [], *[np.zeros(0, np.int64)] * 2)
        parts, self._parts = self._parts, []
        columns = {name: np.concatenate([part.pop(name) for part in parts]) for name in list(parts[0])}
        return EventTable(
            index=np.arange(self.count), **columns, categories=self._categories.values, names=self._names.values,
            threads=self._threads.values, _texts=texts,
        )  # fmt: skip


def _codes(table: StringTable, values: Values) -> npt.NDArray[np.int32]:
    if isinstance(values, list):
        return table.codes(values)
    position, distinct = values
    return table.codes(distinct)[position]
