"""The question `path`: what the critical path of the replay is made of."""

from __future__ import annotations

import numpy as np

from ...timeline.critical import CriticalPath, resource_bounds, with_origins
from ...timeline.replay_graph import DURATION, LINK_KINDS
from ...trace.kinds import GPU
from .answer import INFERRED, PREDICTED, RECORDED, AnswerColumn, AnswerContent, AskError, Fact, Values
from .asked_traces import AskedTraces
from .recorded_text import recorded_path, recorded_text

BY = ("kind", "operator", "line", "phase", "event")
_MOST_EVENTS = 2000


def path(asked: AskedTraces, *, by: str = "kind", trace: int | None = None, steps: str | None = None) -> AnswerContent:
    """Parts of the critical path, the longest first; of all ranks of a job coupled."""
    numbers = asked.chosen(trace)
    case = asked.case(numbers, steps)
    found = case.path
    here = asked.at("trace", numbers[0], None) if len(numbers) == 1 else "traces"
    content = AnswerContent(order="path_ns")
    content.facts = [
        Fact("length_ns", found.length_ns, "ns", PREDICTED, here),
        Fact("measured_ns", case.base.measured_ns, "ns", RECORDED, here),
        Fact("replay_error", case.base.error, "share", PREDICTED, here),
        Fact("unexplained_waits", case.base.unexplained.share, "share", PREDICTED, here),
        *(Fact(f"{name.replace(' ', '_')}_ns", ns, "ns", PREDICTED, here)
          for name, ns in resource_bounds(case.base).items()),
    ]  # fmt: skip
    if by in ("line", "phase"):
        if len(numbers) > 1:
            raise AskError(f"path by {by} is of one trace", works=[f"trace={number}" for number in numbers[:4]])
        found = with_origins(found, case.base, case.trace)
    if by == "event":
        content.columns = (
            AnswerColumn("id", "id"), AnswerColumn("kind", "text"), AnswerColumn("name", "name"),
            AnswerColumn("start_ns", "ns", PREDICTED), AnswerColumn("path_ns", "ns", PREDICTED),
            AnswerColumn("on_device", "yes/no", RECORDED),
        )  # fmt: skip
        content.rows = _events(asked, numbers, steps)
        content.notes.append("id: the event whose work it is, or which a wait or latency leads to")
        return content
    content.columns = (
        AnswerColumn("id", "id"), AnswerColumn("kind", "text"), *([] if by == "kind" else [AnswerColumn(by, "name")]),
        AnswerColumn("path_ns", "ns", INFERRED if by in ("line", "phase") else PREDICTED),
        AnswerColumn("share", "share", PREDICTED),
    )  # fmt: skip
    content.rows = _parts(asked, found, by)
    if by in ("line", "phase"):
        content.notes.append("work of the path only: waits and latencies have no line")
    return content


def _parts(asked: AskedTraces, found: CriticalPath, by: str) -> list[Values]:
    length = found.length_ns or 1
    if by == "kind":
        parts = [("path", kind, "", ns) for kind, ns in found.by_kind.items()]
    elif by == "operator":
        gpu = LINK_KINDS[DURATION]
        parts = [("kernel" if kind == gpu else "operator", kind, name, ns) for (kind, name), ns in found.by_op.items()]
    else:
        parts = [("path", "work", name, ns) for name, ns in getattr(found, f"by_{_SOURCE.get(by, by)}").items()]
    shown = recorded_path if by == "line" else recorded_text
    rows: list[Values] = []
    for at, (kind_of_id, kind, name, ns) in enumerate(parts):
        code = -1 if kind_of_id == "path" else asked.names.code(name)
        rows.append({
            "id": asked.at(kind_of_id, code, None) if code >= 0 else asked.at("path", at, None), "kind": kind,
            by: kind if by == "kind" else shown(name), "path_ns": ns, "share": ns / length, "search": f"{kind} {name}",
        })  # fmt: skip
    return rows


_SOURCE = {"line": "source"}


def _events(asked: AskedTraces, numbers: list[int], steps: str | None) -> list[Values]:
    """Edges of the path with time, the longest first."""
    case = asked.case(numbers, steps)
    replay, edges = case.base, case.graph.edges
    edge = case.path.edge
    ns = replay.lag[edge]
    order = np.argsort(-ns, kind="stable")[:_MOST_EVENTS]
    first = np.cumsum([0, *(len(trace) for trace in case.traces)])
    rows: list[Values] = []
    for at in order[ns[order] > 0].tolist():
        own = int(edges.owner[edge[at]])
        row = own if own >= 0 else int(case.graph.row[edges.target[edge[at]]])
        rank = int(np.searchsorted(first, row, side="right")) - 1 if row >= 0 else -1
        trace, local = (case.traces[rank], row - int(first[rank])) if row >= 0 else (None, -1)
        name = "" if trace is None else trace.names[trace.name[local]]
        begin = int(replay.time[edges.source[edge[at]]])
        rows.append({
            "id": "" if trace is None else asked.at("event", int(trace.id[local]), numbers[rank]),
            "kind": LINK_KINDS[int(edges.kind[edge[at]])], "name": recorded_text(name), "search": name,
            "start_ns": begin, "path_ns": int(ns[at]),
            "on_device": None if trace is None else bool(trace.kind[local] == GPU),
        })  # fmt: skip
    return rows
