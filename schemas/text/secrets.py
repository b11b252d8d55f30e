"""Secrets in JSON texts, found by what they look like and by the names of their variables, and masked.

Profilers and the programs around them write the recorder's environment and command line into a trace's header, and
programs write into annotations what they like. Keys and strings are looked at as what they mean, escapes decoded, JSON
within strings included; what is not masked keeps its bytes.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import msgspec

from .secret_texts import Names, Secrecy, find_hints, find_secrets
from .text import Text

MASK = b"***"
"""What replaces a value. Two masked values need not have been equal."""

_LOG = logging.getLogger("etplus")

_BODY = rb'[^"\\]*(?:\\.[^"\\]*)*'
_NUMBER = rb"-?\d[\d.eE+-]*"
_PART = re.compile(rb'"(' + _BODY + rb')"(\s*:)?|[\[\]{}]|' + _NUMBER + rb"|true|false|null", re.DOTALL)
_STRING = re.compile(rb'"(' + _BODY + rb')"(\s*:)?', re.DOTALL)
_VALUE = re.compile(rb'\s*(?:"(' + _BODY + rb')"|(' + _NUMBER + rb")|([\[{]))", re.DOTALL)
_NEXT = re.compile(rb'\s*,\s*(?:"(' + _BODY + rb')"(?!\s*:)|(' + _NUMBER + rb")|(\[))", re.DOTALL)
_NEXT_STRING = re.compile(rb'\s*,\s*"(' + _BODY + rb')"(?!\s*:)', re.DOTALL)
_ESCAPE = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_NAME_ALONE = re.compile(rb"\s*(-{0,2}[A-Za-z_][\w. -]{0,80}?):?\s*")
_WORD = re.compile(rb"[a-z]+")
"""Such names are words of other lists, too."""
_VARIABLE = re.compile(rb"[A-Z][A-Z0-9]*_[A-Z0-9_]+")
_OF_A_MEMBER = re.compile(rb'"\s*:\s*\Z')
_VALUE_KEY = re.compile(rb"(?i)(?:\w*value|val|v|contents?|data|default|string|text|secret)")
_OPEN_KEY = re.compile(rb"-----BEGIN[ A-Z0-9]*PRIVATE KEY(?!.*-----END)", re.DOTALL)
_LINE_OF_A_KEY = re.compile(rb"[\w+/=:,.\s-]*")
_USER_OPTION = re.compile(rb"-u|--user|-U|--proxy-user")
_CURL_USER = re.compile(rb"(?:-u|--user=|-U|--proxy-user=)?[^\s:/-][^\s:/]*:(?!\d+\Z)(.+)", re.DOTALL)
_RECORD_START = re.compile(rb',\s*\{\s*"[^"\\]*"\s*:')
_MEMBER_START = re.compile(rb',\s*(?:\{\s*)?"[^"\\]*"\s*:')
_HOME = re.compile(rb"((?:/|\\\\)(?:home|[Uu]sers)(?:/|\\\\))([^/\\\"':]+)")
_PATH = re.compile(
    rb"(?<![\w/.*<>)-])(?:file://)?(?:[A-Za-z]:(?=/|\\\\))?(?:(?:/|\\\\)[^/\\\s\"':;,()<>|*]+)+(?=/|\\\\)"
)
_BLOCK, _TAIL = 4 << 20, 1 << 16
_OBJECTS, _OBJECT_BYTES, _OBJECT_PARTS = 4, 1 << 14, 128
"""How many brackets are looked at for the object that a name is in, and how much of it."""
_ARGUMENTS = 256
"""Of a command, in which a password is looked for."""
_MOST_KNOWN = 1 << 14
_LONGEST_KNOWN = 1 << 10


def mask(text: bytes) -> tuple[bytes, int]:
    """A JSON text, or a part of one that begins and ends between members, without secrets; and how many there were.

    Example:
        >>> mask(b'{"env": {"HF_TOKEN": "abc", "HOME": "/root"}, "argv": ["--api-key", "x"]}')
        (b'{"env": {"HF_TOKEN": "***", "HOME": "/root"}, "argv": ["--api-key", "***"]}', 2)
    """
    masker = Masker()
    return b"".join(masker.pieces(text)), masker.count


def mask_members(header: dict[str, msgspec.Raw]) -> tuple[dict[str, msgspec.Raw], int]:
    """The members of an object without secrets, and how many there were.

    Example:
        >>> mask_members({"API_KEY": msgspec.Raw(b'"x"'), "pid": msgspec.Raw(b"7")})[1]
        1
    """
    text, count = mask(msgspec.json.encode(dict(header)))
    return (msgspec.json.decode(text, type=dict[str, msgspec.Raw]), count) if count else (header, 0)


def warn_of_masks(name: str, count: int) -> None:
    """Log a warning if something in the header of a file of that name was masked."""
    if count:
        _LOG.warning("%s: %d values in the header look like secrets and are masked in the output", name, count)


class _Span(NamedTuple):
    """A part of a text that is replaced, and what it is; `kept` if it is not, though its name is suspicious."""

    begin: int
    end: int
    what: str
    by: bytes = MASK
    kept: bool = False


@dataclass
class Masker:
    """Masks a text block by block.

    Args:
        hosts: mask host names as well: values of `hostname`, `HOST`, `NODE_LIST`, `MASTER_ADDR` and the like.
        users: mask user names: values of `USER` and the like, and the folder below /home and /Users.
        paths: mask the folders of absolute paths; the last component stays.

    Attributes:
        count: how many values were masked so far.
        masked, kept: of how many values of each name; kept are those whose name is suspicious.
    """

    hosts: bool = False
    users: bool = False
    paths: bool = False
    count: int = field(default=0, init=False)
    masked: Counter[str] = field(default_factory=Counter, init=False)
    kept: Counter[str] = field(default_factory=Counter, init=False)
    _depth: int = field(default=0, init=False)
    """Open brackets of a value that is masked with all that it holds, when a block ends in it."""
    _whole: bytes = field(default=b"", init=False)
    """The name of that value."""

    def __post_init__(self) -> None:
        self._names = Names(self.hosts, self.users)
        self._known: dict[bytes, tuple[_Span, ...]] = {}

    def pieces(self, text: Text) -> Iterator[bytes]:
        """The text with masks, block by block."""
        at = 0
        while at < len(text):
            size = _BLOCK
            while True:
                block = text[at : at + size]
                if at + size >= len(text):
                    break
                if cut := _cut(block):
                    block = block[:cut]
                    break
                size *= 2
            at += len(block)
            yield self._masked(block)

    def _masked(self, block: bytes) -> bytes:
        text = self._spliced(block, self._in_json(block))
        if self.paths:
            text = self._counted(_PATH, MASK, text, "path")
        return self._counted(_HOME, rb"\1" + MASK, text, "folder of a user") if self.users else text

    def _spliced(self, block: bytes, spans: list[_Span]) -> bytes:
        out, at = list[bytes](), 0
        for span in spans:
            if span.kept:
                self.kept[span.what] += 1
                continue
            self.count += 1
            self.masked[span.what] += 1
            out += (block[at : span.begin], span.by)
            at = span.end
        return b"".join([*out, block[at:]])

    def _counted(self, pattern: re.Pattern[bytes], by: bytes, text: bytes, what: str) -> bytes:
        text, count = pattern.subn(by, text)
        self.count += count
        self.masked.update({what: count} if count else {})
        return text

    def _in_json(self, block: bytes, *, outermost: bool = True) -> list[_Span]:
        """What is replaced in a piece of JSON, in its order."""
        spans, at = list[_Span](), 0
        if outermost and self._depth:
            at, self._depth = self._all_in(block, 0, self._whole, spans, self._depth)
        for hit in find_hints(block, self._names):
            if hit < at:
                continue  # in what is done already
            begin = _quote_before(block, hit, at)
            found = _STRING.match(block, begin) if begin >= 0 else None
            if found is None:
                continue
            at = found.end()
            if known := self._in_string(found.group(1)):
                spans += (span._replace(begin=begin + 1 + span.begin, end=begin + 1 + span.end) for span in known)
            if found.group(2):
                at = self._value_of(block, found, spans, outermost=outermost)
            else:
                at = self._beside(block, found, spans)
        return _merged(spans, block)

    def _in_string(self, raw: bytes) -> tuple[_Span, ...]:
        """What is replaced in a string, by its JSON text."""
        known = self._known.get(raw)
        if known is None:
            known = tuple(self._read(raw))
            if len(raw) <= _LONGEST_KNOWN:
                if len(self._known) >= _MOST_KNOWN:
                    self._known.clear()
                self._known[raw] = known
        return known

    def _read(self, raw: bytes) -> list[_Span]:
        text, places = _unescaped(raw)
        spans = [
            _Span(secret.begin, secret.end, secret.what, kept=secret.kept) for secret in find_secrets(text, self._names)
        ]
        if b'"' in text:
            spans += self._in_json(text, outermost=False)
        return [places.span(span) for span in _merged(spans, text)]

    def _value_of(self, block: bytes, key: re.Match[bytes], spans: list[_Span], *, outermost: bool) -> int:
        """Mask the value of a member if its key says so; gives where to go on."""
        name, value = _unescaped(key.group(1))[0], _VALUE.match(block, key.end())
        level = self._names.secrecy(name)
        if value is None:
            return key.end()
        if value.group(3):
            if level is not Secrecy.SURE:
                return key.end()
            end, depth = self._all_in(block, value.end(), name, spans)
            if outermost:
                self._depth, self._whole = depth, name
            return end
        return value.end() if self._hide(name, value, spans) else key.end()

    def _hide(self, name: bytes, value: re.Match[bytes], spans: list[_Span]) -> bool:
        """Mask a string (group 1) or number (group 2) if it is a secret under that name."""
        group = 1 if value.group(1) is not None else 2
        hidden = self._names.hide(name, _unescaped(value.group(group))[0])
        if hidden or self._names.suspects(name):
            what = name.decode("utf-8", "replace")
            spans.append(_Span(*value.span(group), what, MASK if group == 1 else b'"%b"' % MASK, kept=not hidden))
        return hidden

    def _all_in(self, block: bytes, at: int, name: bytes, spans: list[_Span], depth: int = 1) -> tuple[int, int]:
        """Mask all that objects and arrays hold, `depth` of them within each other; gives where they end, or the block
        does, and how many are open there."""
        for found in _PART.finditer(block, at):
            part = found.group()
            depth += (part in (b"[", b"{")) - (part in (b"]", b"}"))
            if not depth:
                return found.end(), 0
            if part[:1] not in b"[]{}tfn" and not found.group(2):
                string = found.group(1)
                if self._names.hide(name, part if string is None else _unescaped(string)[0]):
                    begin, end = found.span() if string is None else found.span(1)
                    what = name.decode("utf-8", "replace")
                    spans.append(_Span(begin, end, what, b'"%b"' % MASK if string is None else MASK))
        return len(block), depth

    def _beside(self, block: bytes, found: re.Match[bytes], spans: list[_Span]) -> int:
        """Mask what belongs to a string in an array or object: a name's value, a command's password, a key's lines;
        gives where to go on."""
        text = _unescaped(found.group(1))[0]
        alone = _NAME_ALONE.fullmatch(text)
        if alone is not None and self._names.secrecy(alone.group(1)) is not Secrecy.NONE:
            return self._after_name(block, found, alone.group(1), spans)
        if text.rpartition(b"/")[2] in (b"curl", b"curl.exe"):
            _users_of_curl(block, found.end(), spans)
        elif b"-----BEGIN" in text and _OPEN_KEY.search(text):
            return _lines_of_a_key(block, found.end(), spans)
        return found.end()

    def _after_name(self, block: bytes, found: re.Match[bytes], name: bytes, spans: list[_Span]) -> int:
        """A name is followed by its value in an array, and has it beside it in an object."""
        value = _NEXT.match(block, found.end())
        sure = self._names.secrecy(name) is Secrecy.SURE
        if value is not None and value.group(3):
            return self._all_in(block, value.end(), name, spans)[0] if sure else found.end()
        if value is not None:
            text = value.group(1) or b""
            another = _VARIABLE.fullmatch(text) and self._names.secrecy(text) is Secrecy.SURE
            a_word = _WORD.fullmatch(name) or not (sure or name[:1] == b"-")
            if another or name[:1] == text[:1] == b"-" or (a_word and not _is_pair(block, found, value)):
                return found.end()
            return value.end() if self._hide(name, value, spans) else found.end()
        if _OF_A_MEMBER.search(block, max(found.start() - 16, 0), found.start()):
            for member in _members_beside(block, found.start()):
                if member.group(3) and sure:
                    self._all_in(block, member.end(), name, spans)
                elif not member.group(3):
                    self._hide(name, member, spans)
        return found.end()


def _is_pair(block: bytes, first: re.Match[bytes], second: re.Match[bytes]) -> bool:
    """Whether two elements are all of an array."""
    before, after = block[max(first.start() - 64, 0) : first.start()], block[second.end() : second.end() + 64]
    return before.rstrip().endswith(b"[") and after.lstrip().startswith(b"]")


def _users_of_curl(block: bytes, at: int, spans: list[_Span]) -> None:
    """Passwords in what follows in an array: "-u", "user:password"."""
    before = b""
    for _ in range(_ARGUMENTS):
        if (item := _NEXT_STRING.match(block, at)) is None:
            break
        text, at = item.group(1), item.end()
        user = _CURL_USER.fullmatch(text)
        if user is not None and (_USER_OPTION.fullmatch(before) or _USER_OPTION.match(text)):
            begin, end = user.span(1)
            spans.append(_Span(item.start(1) + begin, item.start(1) + end, "curl -u"))
        before = text


def _lines_of_a_key(block: bytes, at: int, spans: list[_Span]) -> int:
    """The lines of a private key that is written as a list of lines; gives where they end."""
    while (item := _NEXT_STRING.match(block, at)) is not None and _LINE_OF_A_KEY.fullmatch(_unescaped(item[1])[0]):
        at = item.end()
        if item.group(1).startswith(b"-----END"):
            break
        spans.append(_Span(*item.span(1), "like ----…"))
    return at


def _members_beside(block: bytes, at: int) -> list[re.Match[bytes]]:
    """The members "value" and the like of the object that has a string as value."""
    opener = at
    for _ in range(_OBJECTS):
        opener = block.rfind(b"{", max(at - _OBJECT_BYTES, 0), opener)
        if opener < 0:
            break
        depth, found, inside = 0, list[re.Match[bytes]](), False
        for part in islice(_PART.finditer(block, opener), _OBJECT_PARTS):
            depth += (part.group() in (b"[", b"{")) - (part.group() in (b"]", b"}"))
            if not depth:
                break
            if depth == 1 and part.group(2) and _VALUE_KEY.fullmatch(_unescaped(part.group(1))[0]):
                value = _VALUE.match(block, part.end())
                found += [] if value is None or value.start(1) == at + 1 else [value]
            inside |= depth == 1 and part.start() == at
        if inside:
            return found
    return []


def _cut(block: bytes) -> int:
    """Where a block may end so that no name is parted from its value: before a record, or else a member."""
    for pattern in (_RECORD_START, _MEMBER_START):
        cut = max((found.start() for found in pattern.finditer(block, max(len(block) - _TAIL, 0))), default=0)
        if cut:
            return cut
    return 0


class _Places:
    """Where parts of a text without escapes are in the text with them."""

    def __init__(self) -> None:
        self._decoded, self._raw = [0], [0]
        """Where pieces begin in both: turn by turn plain bytes, as many in both, and one escape."""

    def add(self, decoded: int, raw: int) -> None:
        self._decoded.append(decoded)
        self._raw.append(raw)

    def span(self, span: _Span) -> _Span:
        """The same span in the text with escapes."""
        if len(self._raw) == 1:
            return span
        by = span.by.replace(b'"', b'\\"')
        return span._replace(begin=self._begin(span.begin), end=self._end(span.end), by=by)

    def _begin(self, at: int) -> int:
        piece = bisect_right(self._decoded, at) - 1
        return self._raw[piece] + (0 if piece % 2 else at - self._decoded[piece])

    def _end(self, at: int) -> int:
        piece = bisect_right(self._decoded, at - 1) - 1
        return self._raw[piece + 1] if piece % 2 else self._raw[piece] + at - self._decoded[piece]


_SAME_PLACES = _Places()


def _unescaped(raw: bytes) -> tuple[bytes, _Places]:
    """The text of a JSON string, in UTF-8, and where its parts are in the string."""
    if b"\\" not in raw:
        return raw, _SAME_PLACES
    places = _Places()
    out, size, at = list[bytes](), 0, 0
    for found in _ESCAPE.finditer(raw):
        code, sign = found.groups()
        plain = raw[at : found.start()]
        text = chr(int(code, 16)).encode("utf-8", "surrogatepass") if code else _ESCAPED.get(sign, sign)
        out += (plain, text)
        size, at = size + len(plain), found.end()
        places.add(size, found.start())
        size += len(text)
        places.add(size, at)
    out.append(raw[at:])
    return b"".join(out), places


def _merged(spans: list[_Span], text: bytes) -> list[_Span]:
    """Spans in order, none within or across another, none that is masked. Of equal ones that with quotes counts, which
    keeps JSON JSON."""
    merged = list[_Span]()
    hidden = (span for span in spans if not span.kept and text[span.begin : span.end].strip() not in (b"", MASK))
    for span in sorted(hidden, key=lambda span: (span.begin, -span.end, -len(span.by))):
        if not merged or span.begin >= merged[-1].end:
            merged.append(span)
        elif span.end > merged[-1].end:
            merged[-1] = merged[-1]._replace(end=span.end, by=MASK)
    return merged + [span for span in spans if span.kept]


def _quote_before(block: bytes, at: int, least: int) -> int:
    """Where the string begins that an offset is in, −1 if nowhere after `least`."""
    while (at := block.rfind(b'"', least, at)) >= 0:
        before = at
        while before > least and block[before - 1] == ord("\\"):
            before -= 1
        if (at - before) % 2 == 0:
            return at
        at = before
    return -1
