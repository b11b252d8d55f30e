"""The question `event`: all that is known of one call or device event, and what it calls and launches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...trace.conventions import UNATTACHED_REASONS
from ...trace.index import CallIndex, GpuIndex
from ...trace.kinds import CERTAIN, LINK_NAMES
from ...trace.trace import Trace
from ...trace.views import DeviceEvent, Op
from ..event_bounds import event_bounds
from ..event_work import Work
from .answer import INFERRED, RECORDED, AnswerColumn, AnswerContent, AskError, Fact, Value, Values
from .asked_traces import AskedTraces, parse_id
from .recorded_text import quoted, recorded_path, recorded_text

_COLUMNS = (
    AnswerColumn("id", "id"), AnswerColumn("relation", "text"), AnswerColumn("name", "name"),
    AnswerColumn("start_ns", "ns", RECORDED), AnswerColumn("duration_ns", "ns", RECORDED),
)  # fmt: skip


def event(asked: AskedTraces, *, id: str) -> AnswerContent:
    """Facts of an event; rows: callers, the call that launched it, calls inside, device events launched."""
    number, content = _found(asked, id)
    content.about = (number,)
    return content


def _found(asked: AskedTraces, id: str) -> tuple[int, AnswerContent]:
    """The trace that has the event, and what is known of it."""
    found = parse_id(id.strip()) or parse_id(f"event:{id.strip()}")
    if found is None or found.kind not in ("event", "unattached"):
        raise AskError(f"{quoted(id, 40)} is no id of an event", works=_works(asked, id))
    if found.trace is None and len(asked.traces) > 1:
        works = [f"id={found.kind}:{found.number}@{number}" for number in list(asked.traces)[:4]]
        raise AskError(f"{quoted(id, 40)} does not say which trace it is of", works=works)
    number = asked.chosen(found.trace)[0]
    trace = asked.whole(number)
    if found.kind == "unattached":
        if not (0 <= found.number < len(trace.gpu) and trace.gpu.source[found.number] < 0):
            raise AskError(f"no device event {id[:40]}", works=_works(asked, id))
        return number, _of_device(asked, number, trace, found.number)
    rows = np.flatnonzero(trace.id == found.number)
    if not len(rows):
        raise AskError(f"no event {id[:40]} in trace {number}", works=_works(asked, id))
    row = int(rows[0])
    for table, make in ((trace.gpu, _of_device), (trace.calls, _of_call), (trace.runtime, _of_runtime)):
        at = np.flatnonzero(table.source == row)
        if len(at):
            return number, make(asked, number, trace, int(at[0]))
    here = asked.event_id(number, row)
    name = Fact("name", recorded_text(trace.names[trace.name[row]]), "name", "", here)
    return number, AnswerContent([name], notes=["it has no time: the node was not linked, or is a process or thread"])


def _works(asked: AskedTraces, id: str) -> list[str]:
    found = parse_id(id)
    if found is not None and found.kind == "kernel":
        return [f"why what={id}", f"hot by=event contains={asked.names.values[found.number][:30]}"]
    number = next(iter(asked.traces))
    trace = asked.whole(number)
    if len(trace.gpu):
        return [f"id={asked.device_event_id(number, trace, int(np.argmax(trace.gpu.dur)))}", "hot by=event"]
    last = [f"id={asked.event_id(number, int(trace.calls.source[0]))}"] if len(trace.calls) else []
    return [*last, "hot by=event"]


def _related(asked: AskedTraces, number: int, trace: Trace, relation: str, row: int, ts: int, dur: int) -> Values:
    name = trace.names[trace.name[row]]
    return {
        "id": asked.event_id(number, row), "relation": relation, "name": recorded_text(name), "search": name,
        "start_ns": ts - trace.span.start, "duration_ns": dur,
    }  # fmt: skip


def _calls(asked: AskedTraces, number: int, trace: Trace, relation: str, calls: list[int]) -> Iterator[Values]:
    for call in calls:
        ts, end = int(trace.calls.ts[call]), int(trace.calls.end[call])
        yield _related(asked, number, trace, relation, int(trace.calls.source[call]), ts, end - ts)


def _runtimes(asked: AskedTraces, number: int, trace: Trace, relation: str, calls: list[int]) -> Iterator[Values]:
    for call in calls:
        ts, end = int(trace.runtime.ts[call]), int(trace.runtime.end[call])
        yield _related(asked, number, trace, relation, int(trace.runtime.source[call]), ts, end - ts)


def _devices(asked: AskedTraces, number: int, trace: Trace, events: list[int]) -> Iterator[Values]:
    for at in events:
        name = trace.names[trace.gpu.name[at]]
        yield {
            "id": asked.device_event_id(number, trace, at), "relation": "launched", "name": recorded_text(name),
            "search": name, "start_ns": int(trace.gpu.ts[at]) - trace.span.start, "duration_ns": int(trace.gpu.dur[at]),
        }  # fmt: skip


def _callers(trace: Trace, call: int) -> list[int]:
    """The call and those around it, innermost first."""
    found = []
    while call >= 0:
        found.append(call)
        call = int(trace.calls.parent[call])
    return found


def _common(name: str, kind: str, start: int, dur: int, here: str) -> list[Fact]:
    return [
        Fact("name", recorded_text(name, 300), "name", "", here), Fact("kind", kind, "text", "", here),
        Fact("start_ns", start, "ns", RECORDED, here), Fact("duration_ns", dur, "ns", RECORDED, here),
    ]  # fmt: skip


def _place(of: Op | DeviceEvent, here: str, *, derived: bool) -> list[Fact]:
    """Phase, module, line and step, as far as they are known; what backward has of its forward operator is inferred."""
    source = of.source
    texts: list[tuple[str, Value, str]] = [
        ("phase", of.phase, "text"), ("module", of.module and recorded_text(of.module), "name"),
        ("line", source and recorded_path(f"{source.file}:{source.line}"), "name"),
        ("function", source and recorded_text(source.function), "name"),
        ("step", of.step and recorded_text(of.step), "name"),
    ]  # fmt: skip
    return [Fact(name, text, unit, INFERRED if derived else RECORDED, here) for name, text, unit in texts if text]


def _of_device(asked: AskedTraces, number: int, trace: Trace, at: int) -> AnswerContent:
    view, gpu = DeviceEvent(trace, GpuIndex(at)), trace.gpu
    here = asked.device_event_id(number, trace, at)
    call, launch = int(gpu.call[at]), int(gpu.runtime[at])
    facts = _common(view.name, view.category, view.start_ns - trace.span.start, view.duration_ns, here)
    facts += [
        Fact("device", view.device, "number", RECORDED, here), Fact("stream", view.stream, "number", RECORDED, here),
        *_place(view, here, derived=call < 0 or view.phase != "forward"),
    ]  # fmt: skip
    if launch >= 0:
        delay = int(gpu.ts[at] - trace.runtime.end[launch])
        facts.append(Fact("from_launch_to_start_ns", delay, "ns", RECORDED, here))
    elif call < 0:
        facts.append(Fact("launch", _why_unlaunched(trace, at), "text", "", here))
    facts += _work(asked, number, at, here)
    if int(gpu.bytes[at]) >= 0:
        facts.append(Fact("bytes", int(gpu.bytes[at]), "bytes", RECORDED, here))
    comm = view.comm
    if comm is not None:
        facts.append(Fact("communicates", recorded_text(str(comm), 200), "name", RECORDED, here))
    rows = [
        *_runtimes(asked, number, trace, "launched by", [launch] if launch >= 0 else []),
        *_calls(asked, number, trace, "called in", _callers(trace, call)),
    ]
    return AnswerContent(facts, _COLUMNS, rows)


def _why_unlaunched(trace: Trace, at: int) -> str:
    return str(UNATTACHED_REASONS[int(trace.gpu.reason[at])])


def _work(asked: AskedTraces, number: int, at: int, here: str) -> Iterator[Fact]:
    """FLOPs, bytes and the time at the device's peaks, where they are known."""
    analysis = asked.analysis(number)
    work: Work = analysis.work
    if work.flops[at] >= 0:
        yield Fact("flop", int(work.flops[at]), "flop", INFERRED, here)
    if work.bytes[at] >= 0:
        yield Fact("moved_bytes", int(work.bytes[at]), "bytes", INFERRED, here)
    bound = int(event_bounds(analysis.trace, work, analysis.devices)[at])
    if bound >= 0:
        yield Fact("bound_ns", bound, "ns", INFERRED, here)


def _of_call(asked: AskedTraces, number: int, trace: Trace, at: int) -> AnswerContent:
    op = Op(trace, CallIndex(at))
    row = int(trace.calls.source[at])
    here = asked.event_id(number, row)
    facts = _common(op.name, op.kind, op.start_ns - trace.span.start, op.duration_ns, here)
    facts += [
        Fact("self_ns", op.self_ns, "ns", RECORDED, here), Fact("device_ns", op.device_ns, "ns", RECORDED, here),
        Fact("thread", op.thread, "number", RECORDED, here), *_place(op, here, derived=op.phase != "forward"),
    ]  # fmt: skip
    if trace.outputs_recorded:
        link = int(trace.link[row])
        facts.append(Fact("link", LINK_NAMES[link], "text", RECORDED if link == CERTAIN else INFERRED, here))
    if op.shapes:
        facts.append(
            Fact("shapes", recorded_text(str([list(shape) for shape in op.shapes]), 200), "name", RECORDED, here)
        )
    forward = op.forward
    if forward is not None:
        behind = asked.event_id(number, int(trace.calls.source[forward.index]))
        facts.append(Fact("forward_operator", behind, "id", INFERRED, here))
    launched = [int(event) for event in op.kernels.rows]
    inside = [int(child) for child in op.children.rows]
    rows = [
        *_calls(asked, number, trace, "called in", _callers(trace, at)[1:]),
        *_calls(asked, number, trace, "calls", inside), *_devices(asked, number, trace, launched),
    ]  # fmt: skip
    return AnswerContent(facts, _COLUMNS, rows)


def _of_runtime(asked: AskedTraces, number: int, trace: Trace, at: int) -> AnswerContent:
    runtime = trace.runtime
    here = asked.event_id(number, int(runtime.source[at]))
    start, end = int(runtime.ts[at]), int(runtime.end[at])
    name = trace.names[runtime.name[at]]
    facts = _common(name, "runtime call", start - trace.span.start, end - start, here)
    facts.append(Fact("thread", int(runtime.thread[at]), "number", RECORDED, here))
    launched = np.flatnonzero(trace.gpu.runtime == at).tolist()
    rows = [
        *_calls(asked, number, trace, "called in", _callers(trace, int(runtime.call[at]))),
        *_devices(asked, number, trace, launched),
    ]
    return AnswerContent(facts, _COLUMNS, rows)
