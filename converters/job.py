"""A job: the traces of its ranks, read when they are asked for, and what is asked of all of them."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast, overload

from ..analysis.job_tables import JobAnalysis, JobCollective, RankLateness, job_collectives
from ..analysis.summary import analyse
from ..analysis.table import Table
from ..findings.case import Case
from ..findings.find import Findings, find_findings
from ..jobs.job_ranks import check_job, job_trace
from ..jobs.rank_communications import RankCommunications, communications
from ..replaying.graph_replay import Replay
from ..replaying.replay_ranks import replay_ranks
from ..schemas.nsys import NsysRank, is_nsys
from ..schemas.parquet import StoredRank, is_stored, stored_ranks
from ..schemas.text.files import Source as OneSource
from ..trace.errors import UsageError
from ..trace.selection import part_of
from ..trace.trace import Trace
from .folder import InputPair, traces_in
from .open import load as load_one
from .traces import Source, Traces

if TYPE_CHECKING:
    from ..analysis.sql import QueryResult

_GLOB = frozenset("*?[")


class Job:
    """The ranks of a job.

    Ranks are read when they are asked for, and only the last one is kept: what is asked of all of them takes the memory
    of the largest rank and of the answer.

    Attributes:
        ranks: traces by rank. notes: what was left out of a folder, in sentences.

    Raises:
        UsageError: no trace, or two of one rank.

    Example:
        >>> import etplus
        >>> job = etplus.load(["et_plus.json.gz"])
        >>> job
        <Job of 1 rank>
        >>> job.ranks[0].kernels[0].name == trace.kernels[0].name
        True
    """

    def __init__(self, sources: Sequence[Source], *, notes: Sequence[str] = ()) -> None:
        if not sources:
            raise UsageError("no trace was given; give the files of a job's ranks, or their folder")
        self.ranks: Mapping[int, Trace] = Traces(_with_stored_ranks(sources))
        self.notes = tuple(notes)

    def __len__(self) -> int:
        return len(self.ranks)

    def __iter__(self) -> Iterator[Trace]:
        return iter(self.ranks.values())

    def __getitem__(self, rank: int) -> Trace:
        try:
            return self.ranks[rank]
        except KeyError:
            raise KeyError(f"no rank {rank}; there are {', '.join(map(str, sorted(self.ranks)))}") from None

    def __repr__(self) -> str:
        return f"<Job of {len(self):,} rank{'' if len(self) == 1 else 's'}>"  # which ones only reading them all shows

    def part(self, *, steps: str | None = None, window: str | None = None) -> Job:
        """Some iterations or a time of every rank, see `etplus.trace.selection.part_of`."""
        return Job([part_of(trace, steps=steps, window=window) for trace in self])

    def analyze(self, **options: Any) -> JobAnalysis:
        """The tables of `Trace.analyze` of all ranks, each row with its rank.

        Example:
            >>> import etplus
            >>> etplus.load(["et_plus.json.gz"]).analyze().device_use.to_pandas()["rank"].tolist()
            [0]
        """
        found = JobAnalysis()
        for rank, trace in self.ranks.items():
            found.add(rank, analyse(trace, **options))
        return found

    @cached_property
    def _collectives(self) -> tuple[Table[JobCollective], Table[RankLateness]]:
        known: dict[int, RankCommunications] = {}
        facts = []
        for rank, trace in self.ranks.items():
            facts.append(job_trace(trace))
            known[rank] = communications(trace)
        check_job(facts)
        return job_collectives(known)

    @property
    def collectives(self) -> Table[JobCollective]:
        """The collectives that all ranks of a group have alike, in order of time, with who came last.

        Raises:
            UsageError: the traces are not of one job.
        """
        return self._collectives[0]

    @property
    def stragglers(self) -> Table[RankLateness]:
        """How often each rank came last, and how long others waited for it; the most harmful first.

        Raises:
            UsageError: the traces are not of one job.
        """
        return self._collectives[1]

    def replay(self, *what_ifs: str, network: str | None = None) -> Replay:
        """Predict the timeline of all ranks together, with changes if any are given; see docs/replay.md.

        Args:
            what_ifs: such as "kernel*0.5", applied in order.
            network: such as "bandwidth=25,latency=5us", what communications are priced on first.

        Raises:
            ConvertError: a trace without times.
            UsageError: a change that is not understood, or nothing to price on a network.
        """
        from ..analysis.event_bounds import row_bounds  # for few changes

        return replay_ranks(list(self), what_ifs, network, lambda: row_bounds(list(self)))

    def findings(self) -> Findings:
        """What is wrong on any rank or between them, the largest gain first; see docs/findings.md.

        All ranks are replayed together, so their traces are in memory at a time.

        Example:
            >>> import etplus
            >>> [finding.id for finding in etplus.load(["et_plus.json.gz"]).findings() if not finding.evidence]
            []
        """
        return find_findings(Case(list(self)))

    def sql(self, query: str, *, memory: str = "2GB") -> QueryResult:
        """The rows that a SELECT finds in the tables of all ranks; see docs/columns.md.

        Raises:
            UsageError: an error in the query, or DuckDB is not installed.
        """
        from ..analysis.sql import SqlTables

        return SqlTables(dict(self.ranks), memory=memory).query(query)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all ranks: a folder of columns for .parquet, else the format that the suffix stands for.

        Raises:
            UsageError: an unknown suffix, or it cannot be written.
            ConvertError: the format cannot hold the job.
        """
        from .convert import convert

        convert(list(self), path)

    def write_report(self, path: str | os.PathLike[str], *, title: str = "") -> None:
        """Write one HTML page about all ranks, see `Trace.write_report`."""
        from ..trace.library import write_job_report

        write_job_report(self.ranks, path, title=title)


def open_job(sources: Sequence[Source] | str | os.PathLike[str]) -> Job:
    """The job of some traces, of a folder, or of the files that a pattern names.

    Raises:
        UsageError: there are none.
    """
    if not isinstance(sources, (str, os.PathLike)):
        return Job(list(sources))
    name = os.fspath(sources)
    if is_stored(name):
        return Job([name])
    if os.path.isdir(name):  # noqa: PTH112 (False for impossible names)
        found, notes = traces_in(name)
        return Job(found, notes=notes)
    if os.path.basename(name) == "job_report.json":  # noqa: PTH119
        return open_job(os.path.dirname(name) or ".")  # noqa: PTH120
    files = sorted(glob.glob(name))  # noqa: PTH207 (of any path)
    if not files:
        raise UsageError(f"{name}: no file has such a name")
    return Job(files)


def names_a_job(source: Any) -> bool:
    """Whether what is to be loaded is several traces: a list, a folder that is no format of its own, or a pattern."""
    if isinstance(source, (list, tuple)):
        return True
    if not isinstance(source, (str, os.PathLike)) or isinstance(source, (StoredRank, NsysRank, InputPair)):
        return False
    name = os.fspath(source)
    if os.path.isdir(name):  # noqa: PTH112 (False for impossible names)
        return len(stored_ranks(name)) > 1 or not (is_stored(name) or is_nsys(name))
    return (not os.path.lexists(name) and bool(_GLOB & set(name))) or os.path.basename(name) == "job_report.json"  # noqa: PTH119


def _with_stored_ranks(sources: Sequence[Source]) -> list[Source]:
    """Folders of columns by their ranks."""
    found: list[Source] = []
    for source in sources:
        ranks = stored_ranks(source) if isinstance(source, (str, os.PathLike)) and is_stored(source) else []
        found += ranks or [source]
    return found


@overload
def load(source: OneSource, *, rank: int | None = None, progress: bool = False) -> Trace: ...
@overload
def load(source: list[Any] | tuple[Any, ...], *, rank: None = None, progress: bool = False) -> Job: ...
def load(
    source: OneSource | list[Any] | tuple[Any, ...], *, rank: int | None = None, progress: bool = False
) -> Trace | Job:  # fmt: skip
    """Read a trace of any format that etplus knows, or the ranks of a job.

    A list of traces is a job, and so are at run time a folder, a pattern such as "out/rank*.json.gz" and a
    job_report.json of `etplus batch`. Anything else is one trace; see `etplus.converters.open.load` for its formats.

    Args:
        source: path, "-" for standard input, bytes, binary file object; or several.
        rank: of what holds several ranks, the one to read.
        progress: show a bar for reading that takes over two seconds.

    Raises:
        TraceFormatError: no trace, or broken beyond recovery.
        UsageError: several ranks of one file, and none is chosen; a folder without traces.

    Example:
        >>> load("et_plus.json.gz").kernels.matching("gemm")[2]
        <kernel sm90_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage… 83.1 µs>
        >>> load(["et_plus.json.gz"]).ranks[0].steps[0].name
        'ProfilerStep#2'
    """
    if not names_a_job(source):
        return load_one(cast("OneSource", source), rank=rank, progress=progress)
    job = open_job(cast("Sequence[Source] | str", source))
    return job if rank is None else job[rank]
