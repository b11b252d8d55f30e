"""Map ranks to the traces of a conversion. Each trace is read on demand."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..jobs.job_report import JobReport
from ..schemas.parquet.stored_folder import StoredRank
from ..schemas.text.file_ranks import FileRank
from ..trace.errors import EtplusError, UsageError
from ..trace.selection import part_of
from ..trace.trace import Trace
from .folder import InputPair
from .open import open_trace

if TYPE_CHECKING:
    from ..jobs.engines import Engine

Source = str | os.PathLike[str] | Trace


class Traces(Mapping[int, Trace]):
    """Maps ranks to traces, in the order of the inputs.

    Only the most recent trace stays in memory. A second iteration reads each file again, and `dict(traces)` holds all
    traces. The rank comes from Kineto's `distributedInfo`. Otherwise, the rank comes from the file name ("rank3",
    ".3.et") or position.

    Args:
        job: a job report with the clock offsets to apply and the unmatched collectives.
        independent: True if the traces are not ranks of one job. Then keys are positions, and `rank` must be None.
        part: keyword arguments of `part_of`.
        choose: a function that selects the part of each trace to use.

    Example:
        >>> for rank, trace in Traces(["rank0.json", "rank1.json"]).items():
        ...     print(rank, len(trace.kernels))
        0 90
        1 90
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        rank: int | None = None,
        job: JobReport | None = None,
        independent: bool = False,
        part: Mapping[str, Any] | None = None,
        ranks: Collection[int] | None = None,
        choose: Callable[[Trace], Trace] | None = None,
    ) -> None:
        self._part = {key: value for key, value in (part or {}).items() if value is not None}
        self._ranks_wanted, self._choose = ranks, choose
        self._sources, self.wanted, self._job, self._independent = tuple(sources), rank, job, independent
        self._ranks: list[int] = []  # ranks of the sources read so far
        self._positions: dict[int, int] = {}  # Maps each rank that was read to the position of its source.
        self._held: tuple[int, Trace] | None = None
        self.notes: dict[int, tuple[str, ...]] = {}
        self.damage: dict[int, tuple[str, ...]] = {}

    def __len__(self) -> int:
        if self._ranks_wanted is not None:
            return sum(1 for _ in self)
        return len(self._sources) if self.wanted is None else 1

    def __iter__(self) -> Iterator[int]:
        for position in range(len(self._sources)):
            if position == len(self._ranks):
                self._read(position)
            if self._takes(self._ranks[position]):
                yield self._ranks[position]
        if self.wanted is not None and self.wanted not in self._positions:
            there = ", ".join(map(str, sorted(self._ranks)))
            raise UsageError(f"no file for rank {self.wanted}; there are ranks {there}")

    def __getitem__(self, rank: int) -> Trace:
        if not self._takes(rank) or (rank not in self._positions and rank not in list(self)):
            raise KeyError(rank)
        if self._held is not None and self._held[0] == rank:
            trace = self._held[1]
        else:
            self._held = None  # Free memory before reading the next trace.
            trace = self._hold(rank, self._opened(self._positions[rank]))
        self.notes[rank] = tuple(f"{trace.file}: {note}" for note in (*trace.notes, *_part_notes(trace)))
        self.damage[rank] = trace.damage
        return trace

    @property
    def source(self) -> Source:
        """The only source, as the caller passed it. It has not been read."""
        if len(self._sources) == 1 and self.wanted is None:
            return self._sources[0]
        (rank,) = self
        return self._sources[self._positions[rank]]

    @property
    def whole_files(self) -> list[str] | None:
        """The paths of all inputs if they are whole files and no clocks or parts are changed. Otherwise, None."""
        chosen = (self._part, self._ranks_wanted, self._choose, self._job)
        if any(value not in (None, {}) for value in chosen):
            return None
        plain = [source for source in self._sources if not isinstance(source, (Trace, StoredRank, FileRank, InputPair))]
        return [os.fspath(source) for source in plain] if len(plain) == len(self._sources) else None

    def unmatched(self, rank: int) -> Collection[int]:
        return () if self._job is None else self._job.unmatched(rank)

    def _takes(self, rank: int) -> bool:
        return self.wanted in (None, rank) and (self._ranks_wanted is None or rank in self._ranks_wanted)

    def _opened(self, position: int) -> Trace:
        return part_of(open_trace(self._sources[position]), **self._part)

    def _read(self, position: int) -> None:
        source = self._sources[position]
        known = None if self._independent else known_rank(source)
        trace = self._opened(position) if known is None or self._takes(known) else None
        own = known if trace is None else position if self._independent else rank_of(trace, source, position)
        assert own is not None
        if own in self._positions:
            other = self._sources[self._positions[own]]
            raise UsageError(f"{name_of(other)} and {name_of(trace or source)} are both rank {own}; give one of them")
        self._ranks.append(own)
        self._positions[own] = position
        if trace is not None and self._takes(own):
            self._hold(own, trace)

    def _hold(self, rank: int, trace: Trace) -> Trace:
        trace = trace if self._job is None else trace.with_clock_offset(self._job.offset_of(rank))
        trace = trace if self._choose is None else self._choose(trace)
        self._held = rank, trace
        return trace


def _part_notes(trace: Trace) -> list[str]:
    if trace.selection is None:
        return []
    loose = len(trace.unattached)
    left = f"; {loose:,} device events without an operator left out" if loose else ""
    return [f"only {trace.selection.about}: {len(trace):,} rows{left}"]


def name_of(source: Source) -> str:
    if isinstance(source, Trace):
        return source.file
    return source.et if isinstance(source, InputPair) else os.fspath(source)


def known_rank(source: Source) -> int | None:
    """Return the rank of a source, or None if the source must be read to know it."""
    return source.rank if isinstance(source, (StoredRank, Trace)) else None


def rank_of(trace: Trace, source: Source, position: int) -> int:
    """Return the recorded rank of a trace. If it is missing, use the rank of its container, its file name or its
    position."""
    if trace.rank is not None:
        return trace.rank
    if isinstance(source, FileRank) and not source.alone:
        return source.rank
    if isinstance(source, (StoredRank, InputPair)) and source.rank is not None:
        return source.rank
    if isinstance(source, Trace):
        return position
    from ..linker.naming import file_rank, number_before_suffix  # This import is slow, and few traces need it.

    name = os.fspath(source)
    return next((rank for rank in (file_rank(name), number_before_suffix(name)) if rank is not None), position)


Result = TypeVar("Result")


@dataclass(frozen=True)
class RankCall(Generic[Result]):
    """A function call on one rank that another process can run. `choose` selects the part of the trace to use."""

    function: Callable[[Trace], Result]
    source: Source
    position: int
    ranks: frozenset[int] | None
    choose: Callable[[Trace], Trace] | None

    def run(self) -> tuple[int, Result] | None:
        known = known_rank(self.source)
        if known is not None and not self._asks(known):
            return None
        trace = open_trace(self.source)
        rank = rank_of(trace, self.source, self.position)
        if not self._asks(rank):
            return None
        return rank, self.function(trace if self.choose is None else self.choose(trace))

    def _asks(self, rank: int) -> bool:
        return self.ranks is None or rank in self.ranks


def run_on(
    engine: Engine,
    function: Callable[[Trace], Result],
    sources: Sequence[Source],
    ranks: frozenset[int] | None = None,
    choose: Callable[[Trace], Trace] | None = None,
) -> Iterator[tuple[int, Result]]:
    from ..jobs.engines import run_all  # This imports multiprocessing, and a single trace does not need it.

    tasks = [RankCall(function, source, position, ranks, choose) for position, source in enumerate(sources)]
    waiting: dict[int, tuple[int, Result] | None] = {}
    seen: dict[int, int] = {}
    for task, result in run_all(engine, RankCall.run, tasks):
        if isinstance(result, BaseException):
            raise _error(task.source, result) from result
        waiting[task.position] = result
        while len(seen) in waiting:  # The result of the next source is available.
            position = len(seen)
            answer = waiting.pop(position)
            key = -1 - position if answer is None else answer[0]
            if key in seen:
                both = f"{name_of(sources[seen[key]])} and {name_of(sources[position])}"
                raise UsageError(f"{both} are both rank {key}; give one of them")
            seen[key] = position
            if answer is not None:
                yield answer


def _error(source: Source, error: BaseException) -> EtplusError:
    if isinstance(error, EtplusError):
        return error
    from ..jobs.engines import failure_reason  # This import is slow.

    return EtplusError(f"{name_of(source)}: {failure_reason(error)}")
