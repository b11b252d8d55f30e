"""A `Job` reads the traces of its ranks when they are needed, and answers questions about all ranks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast, overload

from ..converters.folder import InputPair, is_pattern, named_by, stored_in, traces_in
from ..converters.open import load as load_one
from ..converters.traces import Source, Traces, name_of, run_on
from ..schemas.nsys import is_nsys
from ..schemas.parquet.stored_folder import StoredRank, is_stored, stored_ranks
from ..schemas.text.file_ranks import FileRank, ProcessRank, SeveralRanksError
from ..schemas.text.files import Source as OneSource
from ..schemas.text.files import open_output
from ..timeline.graph_replay import Replay
from ..timeline.replay_ranks import replay_ranks
from ..trace.errors import UsageError
from ..trace.library import HTA_CALLS, MOST_IN_FULL
from ..trace.outer import outer
from ..trace.selection import part_of, ranks_of, window_text
from ..trace.suggest import Suggests, guesses_of
from ..trace.trace import Trace
from .engines import Engine, engine_of
from .job_ranks import JobTrace, check_job, job_trace
from .rank_communications import RankCommunications, communications, stored_communications

if TYPE_CHECKING:
    from ..analysis.findings.find import Findings
    from ..analysis.job_summary import JobAnalysis, JobCollective, JobSummary, RankLateness
    from ..analysis.sql import QueryResult
    from ..analysis.table import Table

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class ChosenTraces:
    """The sources of a job, the selected ranks (None means all), and a function that is applied to each trace."""

    sources: tuple[Any, ...]
    ranks: frozenset[int] | None = None
    choose: Callable[[Trace], Trace] | None = None


@dataclass(frozen=True)
class Chained:
    """Applies two functions to a trace, one after the other. Unlike a lambda, a `Chained` can be pickled."""

    first: Callable[[Trace], Trace]
    second: Callable[[Trace], Trace]

    def __call__(self, trace: Trace) -> Trace:
        return self.second(self.first(trace))


class Job(Suggests):
    """The ranks of a job.

    A rank is read when it is needed, and only the last rank stays in memory. Questions about all ranks therefore need
    memory for the largest rank and for the answer. `on` selects the processes or machines that read the ranks.

    Attributes:
        ranks: maps ranks to traces. notes: sentences about files in the folder that were skipped.

    Raises:
        UsageError: there is no trace, or two traces come from the same rank.

    Example:
        >>> job = etplus.load(["et_plus.json.gz"])
        >>> job
        <Job of 1 rank>
        >>> job.ranks[0].kernels[0].name == trace.kernels[0].name
        True
    """

    guesses: ClassVar[dict[str, str]] = HTA_CALLS | guesses_of(
        """
        get_profiler_steps iterations: `ranks[0].steps`;
        critical_path_analysis critical_path: `ranks[0].critical_path()`;
        head: `analyze().kernels.to_pandas().head()`; rank: `ranks[3]`; traces: `ranks`, or iterate over the job;
        kernels: `analyze().kernels`, or `ranks[0].kernels`; ops: `analyze().operators`, or `ranks[0].ops`;
        operators: `analyze().operators`; world_size: `len(job)`; get_potential_stragglers: `stragglers`;
        steps: `ranks[0].steps`; `step(1)` is an iteration of every rank;
        to_pandas: `analyze().kernels.to_pandas()` and the other tables of `analyze()`;
        diff: `etplus.diff(job, other)`; what_if: `replay("comm*0.5")`; show: `write_report("job.html")`
        """
    )

    def __init__(self, sources: Sequence[Source], *, notes: Sequence[str] = ()) -> None:
        if not sources:
            raise UsageError("no trace was given; pass the files of a job's ranks, or their folder")
        found, left = _with_stored_ranks(sources)
        self._set(ChosenTraces(tuple(found)), (*notes, *left), None)

    def _set(self, chosen: ChosenTraces, notes: tuple[str, ...], engine: Engine | None) -> None:
        self._chosen, self.notes, self._engine = chosen, notes, engine
        self._found: list[int] | None = None
        self.ranks: Mapping[int, Trace] = Traces(chosen.sources, ranks=chosen.ranks, choose=chosen.choose)

    def _with(self, chosen: ChosenTraces | None = None, engine: Engine | None = None) -> Job:
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
        return f"<Job of {len(self):,} rank{'' if len(self) == 1 else 's'}>"  # listing the ranks would read all files

    def _of(self, sources: Iterable[Any]) -> Job:
        return self._with(replace(self._chosen, sources=tuple(sources)))

    def part(
        self,
        *,
        steps: str | None = None,
        window: str | None = None,
        between: tuple[str, int] | None = None,
        module: str | None = None,
    ) -> Job:
        """Return a job with the same part of every rank. `etplus.trace.selection.part_of` describes the arguments."""
        part: dict[str, Any] = {"steps": steps, "window": window, "between": between, "module": module}
        return self.choosing(partial(part_of, **{key: value for key, value in part.items() if value is not None}))

    def step(self, number: int | str) -> Job:
        """Return a job with the same iteration of every rank. `number` is described in `Trace.step`."""
        return self.part(steps=str(number))

    def between(self, annotation: str, number: int = 0) -> Job:
        """Return a job with the annotation of every rank that `Trace.between` selects."""
        return self.part(between=(annotation, number))

    def window(self, start: str | int, end: str | int | None = None) -> Job:
        """Return a job with a time window of every rank. Times are relative to the rank's start (`Trace.window`)."""
        return self.part(window=window_text(start, end))

    def module(self, name: str) -> Job:
        """Return a job with one module of every rank. See `Trace.module`."""
        return self.part(module=name)

    def select(self, ranks: str | Iterable[int]) -> Job:
        """Return a job with only the given ranks. `ranks` contains numbers or is a string such as "0,3-7". Ranks that
        the job lacks are ignored. All trace files are read to find their ranks, but only selected stored columns."""
        wanted = frozenset(ranks_of(ranks) if isinstance(ranks, str) else ranks)
        known, sources = self._chosen.ranks, self._chosen.sources
        if self._found is not None:  # an earlier query has already read the ranks from all files
            sources = tuple(source for rank, source in zip(self._found, sources, strict=True) if rank in wanted)
        return self._with(replace(self._chosen, sources=sources, ranks=wanted if known is None else wanted & known))

    def choosing(self, choose: Callable[[Trace], Trace]) -> Job:
        """Return a job that applies a function to each trace that it reads."""
        before = self._chosen.choose
        return self._with(replace(self._chosen, choose=choose if before is None else Chained(before, choose)))

    @property
    def name(self) -> str:
        """A name for messages: the file of the trace, or the folder that contains all traces."""
        names = list(dict.fromkeys(name_of(source) for source in self._chosen.sources))
        folders = {os.path.dirname(name) for name in names}  # noqa: PTH120
        in_one = len(names) > 1 and len(folders) == 1
        return (folders.pop() if in_one else "") or f"{names[0]}{f' and {len(names) - 1} more' * (len(names) > 1)}"

    def on(
        self, *, jobs: int | None = None, scheduler: str | None = None, engine: Executor | Engine | None = None
    ) -> Job:
        """Return the same job, but read and analyze it in local processes, on a Dask cluster or in another executor.

        Args:
            jobs: number of local processes. The default is one per core.
            scheduler: address of a Dask scheduler ("tcp://host:8786") or path of its scheduler file. Workers must be
                able to access the same files.
            engine: a `concurrent.futures.Executor`, or an engine from `jobs.engines`, to use instead.

        Raises:
            UsageError: options conflict, or Dask is not installed.
        """
        if isinstance(engine, Engine):
            return self._with(engine=engine)
        name = "dask" if scheduler is not None else "processes"
        return self._with(engine=engine_of(name if engine is None else engine, jobs, scheduler))

    def map(self, function: Callable[[Trace], _Answer]) -> Iterator[tuple[int, _Answer]]:
        """Apply a function to the trace of each rank. Yield each rank and its result in the order of the traces.

        Args:
            function: must be a module-level function, or a `functools.partial` of one, to run in other processes.

        Example:
            >>> list(etplus.load(["et_plus.json.gz"]).map(len))
            [(0, 758)]
        """
        chosen = self._chosen
        if self._engine is None or any(isinstance(source, Trace) for source in chosen.sources):
            results: Iterable[tuple[int, _Answer]] = ((rank, function(trace)) for rank, trace in self.ranks.items())
        else:
            results = run_on(self._engine, function, chosen.sources, chosen.ranks, chosen.choose)
        ranks = []
        for rank, answer in results:
            ranks.append(rank)
            yield rank, answer
        self._found = ranks if chosen.ranks is None else None

    def summary(self, annotation: str | None = None) -> JobSummary:
        """Return key numbers, outliers, kernels and stragglers of all ranks in tables of limited size. Annotations that
        contain `annotation` in their name mark iterations."""
        summaries = outer("analysis.job_summary")
        summary: JobSummary = summaries.job_summary(
            dict(self.map(partial(summaries.rank_contribution, annotation=annotation)))
        )
        return summary

    def analyze(self, **options: Any) -> JobAnalysis:
        """Return the tables of `Trace.analyze` for all ranks. A column contains the rank."""
        analysis: JobAnalysis = outer("analysis.job_summary").JobAnalysis()
        for rank, tables in self.map(partial(_analysed, options=options)):
            analysis.add(rank, tables)
        return analysis

    @cached_property
    def _collectives(self) -> tuple[Table[JobCollective], Table[RankLateness]]:
        known: dict[int, RankCommunications] = {}
        facts = []
        for rank, (own, communicated) in self._communicating():
            facts.append(own)
            known[rank] = communicated
        check_job(facts)
        tables: tuple[Table[JobCollective], Table[RankLateness]] = outer("analysis.job_summary").job_collectives(known)
        return tables

    def _communicating(self) -> Iterator[tuple[int, tuple[JobTrace, RankCommunications]]]:
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
        """Collectives that match on all ranks of their group, in order of time, with the rank that arrived last."""
        return self._collectives[0]

    @property
    def stragglers(self) -> Table[RankLateness]:
        """A table of how often each rank arrived last and how long other ranks waited for it, worst rank first."""
        return self._collectives[1]

    def replay(self, *what_ifs: str, network: str | None = None) -> Replay:
        """Predict the timeline of all ranks together, optionally after what-if changes (docs/reference/replay.md).

        Args:
            what_ifs: changes such as "kernel*0.5", in the order in which they are applied.
            network: a network such as "bandwidth=25,latency=5us". Communication times are first estimated for this
                network, and the result has an `answer_range`.

        Raises:
            ConvertError: a trace has no times.
            UsageError: a change is invalid, or there is no communication to estimate.
        """
        return replay_ranks(
            list(self), what_ifs, network, lambda: outer("analysis.kernel_peaks").row_bounds(list(self))
        )

    def findings(self) -> Findings:
        """Return problems on single ranks and between ranks, largest gain first (docs/reference/findings.md). All ranks
        are replayed together, so all traces are in memory at the same time."""
        findings: Findings = outer("analysis.findings.find").find_findings(
            outer("analysis.findings.case").Case(list(self))
        )
        return findings

    def sql(self, query: str, *, memory: str = "2GB") -> QueryResult:
        """Run a SELECT on the tables of all ranks (docs/reference/columns.md). Raise UsageError if the query fails."""
        with outer("analysis.sql").job_tables(self, memory) as tables:
            found: QueryResult = tables.query(query)
            return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all ranks. The suffix selects the format. For .parquet, the result is a folder of columns."""
        from ..converters.conversion import convert

        chosen = self._chosen
        whole = chosen.choose is None and chosen.ranks is None
        convert(chosen.sources if whole else list(self), path)

    def plot(self) -> Any:
        """Plot how the devices of every rank spend their time. Return the matplotlib axes."""
        uses = {f"rank {rank}, device {use.device}": use for rank, found in self.map(_device_use) for use in found}
        return outer("report.plots").device_use_axes(uses)

    def write_report(self, path: str | os.PathLike[str], *, title: str = "") -> None:
        """Write an HTML page about all ranks. For more than 64 ranks, the page shows only outliers in detail."""
        pages = outer("report.report_html")
        pages.check_page_name(path)
        if len(self._chosen.sources if self._chosen.ranks is None else self) > MOST_IN_FULL:
            page, _ = pages.large_job_html(self, title)
        else:
            analyze = outer("analysis.summary").analyze
            page, _ = pages.ranks_html(map(analyze, self), len(self), title, output=path)
        with open_output(path) as out:
            out.write(page)


def open_job(sources: Sequence[Source] | str | os.PathLike[str]) -> Job:
    """Open traces, a folder, or the files that match a pattern as a job. Raise UsageError if there are no traces."""
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
        raise UsageError(f"{name}: no file matches")
    return Job(files)


def names_a_job(source: Any) -> bool:
    """Return True if a source is a list, a pattern, a job report, or a folder that is not itself one trace."""
    if isinstance(source, (list, tuple)):
        return True
    if not isinstance(source, (str, os.PathLike)) or isinstance(source, (StoredRank, FileRank, InputPair)):
        return False
    name = os.fspath(source)
    if os.path.isdir(name):  # noqa: PTH112 (False for impossible names)
        return len(stored_ranks(name)) > 1 or not (is_stored(name) or is_nsys(name))
    return is_pattern(name) or os.path.basename(name) == "job_report.json"  # noqa: PTH119


def _with_stored_ranks(sources: Sequence[Source]) -> tuple[list[Source], list[str]]:
    expanded: list[Source] = []
    notes: list[str] = []
    for source in sources:
        if isinstance(source, (Trace, StoredRank, FileRank, InputPair)) or not is_stored(source):
            expanded.append(source)
        else:
            ranks, left = stored_in(os.fspath(source))
            expanded += ranks
            notes += left
    return expanded, notes


def _analysed(trace: Trace, options: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    summary = outer("analysis.summary")
    tables: dict[str, list[dict[str, Any]]] = summary.tables_of(summary.analyze(trace, **options))
    return tables


def _device_use(trace: Trace) -> list[Any]:
    return list(outer("analysis.breakdown").device_use(trace))


def _communicates(trace: Trace) -> tuple[JobTrace, RankCommunications]:
    return job_trace(trace), communications(trace)


@overload
def load(source: OneSource, *, rank: int | None = None, progress: bool = False) -> Trace: ...
@overload
def load(source: list[Any] | tuple[Any, ...], *, rank: None = None, progress: bool = False) -> Job: ...
def load(
    source: OneSource | list[Any] | tuple[Any, ...], *, rank: int | None = None, progress: bool = False
) -> Trace | Job:
    """Read a trace of any format that etplus knows, or the ranks of a job.

    A list of traces is read as a job. So is a folder, a pattern such as "out/rank*.json.gz", the job_report.json of a
    linked job, or a Kineto trace that merges several ranks, but type checkers expect a `Trace` for them. Any other
    source is read as one trace. `etplus.converters.open.load` lists the formats.

    Args:
        source: a path, "-" for standard input, bytes, a binary file object, or a list of these.
        rank: the rank to read if the source contains several ranks.
        progress: show a progress bar if reading takes more than two seconds.

    Raises:
        TraceFormatError: a file is not a trace, or it is too damaged to recover.
        UsageError: a file has several ranks and `rank` is not given, or a folder has no traces.

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
