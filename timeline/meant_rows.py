"""Select the rows that a what-if changes, by kind, by name, and by part of the work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..schemas.communications import comm_rows
from ..trace.columns import IntColumn, mask_at
from ..trace.conventions import KERNEL_CATEGORIES
from ..trace.errors import UsageError
from ..trace.kinds import CPU, GPU, PHASES
from ..trace.origin import origin_of_rows
from ..trace.selection import parse_window
from ..trace.trace import Trace
from .replay_graph import ReplayGraph

Rows = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Within:
    """The part of the work that a what-if changes. `key` is one of `PARTS`, and `value` is a whole or partial name."""

    key: str
    value: str
    exact: bool = True

    def fits(self, text: str) -> bool:
        return text == self.value if self.exact else self.value in text


# Possible values of `Within.key`.
PARTS = ("phase", "module", "source", "op", "step", "window")


def check_part(part: Within) -> None:
    if part.key == "phase" and not any(part.fits(phase) for phase in PHASES[1:]):
        raise UsageError(f"what-if: no phase {part.value[:60]!r}; there are {', '.join(PHASES[1:])}")
    if part.key == "window":
        parse_window(part.value)


def select(graph: ReplayGraph, target: str, name: str = "", *, exact: bool = False, stream: int = -1) -> Rows:
    """Return the rows that a target of `GRAMMAR` selects. "op" and "call" include callees and launches."""
    parts = []
    for trace in graph.traces:
        wanted = np.array([known == name if exact else name in known for known in trace.names], np.bool_)
        named = wanted[trace.nodes.name] if name else np.ones(len(trace), np.bool_)
        categories = {"kernel": KERNEL_CATEGORIES, "copy": ("gpu_memcpy",), "memset": ("gpu_memset",)}.get(target, ())
        category = np.array([category in categories for category in trace.categories], np.bool_)[trace.nodes.category]
        rows = comm_rows(trace)
        communicates = mask_at(len(trace), [*trace.comm, *rows[trace.nodes.kind[rows] != GPU].tolist()])
        of_kind = {
            "gpu": trace.nodes.kind == GPU,
            "cpu": trace.nodes.kind != GPU,
            "op": trace.nodes.kind == CPU,
            "call": trace.nodes.kind != GPU,
            "stream": (trace.nodes.kind == GPU) & (trace.nodes.stream == stream),
            "comm": communicates,
        }.get(target, category & (trace.nodes.kind == GPU))
        meant = of_kind & named & trace.nodes.timed
        parts.append(with_descendants(trace.nodes.parent_row, meant) if target in ("op", "call") else meant)
    return np.concatenate(parts)


def with_descendants(parent: npt.NDArray[np.int64], rows: Rows) -> Rows:
    inside: Rows = rows.copy()
    while True:
        more = ~inside & (parent >= 0) & inside[parent]
        if not more.any():
            return inside
        inside |= more


def rows_within(graph: ReplayGraph, part: Within) -> Rows:
    return np.concatenate([_within(trace, part) for trace in graph.traces])


def _within(trace: Trace, part: Within) -> Rows:
    nodes = trace.nodes
    match part.key:
        case "phase":
            return _coded(origin_of_rows(trace).phase, [bool(text) and part.fits(text) for text in PHASES])
        case "module":
            named = [any(map(part.fits, path)) or part.fits(" / ".join(path)) for path in trace.origin.modules]
            return _coded(origin_of_rows(trace).module, named)
        case "source":
            table = trace.source_table
            code = np.append(table.of_entry, -1)[origin_of_rows(trace).entry]
            return _coded(code, [part.fits(line.file_line) for line in table.lines])
        case "op":
            fits = _coded(nodes.name, list(map(part.fits, trace.names)))
            return with_descendants(nodes.parent_row, fits & (nodes.kind == CPU) & nodes.timed)
        case "step":
            steps = [part.fits(name) or part.value == str(number) for number, name in enumerate(trace.steps.names)]
            return _coded(step_of_row(trace), steps)
    window, start, end = parse_window(part.value), nodes.ts - nodes.span.start, nodes.end - nodes.span.start
    began = np.where(nodes.kind == GPU, start, end) >= window.start
    return nodes.timed & (start < window.end) & began


def _coded(codes: npt.NDArray[np.integer], wanted: list[bool]) -> Rows:
    selected: Rows = np.append(np.array(wanted, np.bool_), False)[codes]
    return selected


def step_of_row(trace: Trace) -> IntColumn:
    return trace.once(_step_of_row)


def _step_of_row(trace: Trace) -> IntColumn:
    step, steps, gpu, runtime = np.full(len(trace), -1, np.int64), trace.steps, trace.gpu, trace.runtime
    if not len(steps):
        return step
    step[trace.calls.source] = trace.step_of_call
    step[runtime.source] = steps.of(runtime.ts, runtime.thread)
    known = gpu.source >= 0
    step[gpu.source[known]] = trace.step_of_event[known]
    return step
