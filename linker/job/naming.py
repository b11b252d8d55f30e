"""What a trace file's name and its first bytes tell: which kind it is, of which rank, of which process.

The usual names: `rank-3.et.json.gz`; `worker3_step_12.1694128201545.pt.trace.json` and `host_4711.1694128201545.pt.
trace.json`, which PyTorch's `tensorboard_trace_handler` gives (worker name, or host and process id, then a time stamp
in ms); `pytorch_et_3.json`. Kineto writes `distributedInfo` before `traceEvents`, so that it is near the beginning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final, Literal

from isal import isal_zlib

from ..ranks import RANK
from .storage import Folder

__all__ = ["ET", "KINETO", "TraceFile", "look_at"]

Kind = Literal["ET", "Kineto trace", ""]
ET: Final[Kind] = "ET"
KINETO: Final[Kind] = "Kineto trace"

_NO_TRACE = re.compile(r"\.etplus\.json|_plus\.json|\.comm_groups\.json|\.links\.json")
_ET_WORD = re.compile(r"(?<![a-z0-9])(?:et|execution[._-]?(?:trace|graph)|host[._-]?trace)(?![a-z])")
_KINETO_WORD = re.compile(r"(?<![a-z0-9])(?:kineto(?:[._-]?trace)?|pt\.trace|device[._-]?trace)(?![a-z])")
_MAYBE_RANK = re.compile(
    r"(?<![a-z])worker[-_]?(\d{1,6})(?!\d)|^(\d{1,6})$|"
    r"(?<!step)(?<!iter)(?<!iteration)(?<!epoch)(?:^|[._-])(\d{1,6})(?:\.pt\.trace)?\.json"
)
_PROCESS = re.compile(r"_(\d{1,10})\.\d{10,20}\.pt\.trace\.json|_(\d{1,10})\.(?:et\.)?json")
_NOT_STEM = re.compile(r"\.json(?:\.gz)?$|\.\d{10,20}(?=\.)|(?<![a-z0-9])pytorch(?![a-z])")
_SEPARATORS = re.compile(r"[._\-]*/[._\-]*|[._\-]+")

_HEAD = 1 << 20
_PACKED = 1 << 16
_OVERLAP = 1 << 12
_RANK_INSIDE = re.compile(
    rb'"distributedInfo"\s*:\s*\{(?:[^{}"]|"(?:[^"\\]|\\.)*"(?!\s*:\s*[{\[]))*?"rank"\s*:\s*(\d{1,6})\b'
)
_EVENTS = re.compile(rb'"(?:traceEvents|deviceProperties|schemaVersion)"\s*:')
_NODES = re.compile(rb'"schema"\s*:\s*"[^"]*"|"nodes"\s*:\s*\[')


@dataclass(frozen=True)
class TraceFile:
    """A trace file.

    Attributes:
        name: below the folder.
        kind: ET or KINETO; "" for what seems to be neither.
        named: rank that its name tells ("rank3"), None if it does not.
        inside: rank that `distributedInfo` in it tells.
        maybe: a number in its name that may be the rank.
        process: a number in its name that may be the process id, -1 for none.
        stem: its name without what tells the two kinds apart.
    """

    name: str
    kind: Kind
    named: int | None = None
    inside: int | None = None
    maybe: int | None = None
    process: int = -1
    stem: str = ""

    @property
    def rank(self) -> int | None:
        """The rank by the best evidence there is."""
        return next((rank for rank in (self.named, self.inside, self.maybe) if rank is not None), None)

    @property
    def evidence(self) -> int:
        """How good that is: 3 name, 2 inside, 1 a number in the name, 0 none."""
        return next((3 - i for i, rank in enumerate((self.named, self.inside, self.maybe)) if rank is not None), 0)


def look_at(folder: Folder, name: str, kind: Kind = "") -> TraceFile:
    """Find out what a file is; it is opened only if its name does not tell.

    Args:
        kind: what it is, if that is known.
    """
    lower = name.lower()
    if not kind and (_NO_TRACE.search(lower) or not lower.endswith((".json", ".json.gz"))):
        return TraceFile(name, "")
    base = lower.rpartition("/")[2]
    by_name: list[Kind] = [k for k, word in ((ET, _ET_WORD), (KINETO, _KINETO_WORD)) if word.search(base)]
    if not kind and len(by_name) == 1:
        kind = by_name[0]
    named, inside = _number(RANK, lower), None
    if not kind or (kind == KINETO and named is None):
        kind, inside = _look_inside(folder, name, kind, named is None)
    process = _PROCESS.search(base)
    return TraceFile(
        name, kind, named=named, inside=inside, maybe=_number(_MAYBE_RANK, lower),
        process=int(process[1] or process[2]) if process else -1, stem=_stem(lower),
    )  # fmt: skip


def _number(pattern: re.Pattern[str], name: str) -> int | None:
    """The number in the last part of the path that has one."""
    for part in reversed(name.split("/")):
        found = pattern.search(part)
        if found:
            return next(int(group) for group in found.groups() if group is not None)
    return None


def _stem(name: str) -> str:
    for pattern in (_NOT_STEM, _ET_WORD, _KINETO_WORD):
        name = pattern.sub("", name)
    return _SEPARATORS.sub(lambda found: "/" if "/" in found[0] else "_", name).strip("_")


def _look_inside(folder: Folder, name: str, kind: Kind, rank_wanted: bool) -> tuple[Kind, int | None]:
    """What a file begins with, and the rank that it tells; what cannot be read tells nothing, linking will say so.

    Where `distributedInfo` does not come first, as PyTorch writes it, the file is searched for it, but not parsed.
    """
    seen, first = b"", True
    try:
        with folder.open(name) as file:
            for block in _unpacked(file):
                seen += block
                if first and len(seen) < _HEAD and b'"traceEvents"' not in seen:
                    continue
                kind = kind or _kind_of(seen)
                if kind != KINETO or not rank_wanted:
                    return kind, None
                first = False
                found = _RANK_INSIDE.search(seen)
                if found:
                    return kind, int(found[1])
                seen = seen[-_OVERLAP:]
    except (OSError, isal_zlib.error):  # type: ignore[misc]
        pass
    found = _RANK_INSIDE.search(seen)
    return kind or _kind_of(seen), int(found[1]) if found else None


def _kind_of(head: bytes) -> Kind:
    if _EVENTS.search(head):
        return KINETO
    return ET if _NODES.search(head) else ""


def _unpacked(file: BinaryIO) -> Iterator[bytes]:
    """The file's bytes, unpacked, about a megabyte at a time."""
    block = file.read(_PACKED)
    if not block.startswith(b"\x1f\x8b"):
        while block:
            yield block
            block = file.read(_HEAD)
        return
    unpack = isal_zlib.decompressobj(wbits=31)
    while block and not unpack.eof:
        yield unpack.decompress(block, _HEAD)
        block = unpack.unconsumed_tail or file.read(_PACKED)
