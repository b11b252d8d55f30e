"""Time of a trace or a job by kernel, operator, module, line, phase, step or rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import NamedTuple

from ..trace.kernel_names import kernel_label
from .summary import Analysis
from .table import Row, Table, TextColumn, column, derived


class TopRow(Row):
    """All work with one name (for example, of one kernel or module), summed over all traces."""

    name: str = column("name", "Full name.")
    label: str = column("name", "Short name.")
    device_ns: int = column("ns", "GPU time excluding callees; for steps and ranks, GPU busy time.", "GPU")
    share: float | None = column("share", "Share of the sum of device_ns, or of host_ns if no GPU time is recorded.")
    host_ns: int = column("ns", "CPU time excluding callees; for steps and ranks, the duration.", "CPU")
    count: int = column("count", "Number of GPU events of a kernel or rank; otherwise number of calls.")

    title = "time, ms"
    shown = (TextColumn("name", lambda row: row.label), "device_ns", "share", "host_ns", "count", "mean_ns µs")

    @derived("ns", "mean")
    def mean_ns(self) -> float | None:
        """Mean GPU time, or mean CPU time if there is no GPU time."""
        return (self.device_ns or self.host_ns) / self.count if self.count else None


class _TopPart(NamedTuple):
    name: str
    label: str
    device_ns: int
    host_ns: int
    events: int


def top_table(analyses: Sequence[Analysis], by: str = "kernel") -> Table[TopRow]:
    """Return rows grouped by one of `TOP_BY`, most time first. Rows with the same name are merged across traces."""
    sums: dict[str, _TopPart] = {}
    for part in (part for analysis in analyses for part in TOP_BY[by](analysis)):
        known = sums.get(part.name)
        if known is not None:
            times = known.device_ns + part.device_ns, known.host_ns + part.host_ns, known.events + part.events
            part = _TopPart(part.name, part.label, *times)
        sums[part.name] = part
    device = sum(part.device_ns for part in sums.values())
    host = sum(part.host_ns for part in sums.values())
    rows = [
        TopRow(part.name, part.label, part.device_ns, _share(part, device, host), part.host_ns, part.events)
        for part in sums.values()
    ]
    return Table(TopRow, sorted(rows, key=lambda row: (-row.device_ns, -row.host_ns, row.name)))


def _share(part: _TopPart, device: int, host: int) -> float | None:
    if device:
        return part.device_ns / device
    return part.host_ns / host if host else None


def _kernels(analysis: Analysis) -> Iterable[_TopPart]:
    return (_TopPart(row.kernel, kernel_label(row.kernel), row.total_ns, 0, row.count) for row in analysis.breakdown)


def _operators(analysis: Analysis) -> Iterable[_TopPart]:
    return (_TopPart(row.op, row.op, row.device_self_ns, row.self_ns, row.count) for row in analysis.operators)


def _modules(analysis: Analysis) -> Iterable[_TopPart]:
    for row in analysis.modules:
        yield _TopPart(" / ".join(row.path), row.path[-1], row.device_self_ns, row.self_ns, row.count)


def _lines(analysis: Analysis) -> Iterable[_TopPart]:
    for row in analysis.sources:
        label = str(row.source._replace(file=PurePath(row.file).name))
        yield _TopPart(row.source.file_line, label, row.device_self_ns, row.host_ns, row.calls)


def _phases(analysis: Analysis) -> Iterable[_TopPart]:
    return (_TopPart(row.phase, row.phase, row.device_ns, row.host_ns, row.calls) for row in analysis.phases)


def _steps(analysis: Analysis) -> Iterable[_TopPart]:
    if analysis.serving_steps:
        served = ((f"{row.step} {row.phase}", row) for row in analysis.serving_steps)
        return (_TopPart(name, name, row.device_ns, row.latency_ns, 1) for name, row in served)
    return (_TopPart(row.name, row.name, row.gpu_ns, row.latency_ns, 1) for row in analysis.iterations)


def _ranks(analysis: Analysis) -> Iterator[_TopPart]:
    trace = analysis.trace
    name = trace.file if trace.rank is None else f"rank {trace.rank}"
    busy = sum(use.busy_ns for use in analysis.device_use)
    yield _TopPart(name, name, busy, trace.span.length, len(trace.gpu))


TOP_BY: dict[str, Callable[[Analysis], Iterable[_TopPart]]] = {
    **{"kernel": _kernels, "operator": _operators, "module": _modules, "line": _lines, "phase": _phases},
    **{"step": _steps, "rank": _ranks},
}
