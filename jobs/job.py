"""A job: the traces of its ranks, read when they are asked for, and what is asked of all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast, overload

from ..analysis.findings.case import Case
from ..analysis.findings.find import Findings, find_findings
from ..analysis.job_diff import JobDifference, compared_rank, job_difference
from ..analysis.job_summary import JobSummary, job_summary, rank_contribution
from ..analysis.job_tables import JobAnalysis, JobCollective, RankLateness, job_collectives
from ..analysis.summary import analyse, tables_of
from ..analysis.table import Table
from ..converters.folder import InputPair, is_pattern, named_by, stored_in, traces_in
from ..converters.open import load as load_one
from ..converters.rank_calls import run_on
from ..converters.traces import Source, Traces, name_of
from ..schemas.nsys import is_nsys
from ..schemas.parquet import StoredRank, is_stored, stored_ranks
from ..schemas.text.file_ranks import FileRank, ProcessRank, SeveralRanksError
from ..schemas.text.files import Source as OneSource
from ..timeline.graph_replay import Replay
from ..timeline.replay_ranks import replay_ranks
from ..trace.errors import UsageError
from ..trace.library import HTA_CALLS, MOST_IN_FULL
from ..trace.selection import part_of, ranks_of, window_text
from ..trace.suggest import Suggests
from ..trace.trace import Trace
from .engines import Engine, engine_of
from .job_ranks import JobTrace, check_job, job_trace
from .rank_communications import RankCommunications, communications, stored_communications

if TYPE_CHECKING:
    from ..analysis.findings.trace_changes import TraceChanges
    from ..analysis.questions.answer import Answer
    from ..analysis.questions.asked_traces import AskedTraces
    from ..analysis.sql import QueryResult

_Answer = TypeVar("_Answer")


class Job(Suggests):
    """The ranks of a job.

    Ranks are read when they are asked for, and only the last one is kept: what is asked of all of them takes the memory
    of the largest rank and of the answer. It is asked beside the data: in this process, or where `on` says.

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

    guesses: ClassVar[dict[str, str]] = {
        **HTA_CALLS, "get_profiler_steps": "`ranks[0].steps`", "critical_path_analysis": "`ranks[0].critical_path()`",
        "head": "`analyze().kernels.to_pandas().head()`", "rank": "`ranks[3]`",
        "traces": "`ranks`, or iterate over the job", "kernels": "`analyze().kernels`, or `ranks[0].kernels`",
        "ops": "`analyze().operators`, or `ranks[0].ops`", "operators": "`analyze().operators`",
        "world_size": "`len(job)`", "get_potential_stragglers": "`stragglers`", "iterations": "`ranks[0].steps`",
        "steps": "`ranks[0].steps`; `step(1)` is an iteration of every rank",
        "to_pandas": "`analyze().kernels.to_pandas()` and the other tables of `analyze()`",
        "critical_path": "`ranks[0].critical_path()`", "diff": "`etplus.diff(job, other)`",
        "what_if": '`replay("comm*0.5")`', "plot": '`write_report("job.html")`', "show": '`write_report("job.html")`',
    }  # fmt: skip

    def __init__(self, sources: Sequence[Source], *, notes: Sequence[str] = ()) -> None:
        if not sources:
            raise UsageError("no trace was given; give the files of a job's ranks, or their folder")
        found, left = _with_stored_ranks(sources)
        self._set(_ChosenTraces(tuple(found)), (*notes, *left), None)

    def _set(self, chosen: _ChosenTraces, notes: tuple[str, ...], engine: Engine | None) -> None:
        self._chosen, self.notes, self._engine = chosen, notes, engine
        self._found: list[int] | None = None
        self.ranks: Mapping[int, Trace] = Traces(chosen.sources, ranks=chosen.ranks, choose=chosen.choose)

    def _with(self, chosen: _ChosenTraces | None = None, engine: Engine | None = None) -> Job:
        other = Job.__new__(Job)
        other._set(chosen or self._chosen, self.notes, engine or self._engine)
        return other

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

    @property
    def name(self) -> str:
        """What holds the traces, for messages: a file, or the folder that all are in."""
        names = list(dict.fromkeys(name_of(source) for source in self._chosen.sources))
        folders = {os.path.dirname(name) for name in names}  # noqa: PTH120
        in_one = len(names) > 1 and len(folders) == 1
        return (folders.pop() if in_one else "") or f"{names[0]}{f' and {len(names) - 1} more' * (len(names) > 1)}"

    def part(
        self,
        *,
        steps: str | None = None,
        window: str | None = None,
        between: tuple[str, int] | None = None,
        module: str | None = None,
    ) -> Job:
        """A part of every rank as a job, see `etplus.trace.selection.part_of`; ranks are still read when asked for."""
        part: dict[str, Any] = {"steps": steps, "window": window, "between": between, "module": module}
        return self.choosing(partial(part_of, **{key: value for key, value in part.items() if value is not None}))

    def step(self, number: int | str) -> Job:
        """An iteration of every rank, by number from 0; see `Trace.step`."""
        return self.part(steps=str(number))

    def between(self, annotation: str, number: int = 0) -> Job:
        """What runs and is launched in an annotation of every rank; see `Trace.between`."""
        return self.part(between=(annotation, number))

    def window(self, start: str | int, end: str | int | None = None) -> Job:
        """A time of every rank after its start; see `Trace.window`."""
        return self.part(window=window_text(start, end))

    def module(self, name: str) -> Job:
        """A module of every rank; see `Trace.module`."""
        return self.part(module=name)

    def select(self, ranks: str | Iterable[int]) -> Job:
        """Some of the ranks, by number or as a text such as "0,3-7"; those that the job does not have are left out.

        Ranks of columns on disk are chosen without reading the others; of files all are read, since a trace says itself
        which rank it is of.

        Example:
            >>> import etplus
            >>> sorted(etplus.load(["et_plus.json.gz"]).select(ranks="0,3-7").ranks)
            [0]
        """
        wanted = frozenset(ranks_of(ranks) if isinstance(ranks, str) else ranks)
        known, sources = self._chosen.ranks, self._chosen.sources
        if self._found is not None:  # which trace is of which rank is known: the others need not be read again
            sources = tuple(source for rank, source in zip(self._found, sources, strict=True) if rank in wanted)
        return self._with(replace(self._chosen, sources=sources, ranks=wanted if known is None else wanted & known))

    def _of(self, sources: Sequence[Source]) -> Job:
        return self._with(replace(self._chosen, sources=tuple(sources)))

    def choosing(self, choose: Callable[[Trace], Trace]) -> Job:
        """Each trace replaced by what a function makes of it when it is read."""
        before = self._chosen.choose
        return self._with(replace(self._chosen, choose=choose if before is None else _Both(before, choose)))

    def on(
        self, *, jobs: int | None = None, scheduler: str | None = None, engine: Executor | Engine | None = None
    ) -> Job:
        """The same job, worked on by processes, a Dask cluster or any executor; the answers are the same.

        Args:
            jobs: processes, the cores by default.
            scheduler: address of a Dask cluster, "tcp://host:8786", or the path of its scheduler file; its workers
                reach the same files.
            engine: a `concurrent.futures.Executor` (or an engine of `jobs.engines`) instead.

        Raises:
            UsageError: a combination that makes no sense, or Dask is not installed.
        """
        if isinstance(engine, Engine):
            return self._with(engine=engine)
        name = "dask" if scheduler is not None else "processes"
        return self._with(engine=engine_of(name if engine is None else engine, jobs, scheduler))

    def map(self, function: Callable[[Trace], _Answer]) -> Iterator[tuple[int, _Answer]]:
        """What a function finds in each rank's trace: ranks and answers, in the order of the traces.

        Args:
            function: where other processes work, one of a module, or a `functools.partial` of one.

        Example:
            >>> import etplus
            >>> list(etplus.load(["et_plus.json.gz"]).map(len))
            [(0, 758)]
        """
        chosen = self._chosen
        if self._engine is None or any(isinstance(source, Trace) for source in chosen.sources):
            found: Iterable[tuple[int, _Answer]] = ((rank, function(trace)) for rank, trace in self.ranks.items())
        else:
            found = run_on(self._engine, function, chosen.sources, chosen.ranks, chosen.choose)
        ranks = []
        for rank, answer in found:
            ranks.append(rank)
            yield rank, answer
        self._found = ranks if chosen.ranks is None else None

    def summary(self, annotation: str | None = None) -> JobSummary:
        """All ranks together, in tables that do not grow with the traces: numbers, outliers, kernels, stragglers.

        Args:
            annotation: part of the name of the annotations that are the iterations.

        Raises:
            UsageError: the traces are not of one job.

        Example:
            >>> import etplus
            >>> etplus.load(["et_plus.json.gz"]).summary().ranks[0].device_events
            104
        """
        return job_summary(dict(self.map(partial(rank_contribution, annotation=annotation))))

    def analyze(self, **options: Any) -> JobAnalysis:
        """The tables of `Trace.analyze` of all ranks, each row with its rank.

        Example:
            >>> import etplus
            >>> etplus.load(["et_plus.json.gz"]).analyze().device_use.to_pandas()["rank"].tolist()
            [0]
        """
        found = JobAnalysis()
        for rank, tables in self.map(partial(_analysed, options=options)):
            found.add(rank, tables)
        return found

    @cached_property
    def _collectives(self) -> tuple[Table[JobCollective], Table[RankLateness]]:
        known: dict[int, RankCommunications] = {}
        facts = []
        for rank, (own, communicated) in self._communicating():
            facts.append(own)
            known[rank] = communicated
        check_job(facts)
        return job_collectives(known)

    def _communicating(self) -> Iterator[tuple[int, tuple[JobTrace, RankCommunications]]]:
        """What each rank communicates; of columns read without the rest of the traces."""
        chosen = self._chosen
        stored = [source for source in chosen.sources if isinstance(source, StoredRank)]
        if len(stored) < len(chosen.sources) or chosen.choose is not None:
            yield from self.map(_communicates)
            return
        for source in stored:
            if chosen.ranks is None or source.rank in chosen.ranks:
                yield source.rank, stored_communications(source)

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
        """Predict the timeline of all ranks together, with changes if any are given; see docs/reference/replay.md.

        Args:
            what_ifs: such as "kernel*0.5", applied in order.
            network: such as "bandwidth=25,latency=5us", what communications are priced on first; the result then has an
                `answer_range`.

        Raises:
            ConvertError: a trace without times.
            UsageError: a change that is not understood, or nothing to price on a network.
        """
        from ..analysis.event_bounds import row_bounds  # for few changes

        return replay_ranks(list(self), what_ifs, network, lambda: row_bounds(list(self)))

    def findings(self) -> Findings:
        """What is wrong on any rank or between them, the largest gain first; see docs/reference/findings.md.

        All ranks are replayed together, so their traces are in memory at a time.

        Example:
            >>> import etplus
            >>> [finding.id for finding in etplus.load(["et_plus.json.gz"]).findings() if not finding.evidence]
            []
        """
        return find_findings(Case(list(self)))

    def ask(self, question: str, /, **options: Any) -> Answer:
        """The answer to a question about all ranks together, see `Trace.ask`; they are held in memory from then on.

        Raises:
            AskError: no such question or option; it says what would have worked.
        """
        from ..analysis.questions.questions import ask

        return ask(self._asked, question, **options)

    @cached_property
    def _asked(self) -> AskedTraces:
        """The ranks with what answers were derived from."""
        from ..analysis.questions.asked_traces import AskedTraces

        return AskedTraces(dict(sorted(self.ranks.items())), job=True)

    def sql(self, query: str, *, memory: str = "2GB") -> QueryResult:
        """The rows that a SELECT finds in the tables of all ranks; see docs/reference/columns.md.

        Raises:
            UsageError: an error in the query, or DuckDB is not installed.
        """
        from ..analysis.job_sql import job_tables

        with job_tables(self, memory) as tables:
            return tables.query(query)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all ranks: a folder of columns for .parquet, else the format that the suffix stands for.

        Raises:
            UsageError: an unknown suffix, or it cannot be written.
            ConvertError: the format cannot hold the job.
        """
        from ..converters.convert import convert

        chosen = self._chosen
        whole = chosen.choose is None and chosen.ranks is None
        convert(chosen.sources if whole else list(self), path)

    def write_report(self, path: str | os.PathLike[str], *, title: str = "") -> None:
        """Write one HTML page about all ranks, see `Trace.write_report`; of over 64 those in detail that stand out."""
        from ..trace.library import write_job_report, write_large_job_report

        if len(self._chosen.sources if self._chosen.ranks is None else self) > MOST_IN_FULL:
            write_large_job_report(self, path, title=title)
        else:
            write_job_report(self.ranks, path, title=title)


@overload
def diff(
    a: Job | list[Any] | tuple[Any, ...], b: Any, *, by_shape: bool = False, total: bool = False
) -> JobDifference: ...
@overload
def diff(a: Any, b: Any, *, by_shape: bool = False, total: bool = False) -> TraceChanges: ...
def diff(a: Any, b: Any, *, by_shape: bool = False, total: bool = False) -> TraceChanges | JobDifference:
    """Two traces side by side, by source line, operator, kernel and call path, and what became slower and why; or two
    jobs, rank by rank and all ranks together, if either is one.

    Args:
        a, b: traces, jobs, or what `load` reads as these.
        by_shape: match operators by name and shapes.
        total: compare the whole traces, not an iteration of each on average.

    Raises:
        UsageError: two jobs that have no rank in common.

    Example:
        >>> found = diff(trace, trace.step(1), total=True)
        >>> found.ops[0].change_ns < 0, found.tables["ops"].to_pandas()["change_ns"].sum() < 0
        (True, np.True_)
        >>> [row.change_ns for row in diff([trace], [trace]).ranks]
        [0.0]
    """
    sides = [side if isinstance(side, (Job, Trace)) else load(side) for side in (a, b)]
    if any(isinstance(side, Job) for side in sides):
        one, other = (side if isinstance(side, Job) else Job([side]) for side in sides)
        return compare_jobs(one, other, by_shape=by_shape, total=total)
    from ..analysis.findings.trace_changes import changes

    one_trace, other_trace = (cast("Trace", side) for side in sides)
    return changes(analyse(one_trace), analyse(other_trace), by_shape=by_shape, total=total)


def compare_jobs(
    a: Job, b: Job, *, by_shape: bool = False, total: bool = False, annotation: str | None = None
) -> JobDifference:
    """Two jobs side by side; what each rank contributes is found beside its data, where the job says (`Job.on`).

    Args:
        annotation: part of the name of the annotations that are the iterations.

    Raises:
        UsageError: no rank is in both.
    """
    contribution = partial(compared_rank, annotation=annotation, by_shape=by_shape)
    one, other = (dict(job.map(contribution)) for job in (a, b))
    return job_difference(one, other, names=(a.name, b.name), total=total)


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
    files = named_by(name)
    if not files:
        raise UsageError(f"{name}: no file has such a name")
    return Job(files)


def names_a_job(source: Any) -> bool:
    """Whether what is to be loaded is several traces: a list, a folder that is no format of its own, or a pattern."""
    if isinstance(source, (list, tuple)):
        return True
    if not isinstance(source, (str, os.PathLike)) or isinstance(source, (StoredRank, FileRank, InputPair)):
        return False
    name = os.fspath(source)
    if os.path.isdir(name):  # noqa: PTH112 (False for impossible names)
        return len(stored_ranks(name)) > 1 or not (is_stored(name) or is_nsys(name))
    return is_pattern(name) or os.path.basename(name) == "job_report.json"  # noqa: PTH119


def _with_stored_ranks(sources: Sequence[Source]) -> tuple[list[Source], list[str]]:
    """Folders of columns by their ranks; and what is left out of them."""
    found: list[Source] = []
    notes: list[str] = []
    for source in sources:
        if isinstance(source, (Trace, StoredRank, FileRank, InputPair)) or not is_stored(source):
            found.append(source)
        else:
            ranks, left = stored_in(os.fspath(source))
            found += ranks
            notes += left
    return found, notes


def _analysed(trace: Trace, options: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    return tables_of(analyse(trace, **options))


def _communicates(trace: Trace) -> tuple[JobTrace, RankCommunications]:
    return job_trace(trace), communications(trace)


@dataclass(frozen=True)
class _ChosenTraces:
    """What a job is of: its traces, the ranks that count (None for all), and what makes their parts."""

    sources: tuple[Source, ...]
    ranks: frozenset[int] | None = None
    choose: Callable[[Trace], Trace] | None = None


@dataclass(frozen=True)
class _Both:
    """One choice after the other."""

    first: Callable[[Trace], Trace]
    second: Callable[[Trace], Trace]

    def __call__(self, trace: Trace) -> Trace:
        return self.second(self.first(trace))


@overload
def load(source: OneSource, *, rank: int | None = None, progress: bool = False) -> Trace: ...
@overload
def load(source: list[Any] | tuple[Any, ...], *, rank: None = None, progress: bool = False) -> Job: ...
def load(
    source: OneSource | list[Any] | tuple[Any, ...], *, rank: int | None = None, progress: bool = False
) -> Trace | Job:  # fmt: skip
    """Read a trace of any format that etplus knows, or the ranks of a job.

    A list of traces is a job, and so are at run time a folder, a pattern such as "out/rank*.json.gz", the
    job_report.json of a linked job, and a Kineto trace in which those of several ranks are merged. Anything else is one
    trace; see `etplus.converters.open.load` for its formats.

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
        try:
            return load_one(cast("OneSource", source), rank=rank, progress=progress)
        except SeveralRanksError as found:
            if isinstance(found.ranks[0], ProcessRank):
                return Job(found.ranks)
            raise
    job = open_job(cast("Sequence[Source] | str", source))
    return job if rank is None else job[rank]
