"""The question `overview`: what was recorded, and how busy each device was."""

from __future__ import annotations

from collections.abc import Iterator

from ...trace.trace import Trace
from .answer import INFERRED, PREDICTED, RECORDED, AnswerColumn, AnswerContent, Fact, Values
from .asked_traces import AskedTraces
from .recorded_text import quoted, recorded_text

_MOST_TRACES = 4
"""Traces with facts of their own; the table has all."""


def overview(asked: AskedTraces, *, trace: int | None = None, steps: str | None = None) -> AnswerContent:
    """A row a device of each trace, and of the first traces steps, span, links and memory."""
    numbers = list(asked.traces) if trace is None else asked.chosen(trace)
    content = AnswerContent(columns=_COLUMNS, about=numbers)
    content.facts.append(Fact("traces", len(asked.traces), "count", RECORDED, "traces"))
    content.facts.append(Fact("one_job", asked.job, "yes/no", INFERRED, "traces"))
    rows: list[Values] = []
    for number in numbers:
        rows += _devices(asked, number, steps)
        part = asked.part(number, steps)
        if len(content.facts) < 8 * _MOST_TRACES:
            content.facts += _facts(asked, number, steps, part)
        content.notes += [quoted(text, 200) for text in part.damage]
        content.notes += [text for text in asked.analysis(number, steps).notes if text not in content.notes]
    content.rows = rows
    return content


def _facts(asked: AskedTraces, number: int, steps: str | None, part: Trace) -> Iterator[Fact]:
    analysis, here = asked.analysis(number, steps), asked.at("trace", number, None)
    how = INFERRED if part.steps.inferred else RECORDED
    yield Fact("span_ns", part.span.length, "ns", RECORDED if part.times_recorded else PREDICTED, here)
    yield Fact("calls", len(part.calls), "count", RECORDED, here)
    yield Fact("steps", len(analysis.iterations), "count", how, here)
    if analysis.iterations:
        yield Fact("mean_step_ns", analysis.mean_latency_ns, "ns", how, here)
    if part.link_report is not None and part.outputs_recorded:
        ops = part.link_report.ops
        yield Fact("linked_operators", ops["linked"], "count", INFERRED, here)
        yield Fact("certainly_linked_operators", ops["certain"], "count", INFERRED, here)
    for memory in analysis.memory:
        measured = RECORDED if memory.source.startswith("allocator") else INFERRED
        yield Fact(f"peak_memory_bytes of {memory.device}", memory.peak_bytes, "bytes", measured, here)


_COLUMNS = (
    AnswerColumn("id", "id"), AnswerColumn("device", "name"), AnswerColumn("rank", "number", RECORDED),
    AnswerColumn("span_ns", "ns", RECORDED), AnswerColumn("device_events", "count", RECORDED),
    AnswerColumn("busy_ns", "ns", RECORDED), AnswerColumn("idle_ns", "ns", RECORDED),
    AnswerColumn("busy_share", "share", RECORDED), AnswerColumn("compute_ns", "ns", RECORDED),
    AnswerColumn("copy_ns", "ns", RECORDED), AnswerColumn("communication_ns", "ns", RECORDED),
    AnswerColumn("exposed_communication_ns", "ns", RECORDED),
)  # fmt: skip


def _devices(asked: AskedTraces, number: int, steps: str | None) -> Iterator[Values]:
    part, analysis = asked.part(number, steps), asked.analysis(number, steps)
    for use in analysis.device_use:
        name = str(part.properties.get(use.device, {}).get("name") or "")
        yield {
            "id": asked.at("device", use.device, number), "device": recorded_text(name), "rank": part.rank,
            "span_ns": use.window_ns, "device_events": int((part.gpu.device == use.device).sum()),
            **{key: getattr(use, key) for key in (
                "busy_ns", "idle_ns", "busy_share", "compute_ns", "copy_ns", "communication_ns",
                "exposed_communication_ns",
            )},
        }  # fmt: skip
