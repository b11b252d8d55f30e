"""The files of process groups beside Chakra traces: `{"<number>": [<rank>, ...], ...}`, which ASTRA-sim is given."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ...trace.errors import TraceFormatError
from ..text.files import open_output, read_struct
from ..text.sniff import head_of

Groups = Mapping[int, Sequence[int]]
"""Number of a group to its ranks."""
GROUPS_SUFFIX = ".comm_groups.json"
_NAMES_SUFFIX = ".comm_group_names.json"
_BEGIN = re.compile(rb'\s*\{\s*"[0-9]{1,10}"\s*:\s*\[\s*[0-9]')
_NUMBER = re.compile(r"[0-9]{1,10}", re.ASCII)


def read_groups(path: str) -> dict[int, list[int]]:
    """Read a file of groups.

    Raises:
        TraceFormatError: it cannot be read, or is of another form.
    """
    remedy = 'write {"<number>": [<rank>, ...], ...}'
    groups, _ = read_struct(path, dict[str, list[int]], "invalid group file", remedy)
    for name in groups:
        if not _NUMBER.fullmatch(name):
            raise TraceFormatError(path, "", f"invalid group number {name[:40]!r}", remedy)
    return {int(name): ranks for name, ranks in groups.items()}


def group_file(prefix: str) -> str | None:
    """The file of groups next to a set, None if there is none: `<prefix>.comm_groups.json`, or a `<prefix>.json` that
    begins like one, as other producers name it."""
    own, other = Path(f"{prefix}{GROUPS_SUFFIX}"), Path(f"{prefix}.json")
    if own.is_file():
        return str(own)
    return str(other) if other.is_file() and _BEGIN.match(head_of(str(other))) else None


def read_group_names(prefix: str) -> list[str]:
    """The names of the groups of a set, as its traces call them; none where their file is missing or another one."""
    try:
        return list(read_struct(f"{prefix}{_NAMES_SUFFIX}", dict[str, str], "", "")[0].values())
    except TraceFormatError:
        return []


def write_groups(prefix: str, groups: Groups, names: Mapping[int, str]) -> list[str]:
    """Write `<prefix>.comm_groups.json` and, if there are groups, their names to `<prefix>.comm_group_names.json`.

    The group of all ranks is in neither: it has number 0, which needs no file.

    Args:
        names: number to name; of other groups, too.

    Returns:
        the names of the files.

    Raises:
        UsageError: a file cannot be written.
    """
    tables: dict[str, Mapping[int, object]] = {GROUPS_SUFFIX: groups}
    if groups:
        tables[_NAMES_SUFFIX] = {number: names[number] for number in groups}
    paths = []
    for suffix, table in tables.items():
        paths.append(f"{prefix}{suffix}")
        with open_output(paths[-1]) as file:
            file.write(msgspec.json.encode({str(number): value for number, value in table.items()}) + b"\n")
    return paths
