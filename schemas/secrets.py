"""Secrets in JSON texts, found by the names of their variables, keys and options, and masked; the rest keeps its bytes.

Profilers and the programs around them write the recorder's environment and command line into a trace's header. A value
is masked if its *name* says what it is (`HF_TOKEN`, `db.password`, `--api-key`), at any depth: a member of an object,
all that a list or object of that name holds, "NAME=value" and "--name value" inside strings, JSON inside strings,
passwords in URLs, and "Bearer ..." in headers of requests.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from .text import Text

__all__ = ["MASK", "Masker", "mask", "mask_members", "warn_of_masks"]

MASK = b"***"
"""What replaces a value. Two masked values need not have been equal."""

_LOG = logging.getLogger("etplus")

_SECRET = (
    rb"(?:TOKEN(?!I[SZ])|SECRET|PASSWO?R?D|PASSPHRASE|PASSWD|CREDENTIAL|COOKIE|AUTH(?!OR(?!I))"
    rb"|(?:API|ACCESS|PRIVATE|SIGNING|ENCRYPTION|LICENSE|SSH|ACCOUNT|STORAGE)[_.-]?KEY)"
)
_HOST = rb"(?:HOST_?NAME|NODE_?NAME|NODE_?LIST|(?<![A-Z])HOST(?![A-Z])|MASTER_ADDR|FQDN)"
_USER = rb"(?:USER_?NAME|LOGNAME|(?<![A-Z])USER(?![A-Z])|STARTED_BY)"
_HINTS = (
    b"TOKEN", b"SECRET", b"PASS", b"CREDENTIAL", b"COOKIE", b"AUTH", b"KEY", b"://", b"BEARER", b"BASIC ",
)  # fmt: skip
"""One of these, in capitals, is in every text that has something to mask; they are found much faster."""
_COUNTS = re.compile(rb"-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|(?i:true|false|none|null)|")
"""Values that no token has: `num_tokens`, `use_auth_token`. A password may be a number."""
_PASSWORD = re.compile(rb"(?i)PASS|SECRET|KEY")

_HOST_HINTS = (b"HOST", b"NODE", b"MASTER", b"FQDN")
_USER_HINTS = (b"USER", b"LOGNAME", b"STARTED")
_BODY = rb'[^"\\]*(?:\\.[^"\\]*)*'
_PART = re.compile(rb'"(' + _BODY + rb')"(\s*:)?|[\[\]{}]|-?\d[\d.eE+-]*', re.DOTALL)
_STRING = re.compile(rb'"(' + _BODY + rb')"(\s*:)?', re.DOTALL)
_VALUE = re.compile(rb'(\s*)(?:"(' + _BODY + rb')"|(-?\d[\d.eE+-]*)|([\[{]))', re.DOTALL)
_OPTION = re.compile(rb'("(--?[\w.-]+)"\s*,\s*)"((?!-)' + _BODY + rb')"', re.DOTALL)
_MEMBER_START = re.compile(rb',\s*(?:\{\s*)?"[^"\\]*"\s*:')
_HOME = re.compile(rb"((?:/|\\\\)(?:home|[Uu]sers)(?:/|\\\\))([^/\\\"':]+)")
_PATH = re.compile(
    rb"(?<![\w/.*<>)-])(?:file://)?(?:[A-Za-z]:(?=/|\\\\))?(?:(?:/|\\\\)[^/\\\s\"':;,()<>|*]+)+(?=/|\\\\)"
)
_BLOCK, _TAIL = 4 << 20, 1 << 16


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
    text, count = mask(msgspec.json.encode(header))
    return (msgspec.json.decode(text, type=dict[str, msgspec.Raw]), count) if count else (header, 0)


def warn_of_masks(name: str, count: int) -> None:
    """Log a warning if something in a file's header was masked.

    Args:
        name: the file's name.
    """
    if count:
        _LOG.warning("%s: %d values in the header look like secrets and are masked in the output", name, count)


@dataclass
class Masker:
    """Masks a text block by block.

    Args:
        hosts: mask host names as well: values of `hostname`, `HOST`, `NODE_LIST`, `MASTER_ADDR` and the like.
        users: mask user names: values of `USER` and the like, and the folder below /home and /Users.
        paths: mask the folders of absolute paths; the last component stays.

    Attributes:
        count: how many values were masked so far.
    """

    hosts: bool = False
    users: bool = False
    paths: bool = False
    count: int = 0
    _depth: int = field(default=0, init=False)
    """Open brackets of a value that is masked with all that it holds."""

    def __post_init__(self) -> None:
        names = b"|".join([_SECRET, *[_HOST] * self.hosts, *[_USER] * self.users])
        word = rb"(?<![\w.-])((?i:[\w.-]*(?:" + names + rb")[\w.-]*))"
        value = rb"(?:\\+\"((?:(?!\\+\").)*)\\+\"|'([^'\"\\]*)'|([^\s\"'\\&;,)\]}]+))"
        self._hints = [*_HINTS, *_HOST_HINTS * self.hosts, *_USER_HINTS * self.users]
        self._name = re.compile(b"(?i)" + names)
        self._inside = [
            re.compile(pattern, re.DOTALL)
            for pattern in (
                rb'("%b=(?!=))(.*)(?=")' % word,  # an entry of the environment, blanks included
                rb"(%b=(?!=))%b" % (word, value),
                rb"(%b +)(?!-)%b" % (word.replace(rb"((?i:", rb"(--?(?i:"), value),
                rb"((?:\\+\"|')%b(?:\\+\"|') *[:=] *)%b" % (word, value),
                rb"((?i:\b(bearer|basic|token)) +)([A-Za-z0-9._~+/=-]{8,})",
                rb"(://([^/\s:@\"\\]*):)([^/\s@\"\\]+)(?=@)",
            )
        ]

    def pieces(self, text: Text) -> Iterator[bytes]:
        """The text with masks, block by block."""
        at = 0
        while at < len(text):
            size = _BLOCK
            while True:  # up to the begin of a member, so that no name is parted from its value
                block = text[at : at + size]
                if at + size >= len(text):
                    break
                cut = max(
                    (found.start() for found in _MEMBER_START.finditer(block, max(len(block) - _TAIL, 0))), default=0
                )
                if cut:
                    block = block[:cut]
                    break
                size *= 2
            at += len(block)
            yield self._masked(block)

    def _masked(self, block: bytes) -> bytes:
        out: list[bytes] = []
        at = self._whole(block, 0, out) if self._depth else 0
        for hit in self._hits(block):
            if hit < at:
                continue  # in what is done already
            begin = _quote_before(block, hit, at)
            found = _STRING.match(block, begin) if begin >= 0 else None
            if found is None:
                continue
            out.append(block[at:begin])
            named = self._name.search(found.group(1)) is not None
            follows = _VALUE.match(block, found.end()) if named and found.group(2) else None
            option = _OPTION.match(block, begin) if named and not found.group(2) else None
            at = found.end()
            if option is not None:
                out.append(b'%b"%b"' % (option.group(1), self._value(option.group(2), option.group(3))))
                at = option.end()
            elif follows is not None:
                out += (found.group(), follows.group(1))
                at = self._follow(block, found.group(1), follows, out)
            else:
                out.append(self._string(found.group()))
        out.append(block[at:])
        text = b"".join(out)
        if self.paths:
            text = self._counted(_PATH, MASK, text)
        return self._counted(_HOME, rb"\1" + MASK, text) if self.users else text

    def _hits(self, block: bytes) -> list[int]:
        """Where something may be that has to be masked, ascending."""
        capitals, hits = block.upper(), list[int]()
        for hint in self._hints:
            at = capitals.find(hint)
            while at >= 0:
                hits.append(at)
                at = capitals.find(hint, at + 1)
        return sorted(hits)

    def _follow(self, block: bytes, name: bytes, follows: re.Match[bytes], out: list[bytes]) -> int:
        """Mask the value of a member; gives where it ends."""
        _, string, number, opener = follows.groups()
        if opener:
            self._depth = 1
            out.append(opener)
            return self._whole(block, follows.end(), out)
        value = self._value(name, number if string is None else string)
        out.append(value if string is None and value is not MASK else b'"%b"' % value)
        return follows.end()

    def _whole(self, block: bytes, at: int, out: list[bytes]) -> int:
        """Mask all that an object or array holds; gives where it ends, or the block does."""
        for found in _PART.finditer(block, at):
            out.append(block[at : found.start()])
            part, at = found.group(), found.end()
            self._depth += (part in (b"[", b"{")) - (part in (b"]", b"}"))
            if part[:1] in b"[]{}" or found.group(2):
                out.append(part)
            else:
                out.append(b'"%b"' % self._value(b"SECRET", part.strip(b'"')))
            if not self._depth:
                return at
        out.append(block[at:])
        return len(block)

    def _value(self, name: bytes, value: bytes) -> bytes:
        if value in (b"", MASK) or (_COUNTS.fullmatch(value) and not _PASSWORD.search(name)):
            return value
        self.count += 1
        return MASK

    def _string(self, text: bytes) -> bytes:
        for pattern in self._inside:
            text = pattern.sub(self._replaced, text)
        return text

    def _replaced(self, found: re.Match[bytes]) -> bytes:
        group = next(i for i in range(3, len(found.groups()) + 1) if found.group(i) is not None)
        begin, end = found.span(group)
        whole, start = found.group(), found.start()
        return whole[: begin - start] + self._value(found.group(2), found.group(group)) + whole[end - start :]

    def _counted(self, pattern: re.Pattern[bytes], replacement: bytes, text: bytes) -> bytes:
        text, count = pattern.subn(replacement, text)
        self.count += count
        return text


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
