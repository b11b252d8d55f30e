"""A function of each rank's trace, called beside the rank's data: in this process, in others, on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..jobs.engines import Engine, failure_reason, run_all
from ..trace.errors import EtplusError, UsageError
from ..trace.trace import Trace
from .open import open_trace
from .traces import Source, known_rank, name_of, rank_of

Result = TypeVar("Result")


@dataclass(frozen=True)
class RankCall(Generic[Result]):
    """What is done with one rank; it can be sent to another process.

    Attributes:
        function: what is asked of the trace. source: where that is; position: among the sources.
        ranks: those that are asked, None for all. choose: makes the part of the trace that counts.
    """

    function: Callable[[Trace], Result]
    source: Source
    position: int
    ranks: frozenset[int] | None
    choose: Callable[[Trace], Trace] | None

    def run(self) -> tuple[int, Result] | None:
        """The rank and its answer; None for a rank that is not asked."""
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
    """Ranks and answers in the order of the sources, wherever and in whichever order they were found.

    Raises:
        UsageError: two sources of a rank.
        EtplusError: a trace that cannot be read, or a process that was killed twice.
    """
    tasks = [RankCall(function, source, position, ranks, choose) for position, source in enumerate(sources)]
    waiting: dict[int, tuple[int, Result] | None] = {}
    seen: dict[int, int] = {}
    for task, result in run_all(engine, _run, tasks):
        if isinstance(result, BaseException):
            raise _error(task.source, result) from result
        waiting[task.position] = result
        while len(seen) in waiting:  # as many have been handed out
            position = len(seen)
            found = waiting.pop(position)
            key = -1 - position if found is None else found[0]
            if key in seen:
                both = f"{name_of(sources[seen[key]])} and {name_of(sources[position])}"
                raise UsageError(f"{both} are both of rank {key}; give one of them")
            seen[key] = position
            if found is not None:
                yield found


def _run(task: RankCall[Result]) -> tuple[int, Result] | None:
    return task.run()


def _error(source: Source, error: BaseException) -> EtplusError:
    if isinstance(error, EtplusError):
        return error
    return EtplusError(f"{name_of(source)}: {failure_reason(error)}")
