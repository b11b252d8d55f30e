"""Find traces in a folder: outputs of `etplus link FOLDER`, ET+ files, Chakra traces, pairs to link, and timelines."""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..jobs.job_report import JobReport, read_job_report
from ..schemas.parquet.stored_folder import StoredRank, stored_ranks
from ..schemas.text.file_ranks import FileRank
from ..trace.errors import UsageError

if TYPE_CHECKING:
    from ..schemas.text.storage import Folder

_GLOB = frozenset("*?[")
_JOB_REPORT = "job_report.json"
_ETPLUS = re.compile(r"(?:\.etplus|_plus)\.json(?:\.gz)?$")
_CHAKRA = re.compile(r"\.et(?:\.gz)?$")


@dataclass(frozen=True)
class InputPair:
    """An Execution Trace and a timeline to link. `rank` is set only if an option or the folder determines it."""

    et: str
    kineto: str | FileRank
    rank: int | None = None
    one_of_several: bool = False

    def __fspath__(self) -> str:
        return os.fspath(self.kineto)


# The first list contains the traces, and the second contains notes on omitted files.
Found = tuple[list[str | InputPair], list[str]]


def is_pattern(name: str) -> bool:
    return bool(_GLOB & set(name)) and not os.path.lexists(name)


def named_by(pattern: str) -> list[str]:
    return sorted(glob.glob(pattern))  # noqa: PTH207 (of any path)


def traces_in(folder: str) -> Found:
    """Return the ET+ files in a folder and its subfolders. If a folder has no ET+ files, return .et files, or else
    pairs and Kineto traces. Notes count omitted traces. Raise UsageError if there are no traces."""
    if (Path(folder) / _JOB_REPORT).is_file():
        return _of_batch(Path(folder))
    from ..linker.naming import KINETO, look_at
    from ..schemas.text.storage import open_folder

    place = open_folder(folder)
    names = sorted((name for name in place.files() if not name.startswith(".")), key=_by_number)
    etplus, chakra = ([name for name in names if kind.search(name)] for kind in (_ETPLUS, _CHAKRA))
    raw = {name: look_at(place, name).kind for name in names if name not in {*etplus, *chakra}}
    recorded = [name for name, kind in raw.items() if kind]
    kinds = [(etplus, "ET+"), (chakra, "Chakra traces"), (recorded, "recorded traces")]
    present = [(files, kind) for files, kind in kinds if files]
    if not present:
        raise UsageError(f"{folder}: no ET+, Kineto or Chakra trace among {len(names)} files; pass a trace")
    notes: list[str] = []
    (files, kind), *others = present
    if others:
        left = " and ".join(f"{len(names_of_kind)} {other}" for names_of_kind, other in others)
        notes.append(f"{folder}: etplus reads the {len(files)} {kind} and ignores the {left}")
    if files is recorded and any(raw[name] != KINETO for name in recorded):
        pairs, more = _pairs(place)
        return pairs, notes + more
    return [str(Path(folder) / name) for name in files], notes


def stored_in(folder: str) -> tuple[list[str | StoredRank], list[str]]:
    ranks = stored_ranks(folder)
    if not ranks or not (Path(folder) / _JOB_REPORT).is_file():
        return [*ranks] or [folder], []
    job = read_job_report(Path(folder) / _JOB_REPORT)
    linked = {rank.rank for rank in job.ranks if rank.status == "linked"}
    return [found for found in ranks if found.rank in linked], _lacking(folder, job)


def _lacking(folder: str | Path, job: JobReport) -> list[str]:
    lacking = [f"rank {rank.rank} ({rank.reason})" for rank in job.failed]
    lacking += [f"ranks {job.missing} (no files)"] if job.missing else []
    return [f"{folder}: {ranks} was not linked and is left out" for ranks in lacking]


def _of_batch(folder: Path) -> Found:
    job = read_job_report(folder / _JOB_REPORT)
    outputs = [str(folder / Path(rank.output).name) for rank in job.ranks if rank.output and rank.status == "linked"]
    if not outputs:
        raise UsageError(f"{folder}: no rank of this job was linked; see {_JOB_REPORT}")
    return [*outputs], _lacking(folder, job)


def _pairs(place: Folder) -> Found:
    from ..jobs.pairing import find_pairs
    from ..linker.naming import ET

    folder = place.root
    pairing = find_pairs(place)
    notes = [f"{folder}: rank {rank.rank}: {rank.problem}" for rank in pairing.ranks if rank.problem]
    notes += [f"{folder}: {note}" for note in pairing.notes]
    several = len(pairing.ranks) > 1
    pairs = [
        InputPair(place.place(rank.et), place.place(rank.kineto), rank.rank if rank.settled else None, several)
        for rank in pairing.ranks
        if not rank.problem
    ]
    if not pairs:
        raise UsageError(f"{folder}: no {ET} matches a Kineto trace; pair the files with etplus link")
    return [*pairs], notes


def _by_number(name: str) -> list[Any]:
    """Return a sort key in which strings and numbers alternate, so that rank_2 comes before rank_10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]
