"""The question `why`: what idle time, a kernel or a step are made of."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ...trace.call_tree import nearest
from ...trace.columns import IntColumn, distinct_rows
from ...trace.conventions import BETWEEN
from ...trace.errors import EtplusError
from ...trace.index import GpuIndex
from ...trace.intervals import sums
from ...trace.kinds import PHASES
from ...trace.tables import OP
from ...trace.trace import Trace
from ...trace.views import DeviceEvent
from ..device_gaps import MOST_GAPS, Gap, longest_gaps
from ..event_bounds import event_bounds
from ..origins import idle_before
from .answer import BY_ROW, INFERRED, PREDICTED, RECORDED, AnswerColumn, AnswerContent, AskError, Fact, Value, Values
from .asked_traces import AskedTraces, Id, meant, parse_id
from .recorded_text import quoted, recorded_path, recorded_text

_REPEATED = 3
"""Steps from which the median of the others says what is usual."""


def why(asked: AskedTraces, *, what: str, trace: int | None = None, steps: str | None = None) -> AnswerContent:
    """What the device waited for ("idle"); what launched a kernel and how it stands; how a step differs from others."""
    found = parse_id(what)
    if found is not None and found.trace is not None:
        trace = found.trace
    number = asked.only(trace, "why")
    content = _why(asked, number, what, found, steps)
    content.about = (number,)
    return content


def _why(asked: AskedTraces, number: int, what: str, found: Id | None, steps: str | None) -> AnswerContent:
    if what.strip().lower() == "idle":
        return _idle(asked, number, steps)
    if found is not None and found.kind == "step":
        return _step(asked, number, found.number)
    names = list(asked.traces[number].steps.names)
    if what in names:
        return _step(asked, number, names.index(what))
    if found is not None and found.kind not in ("kernel", "step"):
        raise AskError(f"why explains idle time, kernels and steps, not {what[:40]}", works=_works(asked, number, what))
    return _kernel(asked, number, what, steps)


def _works(asked: AskedTraces, number: int, what: str) -> list[str]:
    found = parse_id(what)
    event = [f"event id={what}"] if found is not None and found.kind in ("event", "unattached") else []
    kernel = next((row.kernel for row in asked.analysis(number).kernels), None)
    named = [] if kernel is None else [f"what={asked.name_id('kernel', kernel)}"]
    return [*event, "what=idle", *named, *(["what=step:0"] if len(asked.traces[number].steps) else [])]


def _idle(asked: AskedTraces, number: int, steps: str | None) -> AnswerContent:
    part, analysis = asked.part(number, steps), asked.analysis(number, steps)
    if not len(part.gpu):
        raise AskError("no device event was recorded, so that no device was idle", works=["hot by=operator"])
    content = AnswerContent(order="idle_ns", columns=(
        AnswerColumn("id", "id"), AnswerColumn("device", "number", RECORDED), AnswerColumn("start_ns", "ns", RECORDED),
        AnswerColumn("idle_ns", "ns", RECORDED), AnswerColumn("cause", "text"), AnswerColumn("filled_by", "name"),
        AnswerColumn("filled_ns", "ns", RECORDED), AnswerColumn("before", "name"), AnswerColumn("after", "name"),
        AnswerColumn("launched_by", "name"), AnswerColumn("line", "name"), AnswerColumn("module", "name"),
    ))  # fmt: skip
    late = idle_before(part)
    for use in analysis.device_use:
        mine = np.flatnonzero(part.gpu.device == use.device)
        first, last = int(part.gpu.ts[mine].min()), int(part.gpu.end[mine].max())
        before, after = max(first - part.span.start, 0), max(part.span.end - last, 0)
        here, host = asked.at("device", use.device, number), int(late[mine].sum())
        content.facts += [
            Fact("idle_ns", use.idle_ns, "ns", RECORDED, here),
            Fact("before_first_event_ns", before, "ns", RECORDED, here),
            Fact("launched_late_ns", host, "ns", RECORDED, here),
            Fact("other_gaps_ns", use.idle_ns - before - after - host, "ns", RECORDED, here),
            Fact("after_last_event_ns", after, "ns", RECORDED, here),
        ]
    content.rows = [_gap_row(asked, number, part, gap) for gap in longest_gaps(part)]
    content.notes.append(
        "launched late: the launch of the event after the gap began after the gap had; id: that event, after the "
        "last event that one; filled_by: what "
        f"ran longest by itself on the launching thread meanwhile, {BETWEEN} for Python outside any operator"
    )
    if len(content.rows) == MOST_GAPS:
        content.notes.append(f"the {MOST_GAPS} longest gaps are listed")
    return content


def _gap_row(asked: AskedTraces, number: int, part: Trace, gap: Gap) -> Values:
    begin = part.span.start + gap.start
    end = begin + gap.idle_ns
    gpu = part.gpu
    edge = gpu.ts == end if gap.after else gpu.end == begin
    beside = np.flatnonzero((gpu.device == gap.device) & edge)
    name = gap.after or gap.before
    event = next((at for at in beside.tolist() if part.names[gpu.name[at]] == name), int(beside[0]))
    return {
        "id": asked.device_event_id(number, part, event), "device": gap.device,
        "start_ns": begin - asked.whole(number).span.start, "idle_ns": gap.idle_ns, "cause": _cause(gap),
        "filled_by": recorded_text(gap.host), "filled_ns": gap.host_ns,
        "before": recorded_text(gap.before, 50) if gap.before else None,
        "after": recorded_text(gap.after, 50) if gap.after else None,
        "launched_by": recorded_text(gap.launched_by, 50) if gap.after else None,
        "line": recorded_path(gap.source) if gap.after else None,
        "module": recorded_text(gap.module, 40) if gap.after else None,
        "search": " ".join((gap.host, gap.before, gap.after, gap.launched_by, gap.source, gap.module)),
    }  # fmt: skip


def _cause(gap: Gap) -> str:
    if not gap.before:
        return "before the first event"
    if not gap.after:
        return "after the last event"
    if gap.launch_ns is None:
        return "launch not recorded"
    return "launched late" if gap.launch_ns > 0 else "launched in time"


def _kernel(asked: AskedTraces, number: int, what: str, steps: str | None) -> AnswerContent:
    part, analysis = asked.part(number, steps), asked.analysis(number, steps)
    known = list(dict.fromkeys(row.kernel for row in analysis.kernels))
    if not known:
        raise AskError("no device event was recorded", works=["hot by=operator"])
    if what.strip().lower() in ("step", "kernel") or (parse_id(what) is None and meant(what, ["idle"])):
        raise AskError(f"what={quoted(what, 40)}: say which", meant(what, ["idle"]), _works(asked, number, what))
    try:
        name = asked.name_of(what, "kernel", known)
    except AskError as error:
        raise AskError(error.problem, error.did_you_mean, _works(asked, number, what)) from None
    gpu, here = part.gpu, asked.name_id("kernel", name)
    events = np.flatnonzero(gpu.name == part.names.index(name))
    dur, whole = gpu.dur[events], int(gpu.dur.sum())
    ranks = sorted({row.kernel: 0 for row in analysis.kernels}, key=known.index)
    content = AnswerContent(order="device_ns", columns=_LAUNCHED)
    content.facts = [
        Fact("kernel", recorded_text(name), "name", "", here),
        Fact("device_ns", int(dur.sum()), "ns", RECORDED, here),
        Fact("count", len(events), "count", RECORDED, here),
        Fact("share", int(dur.sum()) / whole if whole else None, "share", RECORDED, here),
        Fact("place by device time", 1 + ranks.index(name), "number", RECORDED, here),
        Fact("least_ns", int(dur.min()), "ns", RECORDED, here),
        Fact("median_ns", float(np.median(dur)), "ns", RECORDED, here),
        Fact("most_ns", int(dur.max()), "ns", RECORDED, here),
        *_bound(asked, number, part, events, here, steps),
        *_on_path(asked, number, name, here, steps),
    ]
    content.rows = list(_launches(asked, number, part, events))
    return content


_LAUNCHED = (
    AnswerColumn("id", "id"), AnswerColumn("operator", "name"), AnswerColumn("launch_call", "name"),
    AnswerColumn("line", "name"), AnswerColumn("module", "name"), AnswerColumn("phase", "text"),
    AnswerColumn("count", "count", BY_ROW), AnswerColumn("device_ns", "ns", BY_ROW), AnswerColumn("certainty", "text"),
)  # fmt: skip


def _bound(
    asked: AskedTraces, number: int, part: Trace, events: IntColumn, here: str, steps: str | None
) -> Iterator[Fact]:
    analysis = asked.analysis(number, steps)
    bounds = event_bounds(analysis.trace, analysis.work, analysis.devices)[events]
    known = bounds >= 0
    least, took = int(bounds[known].sum()), int(part.gpu.dur[events][known].sum())
    yield Fact("bound_ns", least if took else None, "ns", INFERRED, here)
    yield Fact("bound_share", least / took if took else None, "share", INFERRED, here)
    bound = next((row.bound for row in analysis.kernels if row.kernel == part.names[part.gpu.name[events[0]]]), "")
    yield Fact("bound", bound or None, "text", "", here)


def _on_path(asked: AskedTraces, number: int, name: str, here: str, steps: str | None) -> Iterator[Fact]:
    try:
        path = asked.case([number], steps).path
        gain = asked.gain([number], [f"kernel:name={name}*0"], steps)
    except EtplusError:
        return
    yield Fact("critical_path_ns", sum(ns for (_, op), ns in path.by_op.items() if op == name), "ns", PREDICTED, here)
    yield Fact("gain_if_it_took_no_time_ns", gain, "ns", PREDICTED, here)


def _launches(asked: AskedTraces, number: int, part: Trace, events: IntColumn) -> Iterator[Values]:
    """By operator, launch call, line, module and phase, the most time first."""
    gpu, origin = part.gpu, part.origin
    calls = part.calls
    call = nearest(origin.gpu_call[events], calls.parent, calls.kind == OP) if len(calls) else gpu.call[events]
    op, launch = np.append(calls.name, -1)[call], np.append(part.runtime.name, -1)[gpu.runtime[events]]
    line = np.append(part.source_table.of_entry, -1)[origin.gpu_entry[events]]
    inferred = (gpu.call[events] < 0) & (origin.gpu_call[events] >= 0)
    keys, of = distinct_rows(
        op, launch, line, origin.gpu_module[events], origin.gpu_phase[events], inferred.astype(int)
    )
    count, ns = np.bincount(of, minlength=len(keys)), sums(of, gpu.dur[events], len(keys))
    for at in np.argsort(-ns, kind="stable").tolist():
        op_code, launch_code, line_code, module, phase, guessed = keys[at].tolist()
        first = int(events[np.flatnonzero(of == at)[np.argmax(gpu.dur[events][of == at])]])
        name, source = (part.names[op_code] if op_code >= 0 else ""), DeviceEvent(part, GpuIndex(first)).source
        path = " / ".join(origin.modules[module]) if module >= 0 else ""
        place = f"{source.file}:{source.line}" if line_code >= 0 and source is not None else ""
        yield {
            "id": asked.device_event_id(number, part, first), "operator": recorded_text(name),
            "launch_call": recorded_text(part.names[launch_code]) if launch_code >= 0 else None,
            "line": recorded_path(place), "module": recorded_path(path, 100), "phase": PHASES[phase],
            "count": int(count[at]), "device_ns": int(ns[at]), "certainty": INFERRED if guessed else RECORDED,
            "search": f"{name} {place} {path}",
        }  # fmt: skip


def _step(asked: AskedTraces, number: int, step: int) -> AnswerContent:
    trace = asked.whole(number)
    count = len(trace.steps)
    if not 0 <= step < count:
        works = [f"what=step:{at}" for at in range(min(count, 4))] or ["what=idle", "hot by=kernel"]
        raise AskError(f"no step {step}; the trace has {count:,}", works=works)
    here = asked.at("step", step, number)
    durations = trace.steps.end - trace.steps.start
    others = np.delete(durations, step)
    usual = float(np.median(others)) if len(others) else None
    how = INFERRED if trace.steps.inferred else RECORDED
    rows = asked.analysis(number).iterations
    mine = next((row for row in rows if row.name == trace.steps.names[step]), None)
    content = AnswerContent(order="change_ns", columns=(
        AnswerColumn("id", "id"), AnswerColumn("kind", "text"), AnswerColumn("name", "name"),
        AnswerColumn("this_ns", "ns", how), AnswerColumn("others_mean_ns", "ns", how),
        AnswerColumn("change_ns", "ns", how), AnswerColumn("count", "count", how),
        AnswerColumn("others_mean_count", "count", how),
    ))  # fmt: skip
    content.facts = [
        Fact("step", recorded_text(trace.steps.names[step]), "name", "", here),
        Fact("duration_ns", int(durations[step]), "ns", how, here),
        Fact("others_median_ns", usual, "ns", how, here),
        Fact("place by duration", 1 + int(np.count_nonzero(durations > durations[step])), "number", how, here),
    ]
    if mine is not None:
        content.facts.append(Fact("gpu_busy_ns", mine.gpu_ns, "ns", how, here))
    content.rows = sorted(
        [
            *_against(asked, trace, "kernel", step, trace.gpu.name, trace.gpu.dur, trace.step_of_event),
            *_against(
                asked, trace, "operator", step, trace.calls.name, trace.self_ns, trace.step_of_call,
                trace.calls.kind == OP,
            ),
        ],
        key=lambda row: -abs(row["change_ns"]),  # type: ignore[arg-type]
    )  # fmt: skip
    content.order = ""
    content.notes.append(
        "kernels: device time of what the step launched; operators: host time without the calls inside"
    )
    if count < _REPEATED:
        content.notes.append(f"the trace has {count} steps, too few to say what is usual")
    return content


def _against(
    asked: AskedTraces, trace: Trace, kind: str, step: int,
    name: npt.NDArray[np.int32], ns: IntColumn, of_step: IntColumn,
    among: npt.NDArray[np.bool_] | None = None,
) -> Iterator[dict[str, Value]]:  # fmt: skip
    """By name the time in a step and the mean of the others."""
    inside = of_step >= 0 if among is None else (of_step >= 0) & among
    codes, of = np.unique(name[inside], return_inverse=True)
    of, here = of.reshape(-1), of_step[inside] == step
    others = max(len(trace.steps) - 1, 1)
    columns = (
        sums(of[here], ns[inside][here], len(codes)), sums(of[~here], ns[inside][~here], len(codes)) / others,
        np.bincount(of[here], minlength=len(codes)), np.bincount(of[~here], minlength=len(codes)) / others,
    )  # fmt: skip
    for code, mine, usual, count, usual_count in zip(codes.tolist(), *(c.tolist() for c in columns), strict=True):
        yield {
            "id": asked.name_id(kind, trace.names[code]), "kind": kind, "name": recorded_text(trace.names[code]),
            "search": trace.names[code], "this_ns": mine, "others_mean_ns": usual, "change_ns": mine - usual,
            "count": int(count), "others_mean_count": usual_count,
        }  # fmt: skip
