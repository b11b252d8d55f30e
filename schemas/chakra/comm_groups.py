"""Process-group files next to Chakra traces, in ASTRA-sim's format: `{"<number>": [<rank>, ...], ...}`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...trace.errors import TraceFormatError
from ...trace.trace import Trace
from ..text.files import open_output, read_struct
from ..text.sniff import head_of

Groups = Mapping[int, Sequence[int]]  # Maps a process group's number to its ranks.
GROUPS_SUFFIX = ".comm_groups.json"
_NAMES_SUFFIX = ".comm_group_names.json"
_BEGIN = re.compile(rb'\s*\{\s*"[0-9]{1,10}"\s*:\s*\[\s*[0-9]')
_SHARED_NAMES = ("comm_group.json", "comm_groups.json")
_RANK_AND_SUFFIX = re.compile(r"(?:\.\d{1,6})?\.et(?:\.gz)?$", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,10}", re.ASCII)


def read_groups(path: str) -> dict[int, list[int]]:
    remedy = 'write {"<number>": [<rank>, ...], ...}'
    groups, _ = read_struct(path, dict[str, list[int]], "invalid group file", remedy)
    for name in groups:
        if not _NUMBER.fullmatch(name):
            raise TraceFormatError(path, "", f"invalid group number {name[:40]!r}", remedy)
    return {int(name): ranks for name, ranks in groups.items()}


def prefix_of(path: str) -> str:
    """Return the common prefix of a job's file names: "out/job" for "out/job.3.et.gz"."""
    return _RANK_AND_SUFFIX.sub("", path)


def find_groups(prefix: str) -> str | None:
    """Return the path of the group file that belongs to the files `<prefix>.<rank>.et`, or None.

    etplus writes `<prefix>.comm_groups.json`, and Chakra's symbolic trace generator writes `<prefix>.json`. ASTRA-sim's
    examples contain one `comm_group.json` per folder.
    """
    own = Path(f"{prefix}{GROUPS_SUFFIX}")
    if own.is_file():
        return str(own)
    others = [Path(f"{prefix}.json"), Path(f"{prefix}.comm_group.json"), *map(own.with_name, _SHARED_NAMES)]
    return next((str(path) for path in others if _BEGIN.match(head_of(str(path)))), None)


def group_name(value: Any) -> str:
    """Return a group's name in the form that the attribute `pg_name` uses; "" is the group of all ranks."""
    return "" if value in (None, "", "0", 0) else str(value)


def group_members(used: Mapping[int, Iterable[str]], groups: Groups | None) -> dict[str, tuple[int, ...]]:
    """Map each group's name to its ranks in `groups`, or to the ranks that use the group if `groups` lacks it."""
    members: dict[str, set[int]] = {}
    for rank, names in used.items():
        for name in names:
            if name:
                members.setdefault(name, set()).add(rank)
    known = {str(number): ranks for number, ranks in (groups or {}).items()}
    return {name: tuple(sorted(known.get(name, ranks))) for name, ranks in members.items()}


def with_groups(trace: Trace, groups: Groups) -> Trace:
    known = {str(number): list(ranks) for number, ranks in groups.items()}
    found = {
        row: msgspec.structs.replace(comm, pg_ranks=known[comm.pg_name], group_size=len(known[comm.pg_name]))
        for row, comm in trace.comm.items()
        if comm.pg_name in known
    }
    return trace.with_(comm={**trace.comm, **found}) if found else trace


def write_groups(prefix: str, groups: Groups, names: Mapping[int, str]) -> list[str]:
    tables: dict[str, Mapping[int, object]] = {GROUPS_SUFFIX: groups}
    if groups:
        tables[_NAMES_SUFFIX] = {number: names[number] for number in groups}
    paths = []
    for suffix, table in tables.items():
        paths.append(f"{prefix}{suffix}")
        with open_output(paths[-1]) as file:
            file.write(msgspec.json.encode({str(number): value for number, value in table.items()}) + b"\n")
    return paths
