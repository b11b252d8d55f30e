"""Identify trace files by their names and first bytes, and find the kind, rank and process of each.

Common names are `rank-3.et.json.gz`, `pytorch_et_3.json`, and the names of PyTorch's `tensorboard_trace_handler`:
`worker3_step_12.1694128201545.pt.trace.json` and `host_4711.1694128201545.pt.trace.json` (worker name, or host and
process id; then a time in ms). Kineto writes `distributedInfo` before `traceEvents`; an ET's first node has its process
groups."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Final, Literal

from isal import isal_zlib

from ..schemas.execution_trace.arguments import process_groups
from ..schemas.nsys import find_ranks, is_nsys
from ..schemas.text.sniff import begins_like_kineto, begins_like_nodes, is_pftrace, unpacked
from ..schemas.text.storage import Folder
from ..schemas.text.transaction import is_url
from ..trace.errors import EtplusError
from .rank_claims import INIT, Claim, group_ranks

Kind = Literal["ET", "Kineto trace", ""]
ET: Final[Kind] = "ET"
KINETO: Final[Kind] = "Kineto trace"

_NO_TRACE = re.compile(r"\.etplus\.json|_plus\.json|\.comm_groups\.json|\.links\.json")
_ET_WORD = re.compile(r"(?<![a-z0-9])(?:et|execution[._-]?(?:trace|graph)|host[._-]?trace)(?![a-z])")
_KINETO_WORD = re.compile(r"(?<![a-z0-9])(?:kineto(?:[._-]?trace)?|pt\.trace|device[._-]?trace)(?![a-z])")
# The pattern excludes local ranks, because they differ from the rank in the job.
_RANK = re.compile(r"(?<!local)(?<!local[._-])(?<![a-z])rank[-_.]?(\d{1,6})(?!\d)")
_RANK_FOLDER = re.compile(r"rank[-_.]?(\d{1,6})")
_NUMBERED = re.compile(r"\.(\d{1,6})\.(?:et|json)", re.ASCII | re.IGNORECASE)
_MAYBE_RANK = re.compile(
    r"(?<![a-z])worker[-_]?(\d{1,6})(?!\d)|^(\d{1,6})$|"
    r"(?<!step)(?<!iter)(?<!iteration)(?<!epoch)(?:^|[._-])(\d{1,6})(?:(?:\.pt\.trace)?\.json|\.sqlite|\.pftrace)"
)
_PROCESS = re.compile(r"_(\d{1,10})\.\d{10,20}\.pt\.trace\.json|_(\d{1,10})\.(?:et\.)?json")
_NOT_STEM = re.compile(r"\.(?:json|sqlite|pftrace)(?:\.gz)?$|\.\d{10,20}(?=\.)|(?<![a-z0-9])pytorch(?![a-z])")
_SEPARATORS = re.compile(r"[._\-]*/[._\-]*|[._\-]+")

_JSON = (".json", ".json.gz")
# Suffixes of timelines that are not JSON: exports from Nsight Systems, and Perfetto traces.
_TIMELINES = (".sqlite", ".sqlite.gz", ".pftrace", ".pftrace.gz")
_NSYS = (".sqlite", ".sqlite.gz")

_HEAD = 1 << 20
_OVERLAP = 1 << 12
_RANK_INSIDE = re.compile(
    rb'"distributedInfo"\s*:\s*\{(?:[^{}"]|"(?:[^"\\]|\\.)*"(?!\s*:\s*[{\[]))*?"rank"\s*:\s*(\d{1,6})\b'
)
_WORLD_INSIDE = re.compile(rb'"world_size"\s*:\s*(\d{1,9})\b')
_GROUPS_INSIDE = re.compile(rb'%s"[^\[\]]*\[\s*("\[(?:[^"\\]|\\.)*\]")' % re.escape(INIT.encode()))
_ET_PID = re.compile(rb'"pid"\s*:\s*(\d{1,18})\b')
_KINETO_PID = re.compile(rb'"cat"\s*:\s*"cpu_op"[^{}]*?"pid"\s*:\s*"?(\d{1,18})\b')


@dataclass(frozen=True)
class TraceFile:
    name: str  # path of the file below the folder
    kind: Kind  # ET or KINETO, "" for other files
    named: int | None = None  # rank in the file name ("rank3"); None if there is none
    inside: int | None = None  # rank in the contents: `distributedInfo`, or the one rank that all process groups share
    maybe: int | None = None  # number in the file name that could be the rank
    process: int = -1  # number in the file name that could be the process id; −1 if there is none
    stem: str = ""  # file name without the parts that distinguish an ET from a Kineto trace
    ranks: frozenset[int] | None = None  # ranks that the contents allow; None if unknown
    world_size: int | None = None  # number of ranks in the job according to the contents; None if unknown
    pid: int = -1  # process id in the contents; −1 if unknown
    settled: bool = True  # False if the rank was found only by process id or by elimination
    shared: bool = False  # True if the file contains several ranks (an Nsight Systems export or a merged Kineto trace)

    @property
    def rank(self) -> int | None:
        return next((rank for rank in (self.named, self.inside, self.maybe) if rank is not None), None)

    @property
    def evidence(self) -> int:
        """Evidence for the rank: 3 if it is in the file name, 2 if in the contents, 1 for a plain number, else 0."""
        return next((3 - i for i, rank in enumerate((self.named, self.inside, self.maybe)) if rank is not None), 0)


def file_rank(path: str) -> int | None:
    """Return the rank in a file's name, or else in its folder's name if that consists only of the rank.

    Example:
        >>> file_rank("job/step_7.rank3.et.json.gz"), file_rank("job/rank_3/et.json"), file_rank("rank3_tuning/et.json")
        (3, 3, None)
    """
    parts = PurePath(path.lower()).parts[-2:]
    found = _RANK.search(parts[-1]) if parts else None
    if found is None and parts:
        found = _RANK_FOLDER.fullmatch(parts[0])
    return int(found[1]) if found else None


def number_before_suffix(path: str) -> int | None:
    """Return the number that stands just before ".et" or ".json" in the name of a converter's output file.

    Example:
        >>> number_before_suffix("out/trace.3.et"), number_before_suffix("trace.et")
        (3, None)
    """
    found = _NUMBERED.search(PurePath(path).name)
    return int(found[1]) if found else None


def look_at(folder: Folder, name: str, kind: Kind = "") -> TraceFile:
    """Identify a file. Open it only if its name does not show kind and rank, or if it may contain several ranks."""
    lower = name.lower()
    if not kind and (_NO_TRACE.search(lower) or not lower.endswith((*_JSON, *_TIMELINES))):
        return TraceFile(name, "")
    base = lower.rpartition("/")[2]
    if lower.endswith(_TIMELINES):
        shared = lower.endswith(_NSYS) and _has_several_ranks(folder, name)
        maybe = _number(_MAYBE_RANK, lower)
        return TraceFile(name, KINETO, _number(_RANK, lower), maybe=maybe, stem=_stem(lower), shared=shared)
    by_name: list[Kind] = [k for k, word in ((ET, _ET_WORD), (KINETO, _KINETO_WORD)) if word.search(base)]
    if not kind and len(by_name) == 1:
        kind = by_name[0]
    named, claim, pid = _number(_RANK, lower), Claim(), -1
    if not kind or named is None:
        kind, claim, pid = _look_inside(folder, name, kind, named is None)
    process = _PROCESS.search(base)
    number = int(process[1] or process[2]) if process else -1
    inside: dict[str, Any] = {"inside": claim.rank, "ranks": claim.ranks, "world_size": claim.world_size, "pid": pid}
    maybe = _number(_MAYBE_RANK, lower)
    return TraceFile(name, kind, named, maybe=maybe, process=number, stem=_stem(lower), **inside)


def kind_inside(file: str | os.PathLike[str]) -> Kind:
    """Return a file's kind based on its contents; "" if they are unclear or unreadable (linking reports it later)."""
    if is_nsys(file):
        return KINETO
    if not os.path.isfile(file):  # noqa: PTH113 (False for impossible names); a pipe can be read once only
        return ""
    seen = b""
    try:
        with Path(file).open("rb") as stream:
            for block in unpacked(stream):
                seen += block
                if len(seen) >= _HEAD:
                    break
    except (OSError, isal_zlib.error):  # type: ignore[misc]
        pass
    return KINETO if is_pftrace(seen) else _kind_of(seen)


def _has_several_ranks(folder: Folder, name: str) -> bool:
    if is_url(folder.root):
        return False
    try:
        return len(find_ranks(folder.place(name))) > 1
    except EtplusError:
        return False


def is_merged(folder: Folder, name: str) -> bool:
    """Return True if the file contains the Kineto traces of several ranks."""
    from ..schemas.kineto.processes import processes_of
    from ..schemas.kineto.read_kineto import read_kineto

    if is_url(folder.root):
        return False
    try:
        return bool(processes_of(read_kineto(folder.place(name))))
    except EtplusError:
        return False


def _number(pattern: re.Pattern[str], name: str) -> int | None:
    for part in reversed(name.split("/")):
        found = pattern.search(part)
        if found:
            return next(int(group) for group in found.groups() if group is not None)
    return None


def _stem(name: str) -> str:
    for pattern in (_NOT_STEM, _ET_WORD, _KINETO_WORD):
        name = pattern.sub("", name)
    return _SEPARATORS.sub(lambda found: "/" if "/" in found[0] else "_", name).strip("_")


def begins_with(folder: Folder, name: str, kind: Kind) -> TraceFile:
    _, claim, pid = _look_inside(folder, name, kind, search=False)
    return TraceFile(name, kind, inside=claim.rank, ranks=claim.ranks, world_size=claim.world_size, pid=pid)


def _look_inside(folder: Folder, name: str, kind: Kind, search: bool) -> tuple[Kind, Claim, int]:
    """Read kind, claim and process id at the beginning of a file. `search` finds `distributedInfo` anywhere."""
    seen, first, pid = b"", True, -1
    try:
        with folder.open(name) as file:
            for block in unpacked(file):
                seen += block
                if first and len(seen) < _HEAD and b'"traceEvents"' not in seen:
                    continue
                kind = kind or _kind_of(seen)
                if kind != KINETO:
                    break
                if first:
                    pid = _integer(_KINETO_PID, seen, -1)
                first = False
                if not search or _RANK_INSIDE.search(seen):
                    break
                seen = seen[-_OVERLAP:]
    except (OSError, isal_zlib.error):  # type: ignore[misc]
        pass
    kind = kind or _kind_of(seen)
    if kind == ET:
        groups = _GROUPS_INSIDE.search(seen)
        claim = group_ranks((process_groups(groups[1], quoted=True) if groups else None) or [])
        return kind, claim, _integer(_ET_PID, seen.partition(b'"nodes"')[0], -1)
    found = _RANK_INSIDE.search(seen)
    rank = None if found is None else frozenset((int(found[1]),))
    world_size = None if found is None else _integer(_WORLD_INSIDE, seen[found.start() :], 0) or None
    return kind, Claim(rank, world_size), pid if pid >= 0 else _integer(_KINETO_PID, seen, -1)


def _integer(pattern: re.Pattern[bytes], text: bytes, none: int) -> int:
    found = pattern.search(text)
    return int(found[1]) if found else none


def _kind_of(head: bytes) -> Kind:
    return KINETO if begins_like_kineto(head) else ET if begins_like_nodes(head) else ""
