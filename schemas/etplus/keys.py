"""The keys that linking adds to records, and the column that each holds: the reader and the writer both go by them."""

from __future__ import annotations

from typing import NamedTuple

from ...trace.build import GIVEN_COLUMNS


class Key(NamedTuple):
    """A key of a record and its column, one of `GIVEN_COLUMNS`."""

    name: str
    column: str

    @property
    def is_time(self) -> bool:
        """Whether it is in µs with three decimals; the column has ns."""
        return GIVEN_COLUMNS[self.column].unit == "ns"


def _same(*names: str) -> tuple[Key, ...]:
    return tuple(Key(name, name) for name in names)


TIMES = (Key("ts", "ts"), Key("dur", "dur"), Key("inclusive_dur", "dur"), Key("exclusive_dur", "exclusive"))
NODE_KEYS = (*TIMES, *_same("kineto_event", "link"))
"""Of an ET node that is linked; `inter_thread_dep` and `sync_dep` follow."""
EVENT_NUMBERS = _same("stream", "device", "correlation", "kineto_event")
"""Of a GPU event, after its category and times."""
RUNTIME_KEYS = (*TIMES[:2], *_same("tid", "correlation", "kineto_event", "id", "parent"))
"""Of a runtime call, after its name."""
