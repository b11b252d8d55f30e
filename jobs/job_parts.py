"""Parts of a job: some of its ranks, or steps, times and modules of every rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from ..trace.selection import part_of, ranks_of, window_text
from ..trace.suggest import Suggests
from ..trace.trace import Trace

_Job = TypeVar("_Job", bound="JobParts")


@dataclass(frozen=True)
class ChosenTraces:
    """The sources of a job, the chosen ranks (None for all), and the function that each trace passes through."""

    sources: tuple[Any, ...]
    ranks: frozenset[int] | None = None
    choose: Callable[[Trace], Trace] | None = None


@dataclass(frozen=True)
class Chained:
    """Two functions of traces, one after the other; unlike a lambda it can be sent to other processes."""

    first: Callable[[Trace], Trace]
    second: Callable[[Trace], Trace]

    def __call__(self, trace: Trace) -> Trace:
        return self.second(self.first(trace))


class JobParts(Suggests):
    """Methods of a `Job` that choose ranks and parts."""

    _chosen: ChosenTraces
    _found: list[int] | None = None  # ranks of the sources, if all were read

    def _with(self: _Job, chosen: ChosenTraces) -> _Job:
        raise NotImplementedError

    def _of(self: _Job, sources: Iterable[Any]) -> _Job:
        return self._with(replace(self._chosen, sources=tuple(sources)))

    def part(
        self: _Job,
        *,
        steps: str | None = None,
        window: str | None = None,
        between: tuple[str, int] | None = None,
        module: str | None = None,
    ) -> _Job:
        """Return a part of every rank, see `etplus.trace.selection.part_of`; ranks are still read on demand."""
        part: dict[str, Any] = {"steps": steps, "window": window, "between": between, "module": module}
        return self.choosing(partial(part_of, **{key: value for key, value in part.items() if value is not None}))

    def step(self: _Job, number: int | str) -> _Job:
        """Return an iteration of every rank, by number from 0; see `Trace.step`."""
        return self.part(steps=str(number))

    def between(self: _Job, annotation: str, number: int = 0) -> _Job:
        """Return an annotation of every rank; see `Trace.between`."""
        return self.part(between=(annotation, number))

    def window(self: _Job, start: str | int, end: str | int | None = None) -> _Job:
        """Return a window of every rank, counted from its start; see `Trace.window`."""
        return self.part(window=window_text(start, end))

    def module(self: _Job, name: str) -> _Job:
        """Return a module of every rank; see `Trace.module`."""
        return self.part(module=name)

    def select(self: _Job, ranks: str | Iterable[int]) -> _Job:
        """Return some of the ranks, by number or as a text such as "0,3-7"; ranks that the job lacks are left out.

        Columns on disk are read for these ranks only. Files are all read, because only their contents have the rank.

        Example:
            >>> import etplus
            >>> sorted(etplus.load(["et_plus.json.gz"]).select(ranks="0,3-7").ranks)
            [0]
        """
        wanted = frozenset(ranks_of(ranks) if isinstance(ranks, str) else ranks)
        known, sources = self._chosen.ranks, self._chosen.sources
        if self._found is not None:  # the ranks of all files are known
            sources = tuple(source for rank, source in zip(self._found, sources, strict=True) if rank in wanted)
        return self._with(replace(self._chosen, sources=sources, ranks=wanted if known is None else wanted & known))

    def choosing(self: _Job, choose: Callable[[Trace], Trace]) -> _Job:
        """Return a job that passes its traces through a function when it reads them."""
        before = self._chosen.choose
        return self._with(replace(self._chosen, choose=choose if before is None else Chained(before, choose)))
