"""Traces as inputs of a command: ET+, Kineto traces, .et, a pair to link, folders of these, standard input."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..converters.open import load
from ..linker import link
from ..linker.job.naming import ET, KINETO, look_at
from ..linker.job.pairing import find_pairs
from ..linker.job.storage import Folder, open_folder
from ..schemas.job_report import read_job_report
from ..trace.errors import UsageError
from ..trace.trace import Trace
from .damage import print_warnings

__all__ = ["Pair", "TraceInput", "add_inputs", "find_inputs", "input_files", "read_input", "read_inputs"]

_STDIN = "-"
_JOB_REPORT = "job_report.json"
_ETPLUS = re.compile(r"(?:\.etplus|_plus)\.json(?:\.gz)?$")
_CHAKRA = re.compile(r"\.et(?:\.gz)?$")


@dataclass(frozen=True)
class Pair:
    """An Execution Trace and a Kineto trace to link.

    Attributes:
        rank: of both, where an option or the folder says it.
    """

    et: str
    kineto: str
    rank: int | None = None


TraceInput = str | Pair
"""A file that is a trace by itself ("-" is standard input), or a pair."""


def add_inputs(parser: argparse.ArgumentParser, use: str = "") -> None:
    """Add the arguments that name traces; every command that reads traces takes the same.

    Args:
        use: what several of them are for the command, for the help.
    """
    several = f"; {use}" if use else ""
    parser.add_argument("files", nargs="*", metavar="FILE",
        help=f"ET+, Kineto trace, Chakra trace (.et), or a folder of these, such as the output of etplus batch; "
        f"- for standard input{several}")  # fmt: skip
    group = parser.add_argument_group("a pair to link in place of a FILE")
    group.add_argument("--et-file", metavar="FILE", help="Execution Trace; - for standard input")
    group.add_argument("--kineto-file", metavar="FILE", help="Kineto trace; - for standard input")


def find_inputs(arguments: argparse.Namespace, count: int | None = None) -> list[TraceInput]:
    """The traces that a command line names: the pair first, then the FILEs, folders replaced by what they hold.

    Args:
        count: how many there have to be; None for one or more.

    Raises:
        UsageError: not so many, an ET without its Kineto trace, standard input twice, or a folder without traces.
    """
    found: list[TraceInput] = []
    if arguments.kineto_file is not None:
        et, kineto = arguments.et_file, arguments.kineto_file
        found.append(kineto if et is None else Pair(et, kineto))
    elif arguments.et_file is not None:
        raise UsageError(f"--et-file {arguments.et_file}: --kineto-file is missing; give the trace to link it with")
    for file in [*getattr(arguments, "first_files", ()), *arguments.files]:
        found += _in_folder(file) if os.path.isdir(file) else [file]  # noqa: PTH112 (False for impossible names)
    if not found:
        raise UsageError("no trace was given; give a FILE, a folder, or --et-file and --kineto-file")
    if count is not None and len(found) != count:
        raise UsageError(f"{len(found)} trace{'s were' if len(found) > 1 else ' was'} given; give {count}")
    if input_files(found).count(_STDIN) > 1:
        raise UsageError("standard input (-) can be one trace only; give the others file names")
    return found


def input_files(inputs: Sequence[TraceInput]) -> list[str]:
    """The names of the files that are read."""
    return [name for one in inputs for name in ((one.et, one.kineto) if isinstance(one, Pair) else (one,))]


def read_inputs(inputs: Sequence[TraceInput]) -> Iterator[Trace]:
    """Read or link one trace after the other, so that only those in use take memory."""
    return map(read_input, inputs)


def read_input(one: TraceInput) -> Trace:
    """Read a trace of any format, or link a pair and report on standard error how much of it was linked."""
    if not isinstance(one, Pair):
        return load(one, progress=True)
    trace = link(one.et, one.kineto, rank=one.rank, progress=True)
    ops = trace.report.ops
    print(f"linked  {ops['linked']:,} of {ops['total']:,} ET ops ({trace.report.linked_share:.2%})", file=sys.stderr)
    print_warnings(trace.report.warnings)
    return trace


def _in_folder(folder: str) -> Sequence[TraceInput]:
    """The traces in a folder and below, those of one kind: ET+, else .et, else pairs and Kineto traces.

    The other kinds are, as a rule, what these were made of or made into; how many are left out is printed.
    """
    if (Path(folder) / _JOB_REPORT).is_file():
        return _of_batch(Path(folder))
    place = open_folder(folder)
    names = sorted((name for name in place.files() if not name.startswith(".")), key=_by_number)
    etplus, chakra = ([name for name in names if kind.search(name)] for kind in (_ETPLUS, _CHAKRA))
    raw = {name: look_at(place, name).kind for name in names if name not in {*etplus, *chakra}}
    recorded = [name for name, kind in raw.items() if kind]
    kinds = [(etplus, "ET+"), (chakra, "Chakra traces"), (recorded, "recorded traces")]
    present = [(files, kind) for files, kind in kinds if files]
    if not present:
        raise UsageError(f"{folder}: no ET+, Kineto or Chakra trace among {len(names)} files; give a trace")
    (files, kind), *others = present
    if others:
        left = " and ".join(f"{len(those)} {what}" for those, what in others)
        print_warnings([f"{folder}: its {len(files)} {kind} are read, its {left} are not"])
    if files is recorded and any(raw[name] != KINETO for name in recorded):
        return _pairs(place)
    return [str(Path(folder) / name) for name in files]


def _of_batch(folder: Path) -> Sequence[TraceInput]:
    """The ranks that `etplus batch` linked; those that it could not link are named."""
    job = read_job_report(folder / _JOB_REPORT)
    lacking = [f"rank {one.rank} ({one.reason})" for one in job.failed]
    lacking += [f"ranks {job.missing} (no files)"] if job.missing else []
    print_warnings(f"{folder}: {one} was not linked and is left out" for one in lacking)
    found = [str(folder / Path(one.output).name) for one in job.ranks if one.output and one.status == "linked"]
    if not found:
        raise UsageError(f"{folder}: no rank of this job was linked; see {_JOB_REPORT}")
    return found


def _pairs(place: Folder) -> Sequence[TraceInput]:
    """Pairs of an Execution Trace and a Kineto trace, as `etplus batch` finds them."""
    folder = place.root
    pairing = find_pairs(place)
    print_warnings(f"{folder}: rank {one.rank}: {one.problem}" for one in pairing.ranks if one.problem)
    print_warnings(f"{folder}: {note}" for note in pairing.notes)
    found = [
        Pair(str(Path(folder) / one.et), str(Path(folder) / one.kineto), one.rank if one.settled else None)
        for one in pairing.ranks
        if not one.problem
    ]
    if not found:
        raise UsageError(f"{folder}: no {ET} and Kineto trace belong together; give the files, or run etplus batch")
    return found


def _by_number(name: str) -> list[tuple[int, int, str]]:
    """Key of an order in which rank_2 precedes rank_10."""
    parts = re.split(r"(\d+)", name)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]
