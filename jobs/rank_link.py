"""Link one rank in any process, write it, and save its state. Skip the rank if it is already linked.

The state is stored in `.etplus-batch/rank_N.json` next to the outputs. The file contains the sizes and digests of the
inputs and the output, the options, the version, and facts for the job report. Unchanged ranks are not linked again."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np

from .. import __version__
from ..linker.captures import capture_files
from ..linker.pipeline import link
from ..schemas.comm_types import Group
from ..schemas.inductor.compile_files import find_compile_files
from ..schemas.parquet.parquet_writer import write_rank
from ..schemas.parquet.stored_folder import SUFFIXES
from ..schemas.parquet.stored_tables import files_of
from ..schemas.text.files import open_output
from ..schemas.text.storage import Folder, at, open_folder
from ..schemas.text.transaction import is_url, transaction
from ..trace.errors import UNREADABLE, EtplusError, UsageError
from ..trace.trace import Trace
from .job_report import RankResult
from .rank_communications import COLUMNS, RankCommunications, communications

_LOG = logging.getLogger("etplus")
STATE_FOLDER = ".etplus-batch"

Mark = list[Any]


@dataclass(frozen=True)
class RankTask:
    rank: int
    et: str  # name of a file in `source`, or a URL
    kineto: str  # name of a file in `source`, or a URL
    source: Folder  # folder that contains the inputs
    target: Folder  # folder that will contain the outputs
    # The rank fails if the share of its ET operators with any link or with a certain link is below these minimums.
    min_match: float
    min_certain: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)  # further arguments for `link`

    @property
    def columns(self) -> bool:
        """True if the output consists of columns. False if it is an ET+ file."""
        return PurePath(self.target.root).suffix in SUFFIXES

    @property
    def output(self) -> str:
        """Name in `target` of the ET+ file or of the file that describes the columns."""
        return self.outputs[-1]

    @property
    def outputs(self) -> list[str]:
        return files_of(self.rank) if self.columns else [f"rank_{self.rank}.etplus.json.gz"]

    def mark(self) -> Mark | None:
        """Return a value that is different if the output has changed, or None if the output is incomplete."""
        if not self.columns:
            return self.target.mark(self.output)
        marks = [self.target.mark(name) for name in self.outputs]
        return None if None in marks else marks

    def write(self, trace: Trace) -> None:
        if not self.columns:
            self.target.write(self.output, trace.write)
        elif not is_url(self.target.root):
            with transaction(nested=True):  # `Folder.write` does the same for a single file
                write_rank(trace, self.target.root, self.rank)
        else:
            with TemporaryDirectory(prefix="etplus-") as scratch:
                with transaction(nested=True):
                    write_rank(trace, scratch, self.rank)
                for name in self.outputs:
                    self.target.write(name, partial(write_bytes, data=Path(scratch, name).read_bytes()))

    @property
    def state(self) -> str:
        """Name of the file in `target` that contains the `RankState`."""
        return f"{STATE_FOLDER}/rank_{self.rank}.json"

    @property
    def captures(self) -> list[str]:
        return [file for name in self.options.get("graph_captures", ()) for file in capture_files(name)]

    @property
    def provenance(self) -> list[str]:
        given: list[str] | None = self.options.get("provenance")
        folder, base = at(self.source, self.kineto)
        return find_compile_files(folder.place(base)) if given is None else given


class RankState(msgspec.Struct):
    tool_version: str  # version of etplus that linked the rank
    options: dict[str, Any]  # options used to link the rank
    et: Mark | None  # result of `Folder.mark` for the file, None if the file is missing
    kineto: Mark | None
    output: Mark | None
    result: RankResult  # the rank's entry in the job report
    info: dict[str, Any]  # `distributedInfo` of the Kineto trace, {} if it has none
    # The process groups and columns of the rank's `RankCommunications`.
    # `table` contains the columns, concatenated as little-endian int64 values.
    groups: list[Group]
    table: bytes
    # Options that had no effect, because both traces record the same facts.
    unused: list[str] = msgspec.field(default_factory=list)

    def is_made_of(self, version: str, options: Mapping[str, Any], et: Mark | None, kineto: Mark | None) -> bool:
        """Return True if linking again would give the same output."""
        used, wanted = ({k: v for k, v in of.items() if k not in self.unused} for of in (self.options, options))
        return (self.tool_version, used, self.et, self.kineto) == (version, wanted, et, kineto)

    def communications(self) -> RankCommunications:
        columns = np.frombuffer(self.table, "<i8").astype(np.int64).reshape(len(COLUMNS), -1)
        return RankCommunications(tuple(self.groups), *columns)


def link_rank(task: RankTask) -> tuple[RankState, bool]:
    """Link a rank unless an earlier run linked it. Return its state, and True if an earlier run linked it."""
    wanted = (__version__, _options(task), _mark(task.source, task.et), _mark(task.source, task.kineto))
    before = _read_state(task)
    known = before is not None and before.is_made_of(*wanted) and None not in (*wanted, before.output)
    if before is not None and known and before.output == task.mark():
        return before, True
    result = _link(task)
    task.write(result)
    comms = communications(result)
    state = RankState(
        *wanted,
        output=task.mark(),
        result=_rank_result(task, result),
        info=result.distributed_info,
        groups=list(comms.groups),
        table=np.concatenate([getattr(comms, name) for name in COLUMNS]).astype("<i8").tobytes(),
        unused=_unused_options(task, result),
    )
    task.target.write(task.state, partial(write_bytes, data=msgspec.json.encode(state)))
    return state, False


def _unused_options(task: RankTask, linked: Trace) -> list[str]:
    identity = linked.report.identity
    proofs = {clue.by for clue in identity.proves} if identity is not None else set()
    unused = ["whole_job", "one_of_several"] if proofs & {"run", "rank"} else []
    return [*unused, "rank"] if "rank" in proofs and linked.distributed_info.get("rank") == task.rank else unused


def _options(task: RankTask) -> dict[str, Any]:
    files = {"graph_captures": task.captures, "provenance": task.provenance}
    marks = {
        key: [[name, open_folder(str(Path(name).parent)).mark(Path(name).name)] for name in names]
        for key, names in files.items()
        if names
    }
    return {**task.options, **marks, "min_match": task.min_match, "min_certain": task.min_certain}


def _mark(folder: Folder, name: str) -> Mark | None:
    folder, base = at(folder, name)
    return folder.mark(base)


def _link(task: RankTask) -> Trace:
    with TemporaryDirectory(prefix="etplus-") as scratch:
        paths = []
        for kind, name in (("et", task.et), ("kineto", task.kineto)):
            Path(scratch, kind).mkdir()
            folder, base = at(task.source, name)
            paths.append(folder.fetch(base, Path(scratch, kind)))
        try:
            return link(*paths, **task.options)
        except UsageError:
            raise
        except EtplusError as error:  # replace the names of local copies with the names that the user gave
            text = str(error)
            for path, name in zip(paths, (task.et, task.kineto), strict=True):
                text = text.replace(str(path), name)
            raise EtplusError(text) from error


def _rank_result(task: RankTask, linked: Trace) -> RankResult:
    report = linked.report
    window, base = report.windows["linked_ns"], linked.summary["kineto"]["base_time_ns"]
    reason, graphs = "", linked.captured.sentences if linked.captured is not None else []
    doubts = report.identity.doubts if report.identity else []
    if not report.reaches(task.min_match):
        cause = next(iter(linked.damage), f"{task.et} and {task.kineto} do not seem to belong together")
        reason = f"only {report.ops['linked']:,} of {report.ops['total']:,} ET ops are linked: {cause}"
    elif not report.reaches(task.min_match, task.min_certain):
        reason = f"only {report.ops['certain']:,} of {report.ops['total']:,} ET ops have a certain link: "
        reason += "; ".join(doubts) or "they fit several places in the Kineto trace"
    return RankResult(
        task.rank,
        "failed" if reason else "linked",
        reason,
        task.et,
        task.kineto,
        task.output,
        ops=report.ops["total"],
        **{key: report.ops[key] for key in ("linked", "certain", "unverified")},
        window_ns=(base + window[0], base + window[1]) if window else None,
        iterations=tuple(report.windows["linked_iterations"]),
        warnings=report.all_warnings(graphs),
    )


def _read_state(task: RankTask) -> RankState | None:
    # not decoded in schemas/, because no other program or version reads this file
    try:
        with task.target.open(task.state) as file:
            state = msgspec.json.decode(file.read(), type=RankState)
        state.communications()
    except (OSError, ValueError, *UNREADABLE):
        return None
    return state


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically, gzipped if its name ends in ".gz"."""
    with open_output(path) as file:
        file.write(data)
