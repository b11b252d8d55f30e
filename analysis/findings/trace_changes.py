"""Findings about a comparison: what became slower from trace A to trace B, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from ...trace.brief import as_html, as_text
from ...trace.columns import IntColumn, distinct
from ...trace.intervals import union
from ...trace.kernel_names import kernel_label
from ...trace.outer import outer
from ...trace.printable import shell_word, shortened
from ...trace.text_tables import in_ms
from ...trace.trace import Trace
from ..breakdown import launched_in
from ..summary import Analysis
from ..trace_diff import Difference, DiffRow, difference, json_of_difference
from .case import Case
from .find import NO_TIMES, Findings, find_findings
from .finding import CONFIRMED, INFERRED, PREDICTED, Evidence, Finding, Where
from .proofs import where_of

LEAST = 0.01  # minimum change, as a share of A's iteration time; two runs of the same program differ by about as much
# Launch counts that differ by at most this ratio are considered equal, because a recording may contain an extra step.
SAME_COUNT = 0.05
# A slowdown is uniform if at least `KERNELS` kernels (`OF_TIME` of the time) are within `UNIFORM` of the median.
# A different clock causes uniform slowdowns; a different program or library does not.
UNIFORM, OF_TIME, KERNELS = 0.1, 0.8, 4
# Ids of comparison findings.
LOOKED_FOR = (
    *("other-device", "other-software", "other-settings", "followed-without-gain", "slower-clock", "slower-kernel"),
    *("other-kernels", "more-launches", "less-overlap", "more-idle", "other-line", "more-calls", "slower-operator"),
)
FOLLOWED = 0.03  # report a finding that is gone in B without a speedup if its gain was at least this share of A's time
_TOP = 3
_NAME = 60


@dataclass(frozen=True)
class TraceChanges(Difference):
    """Comparison of two traces, with findings about slowdowns."""

    # Differences in device, software and settings come first, then slowdowns, largest first. They have no gains.
    findings: Findings = field(default_factory=lambda: Findings((), None, LOOKED_FOR, None, 0))

    __repr__ = as_text
    _repr_html_ = as_html

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data: the tables, with the findings under the key "findings"."""
        return json_of_difference(self) | {"findings": self.findings.to_dict()}

    def to_text(self, width: int = 80) -> str:
        """Return one screen of text, at most `width` columns wide."""
        text: str = outer("report.diff_text").render(self, width)
        return text


def changes(a: Analysis, b: Analysis, *, by_shape: bool = False, total: bool = False) -> TraceChanges:
    """Compare two traces, per average iteration if both have iterations.

    Args:
        by_shape: match operators by name and shapes.
        total: compare the whole traces even if both have iterations.
    """
    found = difference(a, b, by_shape=by_shape, total=total)
    case = _Compared(found, a, b)
    slower = sorted(case.slower(), key=lambda finding: (-(finding.cost_ns or 0), finding.id, finding.title))
    notes = () if found.latency_a else ("all events of A have duration 0, so there are no times to compare",)
    if not (a.trace.times_recorded and b.trace.times_recorded):
        notes = (NO_TIMES,)
    columns = {column.name: getattr(found, column.name) for column in fields(Difference)}
    findings = Findings(
        (*case.setting(), *case.without_gain(), *slower), None, LOOKED_FOR, None, round(found.latency_a), notes
    )
    return TraceChanges(**columns, findings=findings)


@dataclass(frozen=True)
class _Compared:
    """The traces A and B. Times are averages per iteration if iterations are compared."""

    found: Difference
    a: Analysis
    b: Analysis

    @property
    def command(self) -> str:
        names = " ".join(shell_word(file) for file in (self.found.a, self.found.b))
        return f"etplus diff {names}" + ("" if self.found.per_iteration else " --total")

    @property
    def least_ns(self) -> float:
        return LEAST * self.found.latency_a

    @property
    def what(self) -> str:
        return "an iteration" if self.found.per_iteration else "the whole trace"

    def finding(
        self, name: str, title: str, evidence: Sequence[tuple[str, float | None, str]], advice: str, *,
        ns: float | None = None, where: Where | None = None, certainty: str = CONFIRMED,
    ) -> Finding:  # fmt: skip
        found = self.found
        change = found.latency_b - found.latency_a
        whole = (f"{self.what} takes {in_ms(found.latency_a)} in A, {in_ms(found.latency_b)} in B", change, "ns")
        listed = [*evidence, whole] if ns is not None else evidence
        proof = tuple(Evidence(text, value, unit, self.command) for text, value, unit in listed)
        check = f"`{self.command}` no longer shows it"
        cost = None if ns is None else round(ns)
        return Finding(name, title, where or Where(), proof, cost, None, (), certainty, advice, check)

    def slower(self) -> Iterator[Finding]:
        if not self.found.latency_a or not self.b.trace.times_recorded:
            return
        yield from self.kernels_slower()
        yield from self.other_kernels()
        yield from self.more_launches()
        yield from self.overlap_and_idle()
        yield from self.lines()
        if not len(self.a.trace.gpu) and not len(self.b.trace.gpu):
            yield from self.operators()

    def without_gain(self) -> Iterator[Finding]:
        sides = [self.a, self.b]
        if not self.found.latency_a or not all(side.trace.times_recorded and len(side.iterations) for side in sides):
            return
        before, after = (find_findings(Case([side.trace], analyses=[side])) for side in sides)
        took, takes = before.makespan_ns / len(self.a.iterations), after.makespan_ns / len(self.b.iterations)
        left = {finding.id for finding in after}
        for finding in before.first:
            gain = finding.gain
            if gain is None or finding.id in left or gain.ns < FOLLOWED * before.makespan_ns:
                continue
            promised = gain.ns / before.makespan_ns
            if took - takes < promised * took / 3:
                yield self.finding(
                    "followed-without-gain",
                    f"{finding.id} of A is gone in B, but the expected gain of {promised:.0%} is missing: an iteration"
                    f" takes {in_ms(took)} in A and {in_ms(takes)} in B (without profiler overhead)",
                    [(finding.title, gain.ns, "ns")],
                    "keep the change only if it has other benefits; the time is now elsewhere, or was not critical",
                    where=finding.where,
                )

    def setting(self) -> Iterator[Finding]:
        found = self.found
        if found.device_a != found.device_b:
            yield self.finding(
                "other-device", f"A ran on {found.device_a}, B on {found.device_b}: times also differ between devices",
                [(f"A: {found.device_a}; B: {found.device_b}", None, "")],
                "compare recordings on the same device to see the effect of program changes",
            )  # fmt: skip
        settings = [_settings_of(analysis) for analysis in (self.a, self.b)]
        for name, one, other in ((name, one, settings[1][name]) for name, one in settings[0].items()):
            if one == other:
                continue
            yield self.finding(
                "other-software" if name in _SOFTWARE else "other-settings", f"{name}: {one} in A, {other} in B",
                [(f"{name}: {one} in A, {other} in B", None, "")],
                "use the same options in both; recording stacks, shapes and memory costs host time" if name in _RECORDED
                else "compare recordings that differ in only one setting",
            )  # fmt: skip

    @cached_property
    def both(self) -> list[DiffRow]:
        return [
            row for row in self.found.kernels
            if row.a and row.b and row.a.total_ns and abs(row.b.count - row.a.count) <= SAME_COUNT * row.a.count
        ]  # fmt: skip

    def kernels_slower(self) -> Iterator[Finding]:
        longer = sum(row.change_ns for row in self.both)
        if longer >= self.least_ns and (ratio := self._common_ratio()) is not None:
            yield self.finding(
                "slower-clock",
                f"the same kernels ran {ratio:.2f}× slower (same counts): {in_ms(longer)} more",
                [
                    (f"{len(self.both):,} kernels with equal counts take {in_ms(longer)} more", longer, "ns"),
                    (f"{OF_TIME:.0%} of the kernel time is {ratio:.2f}× slower, within {UNIFORM:.0%}", ratio, ""),
                ],
                "compare clocks, temperature and power limit (nvidia-smi -q -d CLOCK,POWER), and check for other "
                "programs on the device; lock the clocks before you compare programs",
                ns=longer, certainty=INFERRED,
            )  # fmt: skip
            return
        for row in sorted(self.both, key=lambda row: -row.change_ns)[:_TOP]:
            if row.a is None or row.b is None or row.change_ns < self.least_ns:
                return
            shapes = self._other_shapes(row.name)
            why = "; its operators have different shapes" if shapes else ""
            yield self.finding(
                "slower-kernel",
                f"kernel {_short(kernel_label(row.name))} takes {row.ratio:.2f} times as long{why}: "
                f"{in_ms(row.change_ns)} more",
                [(f"{row.a.count:,.0f} × {_us(row.a.mean_ns)} in A, {row.b.count:,.0f} × {_us(row.b.mean_ns)} in B",
                  row.change_ns, "ns"), *([(shapes, None, "")] if shapes else [])],
                "use the same shapes in both runs" if shapes else
                "not all kernels are slower: compare the inputs of this kernel (values, layout, alignment) and the "
                "work that runs at the same time",
                ns=row.change_ns, where=self._where(self.b, row.name),
            )  # fmt: skip

    def _common_ratio(self) -> float | None:
        ratio = np.array([row.b.mean_ns / row.a.mean_ns for row in self.both if row.a and row.b])
        time = np.array([row.a.total_ns for row in self.both if row.a and row.b])
        if len(ratio) < KERNELS:
            return None
        order = np.argsort(ratio)
        middle = float(ratio[order][np.searchsorted(np.cumsum(time[order]), time.sum() / 2)])
        alike = np.abs(ratio / middle - 1) <= UNIFORM
        fits = middle > 1 + LEAST and alike.sum() >= KERNELS and time[alike].sum() >= OF_TIME * time.sum()
        return middle if fits else None

    def other_kernels(self) -> Iterator[Finding]:
        sides = [_kernels_of_operators(analysis, self.found.per_iteration) for analysis in (self.a, self.b)]
        rows = []
        for op in sides[0].keys() & sides[1].keys():
            gone, come = ({k: v for k, v in x[op].items() if k not in y[op]} for x, y in (sides, sides[::-1]))
            change = sum(come.values()) - sum(gone.values())
            if gone and come and change >= self.least_ns:
                rows.append((change, op, gone, come))
        for change, op, gone, come in sorted(rows, key=lambda row: (-row[0], row[1]))[:_TOP]:
            old, new = (max(part, key=lambda name: (part[name], name)) for part in (gone, come))
            shapes = self._other_shapes(new, old)
            yield self.finding(
                "other-kernels",
                f"{op or 'work without an operator'} runs {_short(new)} instead of {_short(old)}: {in_ms(change)} more",
                [(f"kernels that run only in A take {in_ms(sum(gone.values()))}, kernels that run only in B take "
                  f"{in_ms(sum(come.values()))}", change, "ns"), *([(shapes, None, "")] if shapes else [])],
                "use the same shapes in both runs: libraries choose kernels by shape" if shapes else
                "compare library versions and settings that choose kernels (TF32, cudnn.benchmark, "
                "deterministic algorithms, attention backend, compiled or not)",
                ns=change, where=self._where(self.b, new),
            )  # fmt: skip

    def more_launches(self) -> Iterator[Finding]:
        more = [
            (row, (row.b.count - row.a.count) * row.b.mean_ns)
            for row in self.found.kernels if row.a and row.b and row.b.count > (1 + SAME_COUNT) * row.a.count
        ]  # fmt: skip
        ns = sum(change for _, change in more)
        if ns < self.least_ns:
            return
        more.sort(key=lambda pair: (-pair[1], pair[0].name))
        row = more[0][0]
        counts = [(f"{_short(row.name)}: {row.a.count:,.1f} times in A, {row.b.count:,.1f} times in B", change, "ns")
                  for row, change in more[:_TOP] if row.a and row.b]  # fmt: skip
        yield self.finding(
            "more-launches",
            f"{len(more):,} kernels run more often, mostly {_short(row.name)}: {in_ms(ns)} more",
            counts,
            "look for repeated work: more or smaller batches, layers, checkpointing, a loop instead of one call, "
            "a graph break in a compiled region",
            ns=ns, where=self._where(self.b, row.name),
        )  # fmt: skip

    def overlap_and_idle(self) -> Iterator[Finding]:
        if self.found.latency_b - self.found.latency_a < self.least_ns:
            return
        (busy_a, sum_a), (busy_b, sum_b) = (_busy(of, self.found.per_iteration) for of in (self.a, self.b))
        if not sum_a or not sum_b:
            return
        lost = (sum_a - busy_a) - (sum_b - busy_b)
        if lost >= self.least_ns:
            exposed = [sum(use.exposed_communication_ns for use in of.device_use) for of in (self.a, self.b)]
            yield self.finding(
                "less-overlap", f"{in_ms(lost)} less device work overlaps with other device work",
                [(f"device events overlap for {in_ms(sum_a - busy_a)} in A, {in_ms(sum_b - busy_b)} in B", lost, "ns"),
                 (f"exposed communication takes {in_ms(exposed[0])} in all of A, {in_ms(exposed[1])} in all of B",
                  exposed[1] - exposed[0], "ns")],
                "look for streams that newly wait for each other: an added synchronization, or disabled prefetching "
                "or bucketing",
                ns=lost,
            )  # fmt: skip
        idle = (self.found.latency_b - busy_b) - (self.found.latency_a - busy_a)
        if idle >= self.least_ns:
            yield self.finding(
                "more-idle", f"the device is idle for {in_ms(idle)} longer in {self.what}",
                [(f"idle for {in_ms(self.found.latency_a - busy_a)} of {in_ms(self.found.latency_a)} in A, "
                  f"{in_ms(self.found.latency_b - busy_b)} of {in_ms(self.found.latency_b)} in B", idle, "ns")],
                "run `etplus why` on B to see which host work delays the device; recording stacks, shapes or memory "
                "can also cause this",
                ns=idle,
            )  # fmt: skip

    def lines(self) -> Iterator[Finding]:
        changed = [row for row in self.found.lines if row.changed and row.change_ns >= self.least_ns]
        for row in sorted(changed, key=lambda row: (-row.change_ns, row.place))[:_TOP]:
            what = {name: "" if side is None else ", ".join(f"{n}× {op}" for op, n in side.operators[:_TOP])
                    for name, side in (("A", row.a), ("B", row.b))}  # fmt: skip
            yield self.finding(
                "other-line", f"{row.place} calls other operators ({row.what_changed}): {in_ms(row.change_ns)} more",
                [(f"A: {what['A'] or 'nothing'}; B: {what['B'] or 'nothing'}", row.change_ns, "ns")],
                "look at this line first, because the program differs there",
                ns=row.change_ns, where=Where(source=f"{row.file}:{row.lines}", place=row.place),
            )  # fmt: skip

    def operators(self) -> Iterator[Finding]:
        own: dict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
        for row in self.found.paths:
            for at, side in ((0, row.a), (2, row.b)):
                if side is not None:
                    own[row.path[-1]][at] += side.self_ns
                    own[row.path[-1]][at + 1] += side.calls
        slowest = sorted(own.items(), key=lambda pair: (pair[1][0] - pair[1][2], pair[0]))[:_TOP]
        for name, (ns_a, count_a, ns_b, count_b) in slowest:
            if ns_b - ns_a < self.least_ns:
                return
            often = count_b > (1 + SAME_COUNT) * count_a
            how = f"is called {count_b:,.1f} times instead of {count_a:,.1f}" if often else "takes longer"
            yield self.finding(
                "more-calls" if often else "slower-operator", f"{_short(name)} {how}: {in_ms(ns_b - ns_a)} more",
                [(f"self time {in_ms(ns_a)} in {count_a:,.1f} calls in A, {in_ms(ns_b)} in {count_b:,.1f} calls in B",
                  ns_b - ns_a, "ns")],
                "look for repeated work" if often else
                "compare threads (OMP_NUM_THREADS), CPU load, and the shapes and layouts of this operator",
                ns=ns_b - ns_a, where=Where(operator=name), certainty=CONFIRMED if often else PREDICTED,
            )  # fmt: skip

    def _other_shapes(self, kernel: str, kernel_a: str | None = None) -> str:
        one, other = _shapes_of(self.a.trace, kernel_a or kernel), _shapes_of(self.b.trace, kernel)
        if not one or not other or one == other:
            return ""
        only = [sorted(mine - theirs)[:1] for mine, theirs in ((one, other), (other, one))]
        return f"shapes only in A: {_short(*only[0]) or 'none'}; only in B: {_short(*only[1]) or 'none'}"

    def _where(self, analysis: Analysis, kernel: str) -> Where:
        trace = analysis.trace
        return where_of(trace, trace.gpu.source[_named(trace, kernel)])


_SOFTWARE = ("NCCL", "backend")
_RECORDED = ("shapes recorded", "Python stacks recorded", "memory recorded")


def _settings_of(analysis: Analysis) -> dict[str, str]:
    trace = analysis.trace
    info = trace.distributed_info
    return {
        "NCCL": str(info.get("nccl_version") or "not recorded"),
        "backend": str(info.get("backend") or "none"),
        "ranks": str(trace.world_size or 1),
        "shapes recorded": _yes(any(signature.label for signature in trace.signatures)),
        "Python stacks recorded": _yes(len(trace.stacks) > 0),
        "memory recorded": _yes(len(trace.memory) > 0),
    }


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


def _kernels_of_operators(analysis: Analysis, per_iteration: bool) -> dict[str, dict[str, float]]:
    trace = analysis.trace
    inside, by = np.ones(len(trace.gpu), np.bool_), 1
    if per_iteration:
        inside, by = launched_in(trace, analysis.iterations) >= 0, len(analysis.iterations)
    top = np.append(trace.hierarchy.top, -1)[trace.gpu.call]
    op = np.append(trace.calls.name, -1)[top]
    pairs = np.stack([op[inside], trace.gpu.name[inside]], axis=1)
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    kinds, of = np.unique(pairs, axis=0, return_inverse=True)
    total = np.bincount(of.reshape(-1), weights=trace.gpu.dur[inside], minlength=len(kinds)) / by
    for (operator, kernel), ns in zip(kinds.tolist(), total.tolist(), strict=True):
        found[trace.names[operator] if operator >= 0 else ""][trace.names[kernel]] += ns
    return found


def _busy(analysis: Analysis, per_iteration: bool) -> tuple[float, float]:
    gpu = analysis.trace.gpu
    if not per_iteration:
        return float(union(gpu.ts, gpu.end).length), float(gpu.dur.sum())
    mine, by = launched_in(analysis.trace, analysis.iterations) >= 0, len(analysis.iterations)
    return union(gpu.ts[mine], gpu.end[mine]).length / by, float(gpu.dur[mine].sum()) / by


def _named(trace: Trace, kernel: str) -> IntColumn:
    codes = [code for code, name in enumerate(trace.names) if name == kernel]
    return np.flatnonzero(np.isin(trace.gpu.name, codes))


def _shapes_of(trace: Trace, kernel: str) -> set[str]:
    calls = trace.gpu.call[_named(trace, kernel)]
    codes = distinct(trace.calls.signature[calls[calls >= 0]])
    return {trace.signatures[code].label for code in codes.tolist() if code >= 0} - {""}


def _short(*names: str) -> str:
    return shortened(names[0], _NAME) if names else ""


def _us(ns: float | None) -> str:
    return "-" if ns is None else f"{ns / 1e3:,.1f} µs"
