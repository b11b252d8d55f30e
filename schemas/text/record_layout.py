"""How the trace writers lay out their records: which keys they have, and what can follow a string in them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

MAX_KEY = 200
"""No key of a trace is longer, in bytes."""

_ANY_KEY = rb'"[^"]{1,%d}"\s*:' % MAX_KEY
_END_OF_OBJECT = rb"\}\s*(?:[,{}\]]|\Z|%b)|,?\s*\Z" % _ANY_KEY

ANY_QUOTE = re.compile(rb'"')
ENDS_IN_ARRAY = re.compile(
    rb'"(?=\s*(?:,\s*(?:["\[{\d-]|true|false|null|nan|inf|NaN|Inf)|\]\s*(?:[,}\]]|\Z|%b)))' % _ANY_KEY
)
"""A quote that can end a string in an array."""
ENDS_IN_OBJECT = re.compile(rb'"(?=\s*(?:,\s*%b|%b))' % (_ANY_KEY, _END_OF_OBJECT))
"""A quote that can end a string in an object."""
ENDS_LOOSELY = re.compile(rb'"(?=\s*(?:,\s*%b|%b)|\s+%b)' % (_ANY_KEY, _END_OF_OBJECT, _ANY_KEY))
"""The same if the comma behind it may be missing."""
_NEVER = re.compile(rb"(?!)")


@dataclass(frozen=True)
class RecordLayout:
    """What is known of the objects of one kind.

    Attributes:
        keys: all keys that they can have; () if anything is possible.
        texts: those of `keys` whose values come from the program that was traced, and may hold anything.
        outer: those of `keys` that no object inside them has: where one appears inside, a bracket was not closed.
        is_whole: whether a decoded object has all that it needs to be of use.
    """

    keys: tuple[bytes, ...] = ()
    texts: frozenset[bytes] = frozenset()
    outer: frozenset[bytes] = frozenset()
    is_whole: Callable[[dict[str, Any]], bool] = lambda record: True

    @cached_property
    def any_key(self) -> bytes:
        """A regular expression for one of the keys, in a group that does not capture."""
        return rb"(?:%b)" % (b"|".join(self.keys) or rb'[^"]{1,%d}' % MAX_KEY)

    @cached_property
    def ends_at_top(self) -> re.Pattern[bytes]:
        """A quote that can end a string at the top of the object."""
        return re.compile(rb'"(?=\s*(?:,\s*"%b"\s*:|%b))' % (self.any_key, _END_OF_OBJECT))

    @cached_property
    def more_keys(self) -> re.Pattern[bytes]:
        """What follows a bracket that does not end the object."""
        return re.compile(rb'\s*,\s*"%b"\s*:' % self.any_key)

    @cached_property
    def swallowed(self) -> re.Pattern[bytes]:
        """A key inside a string, which may have run over its end."""
        return re.compile(rb'\b(%b)"\s*:' % self.any_key) if self.keys else _NEVER


def _is_whole_node(record: dict[str, Any]) -> bool:
    keys = record.keys()
    return keys >= {"id", "name"} and (keys >= {"ctrl_deps", "attrs"} or keys >= {"parent", "rf_id", "tid"})


def _is_whole_event(record: dict[str, Any]) -> bool:
    keys = record.keys()
    return keys >= {"ph", "name"} and (record["ph"] != "X" or keys >= {"ts", "dur", "pid", "tid"})


NODE = RecordLayout(
    keys=(
        b"id", b"name", b"ctrl_deps", b"inputs", b"outputs", b"attrs", b"rf_id", b"parent", b"fw_parent", b"seq_id",
        b"scope", b"tid", b"fw_tid", b"op_schema", b"input_shapes", b"input_types", b"output_shapes", b"output_types",
    ),
    texts=frozenset({b"name", b"op_schema"}),
    outer=frozenset({b"ctrl_deps", b"inputs", b"outputs", b"attrs", b"parent"}),
    is_whole=_is_whole_node,
)  # fmt: skip
"""A node of an Execution Trace, flat (schema 1.0.1) or with `ctrl_deps` and `attrs` (since 1.0.2)."""
EVENT = RecordLayout(
    keys=(
        b"ph", b"cat", b"name", b"pid", b"tid", b"ts", b"dur", b"args", b"id", b"bp", b"s", b"sf", b"tts", b"cname",
    ),
    texts=frozenset({b"name", b"pid", b"tid"}),
    outer=frozenset({b"args", b"ph"}),
    is_whole=_is_whole_event,
)  # fmt: skip
"""An event of a Kineto trace."""
FREE = RecordLayout()
"""An object of which nothing is known, as a file's header."""
