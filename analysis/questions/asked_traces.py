"""What questions are asked about: a trace, the ranks of a job, or traces to compare, with what is derived of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np

from ...jobs.job_ranks import check_job, job_trace
from ...timeline.graph_replay import Replay, replay
from ...timeline.whatif import apply_what_ifs, parse_what_if
from ...trace.columns import StringTable
from ...trace.errors import UsageError
from ...trace.printable import shell_word
from ...trace.selection import part_of
from ...trace.trace import Trace
from ...trace.unattached import with_unattached
from ..findings.case import Case
from ..findings.find import Findings, find_findings
from ..summary import Analysis
from .answer import AskError
from .recorded_text import quoted, recorded_text

_T = TypeVar("_T")
_KEPT = 12
"""Analyses and replays of parts that are kept; those of whole traces are."""
_ID = re.compile(r"([a-z_]{1,30}):(-?\d{1,18})(?:@(\d{1,9}))?", re.ASCII)
_MEANT = 3


class Id(NamedTuple):
    """An id of an answer, such as "event:1204@3".

    Attributes:
        kind: of what. number: in its list. trace: number of the trace, None for what several share, or where there is
            one trace.
    """

    kind: str
    number: int
    trace: int | None


def parse_id(text: str) -> Id | None:
    """An id, None for another text.

    Example:
        >>> parse_id("event:1204@3"), parse_id("aten::mm")
        (Id(kind='event', number=1204, trace=3), None)
    """
    found = _ID.fullmatch(text.strip())
    return None if found is None else Id(found[1], int(found[2]), None if found[3] is None else int(found[3]))


def meant(word: str, known: Sequence[str]) -> list[str]:
    """The known texts that a word may have meant: those that contain it, then those spelt alike."""
    low = word.strip().lower()
    parts = [text for text in known if low and low in text.lower()]
    by_case = {text.lower(): text for text in reversed(known)}
    alike = [by_case[text] for text in get_close_matches(low[:200], by_case, _MEANT, 0.5)]
    return [*dict.fromkeys([*sorted(parts, key=len)[:_MEANT], *alike])][:_MEANT]


class AskedTraces:
    """Traces that questions are asked about, by number: a rank's in a job, else its position from 0.

    Nothing is read here; analyses and replays are made when a question first needs them, and kept.

    Args:
        traces: by number. job: they are the ranks of one job, so that questions are about all of them together.
        shells: what names each in a command line, see `Case`.

    Example:
        >>> AskedTraces({0: trace}).analysis(0).trace.file == trace.file
        True
    """

    def __init__(
        self, traces: Mapping[int, Trace], *, job: bool = False, shells: Mapping[int, str] | None = None
    ) -> None:
        if not traces:
            raise UsageError("no trace was given to ask about")
        self.traces = dict(traces)
        self.job = job and len(self.traces) > 1
        self._shells = shells or {number: shell_word(trace.file) for number, trace in self.traces.items()}
        self._parts: dict[tuple[object, ...], object] = {}

    @staticmethod
    def of(traces: Sequence[Trace], shells: Sequence[str] = ()) -> AskedTraces:
        """Traces as they were given: the ranks of a job if they say so and nothing contradicts it."""
        named = dict(enumerate(shells))
        ranks = {trace.rank: trace for trace in traces if trace.rank is not None}
        if len(traces) > 1 and len(ranks) == len(traces):
            try:
                check_job([job_trace(trace) for trace in traces])
            except UsageError:
                return AskedTraces(dict(enumerate(traces)), shells=named)
            in_order = sorted(ranks)
            of_rank = {rank: shells[traces.index(ranks[rank])] for rank in in_order if shells}
            return AskedTraces({rank: ranks[rank] for rank in in_order}, job=True, shells=of_rank)
        return AskedTraces(dict(enumerate(traces)), shells=named)

    # --- which traces -------------------------------------------------------------------------------------------

    def chosen(self, number: int | None) -> list[int]:
        """The traces that a question is about: the one that is asked for, all ranks of a job, else the first.

        Raises:
            AskError: there is no such trace.
        """
        if number is not None:
            if number not in self.traces:
                known = [f"trace={known}" for known in self.traces]
                raise AskError(f"no trace {number}", works=known[:8])
            return [number]
        return list(self.traces) if self.job else [next(iter(self.traces))]

    def only(self, number: int | None, question: str) -> int:
        """The one trace that a question is about.

        Raises:
            AskError: several are.
        """
        found = self.chosen(number)
        if len(found) > 1:
            raise AskError(f"{question} is about one trace", works=[f"trace={number}" for number in found[:8]])
        return found[0]

    # --- what is derived of them --------------------------------------------------------------------------------

    def whole(self, number: int) -> Trace:
        """A trace with the device events that could not be attached."""
        return self._kept(("whole", number, None), lambda: with_unattached(self.traces[number]))

    def part(self, number: int, steps: str | None) -> Trace:
        """`whole`, or some of its steps."""
        trace = self.whole(number)
        return trace if steps is None else self._kept(("part", number, steps), lambda: part_of(trace, steps=steps))

    def analysis(self, number: int, steps: str | None = None) -> Analysis:
        """The analysis of a trace, or of some of its steps."""
        return self.case([number], steps).analysis

    def case(self, numbers: Sequence[int], steps: str | None = None) -> Case:
        """Traces, or some of their steps, with their replay, coupled if there are several."""

        def made() -> Case:
            analyses = [self.analysis(number, steps) for number in numbers] if len(numbers) > 1 else None
            traces = [self.traces[number] if steps is None else self.part(number, steps) for number in numbers]
            part = "" if steps is None else f"--steps={shell_word(steps)} "
            return Case(traces, analyses=analyses, shells=[part + self._shells[number] for number in numbers])

        return self._kept(("case", *numbers, steps), made)

    def changed(self, numbers: Sequence[int], what_ifs: Sequence[str], steps: str | None = None) -> Replay:
        """The replay of traces with changes, applied in order.

        Raises:
            UsageError: a change that is not understood, or touches nothing.
        """
        case = self.case(numbers, steps)
        parsed = [parse_what_if(text) for text in what_ifs]
        graph = apply_what_ifs(case.graph, parsed, case.constants, lambda: case.row_bounds)
        return replay(graph, case.constants)

    def findings(self, numbers: Sequence[int], steps: str | None = None) -> Findings:
        """What is wrong in traces, of several as the ranks of a job."""
        return self._kept(("findings", *numbers, steps), lambda: find_findings(self.case(numbers, steps)))

    def gain(self, numbers: Sequence[int], what_ifs: Sequence[str], steps: str | None = None) -> int:
        """By how many ns the replay is shorter with changes."""
        return self.case(numbers, steps).makespan_ns - self.changed(numbers, what_ifs, steps).makespan_ns

    def _kept(self, key: tuple[object, ...], make: Callable[[], _T]) -> _T:
        if key not in self._parts:
            made = make()
            of_parts = [known for known in self._parts if known[-1] is not None]
            for old in of_parts[: max(len(of_parts) - _KEPT, 0)]:
                del self._parts[old]
            self._parts[key] = made
        return self._parts[key]  # type: ignore[return-value]

    # --- ids ----------------------------------------------------------------------------------------------------

    @cached_property
    def names(self) -> StringTable:
        """The names of calls and events of all traces, the first trace's first: the numbers in `kernel:N`."""
        table = StringTable()
        for number in self.traces:
            table.codes(list(self.whole(number).names))
        return table

    def at(self, kind: str, number: int, trace: int | None) -> str:
        """An id; with the number of its trace where there are several.

        Args:
            trace: None for what all share.
        """
        return f"{kind}:{number}" + ("" if trace is None or len(self.traces) == 1 else f"@{trace}")

    def event_id(self, number: int, row: int) -> str:
        """Id of a row of a trace, "" for none."""
        return "" if row < 0 else self.at("event", int(self.traces[number].id[row]), number)

    def name_id(self, kind: str, name: str) -> str:
        """Id of a kernel or an operator by its name."""
        return self.at(kind, self.names.code(name), None)

    def device_event_id(self, number: int, part: Trace, event: int) -> str:
        """Id of a device event of a trace or a part of it, by its position there; of one without a row by its place
        among all that start with it."""
        row = int(part.gpu.source[event])
        if row >= 0:
            return self.event_id(number, row)
        gpu, ts = self.whole(number).gpu, int(part.gpu.ts[event])
        same = (gpu.ts == ts) & (gpu.name == part.gpu.name[event]) & (gpu.stream == part.gpu.stream[event])
        return self.at("unattached", int(np.flatnonzero(same)[0]), number)

    def name_of(self, text: str, kind: str, known: Sequence[str]) -> str:
        """The name that an id ("kernel:7") or a text means: the same, else the only one that contains it.

        Args:
            known: names that are meant, the most important first.

        Raises:
            AskError: none or several are.
        """
        found = parse_id(text)
        if found is not None and found.kind == kind:
            names = self.names.values
            if 0 <= found.number < len(names) and names[found.number] in known:
                return str(names[found.number])
        if text in known:
            return text
        inside = [name for name in known if text and (text in name or text == recorded_text(name))]
        if len(inside) == 1:
            return inside[0]
        near = inside[:_MEANT] or meant(text, known) or list(known[:_MEANT])
        problem = (
            f"{len(inside):,} {kind}s have {quoted(text, 60)} in their names"
            if inside
            else (f"no {kind} {quoted(text, 60)}")
        )
        codes = [f"{kind}:{self.names.code(name)} ({recorded_text(name, 60)})" for name in near]
        raise AskError(problem, codes)
