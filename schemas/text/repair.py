"""Repair a broken JSON object, using the layout of trace writers to find the end of broken strings.

PyTorch's Execution Trace writer and Kineto do not escape names. In files with unescaped names, a quote ends a string
only before a comma and a known key, or before the record's closing bracket. The code does not recurse. Each attempt
reads the text once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import orjson

MAX_DEPTH = 64  # ETs nest tensor lists only a few levels deep; deeper brackets are garbage or an attack.
_SOUND = 1 << 16
# A string with unescaped quotes has at most this size. Without a limit, each broken record would search the whole file.
_LONGEST_BROKEN = 1 << 14
_EXAMPLE = 60

_SPACE = re.compile(rb"[ \t\r\n]*")
_KEY = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)"\s*:', re.DOTALL)
_BARE = re.compile(
    rb"(?i)[+-]?(?:1\.#)?(?:[qs]?nan|infinity|inf|ind|n/a|none|true|false|null|\d[\d.e+-]*)(?:\(\w*\))?(?!\w)"
)
_HOLE = re.compile(rb"\x00{4}")
_NUMBER = re.compile(rb"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_PLAIN = re.compile(rb'[^"\\\x00-\x1f\x80-\xff]*')
_KEY_WITHIN = re.compile(rb'\w"\s*:')
_STRINGS_WITHIN = re.compile(rb'",\s*"')
_CONTROL = re.compile(rb"[\x00-\x1f]")
_ESCAPE = re.compile(
    rb'\\(?:["\\/bfnrt]|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u(?![dD][89a-fA-F])[0-9a-fA-F]{4})'
)
_MORE_OBJECTS = re.compile(rb"\s*,\s*\{")
_CLOSER = {ord("{"): ord("}"), ord("["): ord("]")}


class Flaw(NamedTuple):
    """A repaired fault: its kind (see `recover.LOSS_KINDS`), position and original text."""

    kind: str
    offset: int
    example: str


class Repaired(NamedTuple):
    """A repaired object: its end in the broken text, the valid text, and the faults."""

    end: int
    text: bytes
    flaws: tuple[Flaw, ...]


class _Nothing(msgspec.Struct):
    pass


_skim = msgspec.json.Decoder(list[_Nothing]).decode


def is_valid(text: bytes) -> bool:
    """Return True if the text is a comma-separated list of objects that all strict JSON decoders accept."""
    try:
        orjson.loads(b"[" + text + b"]")
        _skim(b"[" + text + b"]")  # Refuse values that are not objects, and nesting that only orjson accepts.
    except (orjson.JSONDecodeError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def repair(data: bytes, start: int, limit: int, layout: RecordLayout) -> Repaired | None:
    """Repair the object that begins at `start` and ends before `limit`. Return None if there is no clear end."""
    if data[start : start + 1] != b"{":
        return None
    for reading in _READINGS:
        if reading.known and not layout.keys:
            continue
        # A valid object may contain text that looks like the start of a record.
        end = min(len(data), max(limit, start + _SOUND)) if reading.sound else limit
        scan = _Scan(data, start, end, layout, reading)
        try:
            scan.run()
        except _GiveUpError:
            continue
        text = data[start : scan.at] if reading.sound else b"".join(scan.out)
        if is_valid(text) and (reading.sound or scan.is_plausible(text)):
            return Repaired(scan.at, text, tuple(scan.flaws))
    return None


class _GiveUpError(Exception):
    pass


class _Reading(NamedTuple):
    sound: bool  # True if the object is assumed to be valid JSON
    known: bool  # True if a top-level string ends only before a known key
    escapes: bool  # True if a backslash escapes a quote


# `repair` interprets a record in these ways, in this order.
_READINGS = (
    _Reading(sound=True, known=False, escapes=True),
    _Reading(sound=False, known=True, escapes=True),
    _Reading(sound=False, known=True, escapes=False),
    _Reading(sound=False, known=False, escapes=True),
    _Reading(sound=False, known=False, escapes=False),
)


class _Scan:
    def __init__(self, data: bytes, start: int, limit: int, layout: RecordLayout, reading: _Reading) -> None:
        self.data, self.at, self.limit = data, start, limit
        self.layout, self.reading = layout, reading
        self.out: list[bytes] = []
        self.flaws: list[Flaw] = []
        self._suspects: list[bytes] = []
        self._open = bytearray()  # the closing brackets that must follow, innermost last
        self._filled: list[bool] = []  # True for each open bracket that already contains an item
        self._comma = False
        self._key = b""

    def run(self) -> None:
        self._push(self.data[self.at])
        while self._open:
            self._skip_space()
            if self.at >= self.limit:
                self._close_all()
                return
            char = self.data[self.at]
            if char == ord(","):
                if self._comma or not self._filled[-1]:
                    self._flaw("extra_comma", self.at)
                self._comma = True
                self.at += 1
            elif char in b"]}":
                self._close(char)
            else:
                self._item(char)

    def is_plausible(self, text: bytes) -> bool:
        """Return True if the record is complete and its strings do not contain a key that the record lacks."""
        record = orjson.loads(text)
        swallowed = (key for suspect in self._suspects for key in self.layout.swallowed.findall(suspect))
        return self.layout.is_whole(record) and all(key.decode() in record for key in swallowed)

    def _skip_space(self) -> None:
        found = _SPACE.match(self.data, self.at, self.limit)
        self.at = found.end() if found else self.at

    def _flaw(self, kind: str, offset: int, text: bytes = b"") -> None:
        if self.reading.sound:
            raise _GiveUpError
        shown = text or self.data[offset : min(offset + _EXAMPLE, self.limit)]
        self.flaws.append(Flaw(kind, offset, shown[:_EXAMPLE].decode("utf-8", "replace")))

    def _push(self, opener: int) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise _GiveUpError
        self.out.append(bytes([opener]))
        self._open.append(_CLOSER[opener])
        self._filled.append(False)
        self._comma = False
        self.at += 1

    def _pop(self) -> None:
        self.out.append(bytes([self._open.pop()]))
        self._filled.pop()

    def _close(self, closer: int) -> None:
        at, self.at = self.at, self.at + 1
        depth = self._open.rfind(closer)
        missing = depth < len(self._open) - 1
        stray = depth < 0 or (
            depth == 0
            and (
                self.layout.more_keys.match(self.data, at + 1, self.limit)
                or (missing and _MORE_OBJECTS.match(self.data, at + 1, self.limit))
            )
        )
        if stray or missing:
            self._flaw("unbalanced_bracket", at)
        if stray:
            return
        if self._comma:
            self._flaw("extra_comma", at)
        while self._open[-1] != closer:
            self._pop()
        self._pop()
        self._comma = False

    def _close_all(self) -> None:
        last = self.data[self.limit - 1]
        if self.limit == len(self.data) or last not in b' \t\r\n,}]"':
            raise _GiveUpError
        self._flaw("unbalanced_bracket", self.limit, self.data[self.limit - _EXAMPLE // 2 : self.limit].strip())
        while self._open:
            self._pop()

    def _item(self, char: int) -> None:
        key = _KEY.match(self.data, self.at, self.limit) if char == ord('"') else None
        if key and len(key.group(1)) > MAX_KEY:
            key = None
        if key:
            self._leave_for(key.group(1))
        in_object = self._open[-1] == ord("}")
        if in_object and not key:
            raise _GiveUpError
        if self._filled[-1]:
            if not self._comma:
                self._flaw("missing_comma", self.at)
            self.out.append(b",")
        self._filled[-1], self._comma = True, False
        if key and in_object:
            self.out.append(self._valid_string(key.group(1), self.at) + b":")
            self.at, self._key = key.end(), key.group(1)
            self._skip_space()
            if self.at >= self.limit:
                raise _GiveUpError
        self._value(self.data[self.at])

    def _leave_for(self, key: bytes) -> None:
        """Close arrays in which a key occurs, and inner objects in which a key of the outermost object occurs."""
        depth = len(self._open)
        if key in self.layout.outer and not self.reading.sound:
            depth = 1
        while self._open[depth - 1] != ord("}"):
            depth -= 1
        if depth < len(self._open):
            self._flaw("unbalanced_bracket", self.at)
            while len(self._open) > depth:
                self._pop()

    def _value(self, char: int) -> None:
        if char in b"{[":
            self._push(char)
        elif char == ord('"'):
            end = self._end_of_string()
            self.out.append(self._valid_string(self.data[self.at + 1 : end], self.at))
            self.at = end + 1
        elif char in b",}]":
            self._flaw("missing_value", self.at)
            self.out.append(b"null")
        else:
            self._bare()

    def _bare(self) -> None:
        found = _BARE.match(self.data, self.at, self.limit)
        text = found.group() if found else b""
        number = _NUMBER.fullmatch(text)
        if not found or (text[-1:].isdigit() and not number):
            raise _GiveUpError
        if text not in (b"true", b"false", b"null") and not (number and math.isfinite(float(text))):
            self._flaw("bare_number", self.at, text)
            text = b"null"
        self.out.append(text)
        self.at = found.end()

    def _end_of_string(self) -> int:
        if self.reading.sound:
            pattern = ANY_QUOTE
        elif self._open[-1] == ord("]"):
            pattern = ENDS_IN_ARRAY
        elif self.reading.known:
            pattern = self.layout.ends_at_top if len(self._open) == 1 else ENDS_IN_OBJECT
        else:
            pattern = ENDS_LOOSELY
        far = self.limit if self.reading.sound else min(self.limit, self.at + _LONGEST_BROKEN)
        found = pattern.search(self.data, self.at + 1, far)
        while found and (far == self.limit or found.start() + 2 * MAX_KEY < far):  # The next key must end before `far`.
            at = before = found.start()
            while self.reading.escapes and self.data[before - 1] == ord("\\"):
                before -= 1
            if (at - before) % 2 == 0:
                return at
            found = pattern.search(self.data, at + 1, far)
        raise _GiveUpError

    def _suspect(self, text: bytes) -> None:
        """Give up if the string lacks its closing quote and therefore contains the strings after it."""
        if len(self._open) == 1 and self.layout.texts:
            self._suspects.append(text)
            if self._key not in self.layout.texts:
                raise _GiveUpError
        elif _KEY_WITHIN.search(text) or (self._open[-1] == ord("}") and _STRINGS_WITHIN.search(text)):
            raise _GiveUpError

    def _valid_string(self, raw: bytes, offset: int) -> bytes:
        if _PLAIN.fullmatch(raw):
            return b'"' + raw + b'"'
        rest = _ESCAPE.sub(b"", raw)
        control = _CONTROL.search(raw)
        if control and _HOLE.search(raw):
            raise _GiveUpError  # A hole of NUL bytes may affect more than this string.
        quote = b'"' in rest
        # If a writer leaves one character unescaped, it escapes none, so "C:\new" does not contain a line break.
        literal = quote or b"\\" in rest or bool(control and b'\\"' not in raw and b"\\\\" not in raw)
        if literal and self.reading.escapes and b'\\"' in raw:
            raise _GiveUpError  # The writer escapes no characters, so the quote may end the string.
        if literal and b"\\" in raw:
            self._flaw("backslash", offset, raw)
            raw = raw.replace(b"\\", b"\\\\")
        if quote:
            self._flaw("unescaped_quote", offset, raw)
            self._suspect(raw)
            raw = raw.replace(b'"', b'\\"')
        if control:
            self._flaw("control_character", offset, raw)
            raw = _CONTROL.sub(lambda found: orjson.dumps(found.group().decode())[1:-1], raw)
        try:
            raw.decode()
        except UnicodeDecodeError:
            self._flaw("not_utf8", offset, raw)
            raw = raw.decode("utf-8", "replace").encode()
        return b'"' + raw + b'"'


MAX_KEY = 200  # A key in a trace has at most this many bytes.

_ANY_KEY = rb'"[^"]{1,%d}"\s*:' % MAX_KEY
_END_OF_OBJECT = rb"\}\s*(?:[,{}\]]|\Z|%b)|,?\s*\Z" % _ANY_KEY

ANY_QUOTE = re.compile(rb'"')
# Matches a quote that can end a string in an array.
ENDS_IN_ARRAY = re.compile(
    rb'"(?=\s*(?:,\s*(?:["\[{\d-]|true|false|null|nan|inf|NaN|Inf)|\]\s*(?:[,}\]]|\Z|%b)))' % _ANY_KEY
)
# Matches a quote that can end a string in an object.
ENDS_IN_OBJECT = re.compile(rb'"(?=\s*(?:,\s*%b|%b))' % (_ANY_KEY, _END_OF_OBJECT))
# Like ENDS_IN_OBJECT, but the comma after the string may be missing.
ENDS_LOOSELY = re.compile(rb'"(?=\s*(?:,\s*%b|%b)|\s+%b)' % (_ANY_KEY, _END_OF_OBJECT, _ANY_KEY))
_NEVER = re.compile(rb"(?!)")


@dataclass(frozen=True)
class RecordLayout:
    keys: tuple[bytes, ...] = ()  # all keys that may occur; () if any key may occur
    texts: frozenset[bytes] = frozenset()  # keys with values that may contain any string from the traced program
    # These keys occur only in the outermost object. If one occurs in a nested object, a closing bracket is missing.
    outer: frozenset[bytes] = frozenset()
    # This function returns True if a decoded record has all required keys.
    is_whole: Callable[[dict[str, Any]], bool] = lambda record: True

    @cached_property
    def any_key(self) -> bytes:
        return rb"(?:%b)" % (b"|".join(self.keys) or rb'[^"]{1,%d}' % MAX_KEY)

    @cached_property
    def ends_at_top(self) -> re.Pattern[bytes]:
        """Matches a quote that can end a string at the top level of the object."""
        return re.compile(rb'"(?=\s*(?:,\s*"%b"\s*:|%b))' % (self.any_key, _END_OF_OBJECT))

    @cached_property
    def more_keys(self) -> re.Pattern[bytes]:
        """Matches text after a bracket that shows that the object goes on after the bracket."""
        return re.compile(rb'\s*,\s*"%b"\s*:' % self.any_key)

    @cached_property
    def swallowed(self) -> re.Pattern[bytes]:
        """Matches a key inside a string, because such a key shows that the string really ends earlier."""
        return re.compile(rb'\b(%b)"\s*:' % self.any_key) if self.keys else _NEVER


def _is_whole_node(record: dict[str, Any]) -> bool:
    keys = record.keys()
    return keys >= {"id", "name"} and (keys >= {"ctrl_deps", "attrs"} or keys >= {"parent", "rf_id", "tid"})


def _is_whole_event(record: dict[str, Any]) -> bool:
    keys = record.keys()
    return keys >= {"ph", "name"} and (record["ph"] != "X" or keys >= {"ts", "dur", "pid", "tid"})


# An Execution Trace node is flat (schema 1.0.1) or has `ctrl_deps` and `attrs` (since 1.0.2).
NODE = RecordLayout(
    keys=tuple(
        b"id name ctrl_deps inputs outputs attrs rf_id parent fw_parent seq_id scope tid fw_tid op_schema input_shapes "
        b"input_types output_shapes output_types".split()
    ),
    texts=frozenset({b"name", b"op_schema"}),
    outer=frozenset({b"ctrl_deps", b"inputs", b"outputs", b"attrs", b"parent"}),
    is_whole=_is_whole_node,
)
EVENT = RecordLayout(
    keys=tuple(b"ph cat name pid tid ts dur args id bp s sf tts cname".split()),
    texts=frozenset({b"name", b"pid", b"tid"}),
    outer=frozenset({b"args", b"ph"}),
    is_whole=_is_whole_event,
)
FREE = RecordLayout()  # Any object fits this layout, for example the header of a file.
