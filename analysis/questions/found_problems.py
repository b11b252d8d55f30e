"""The question `findings`: what is wrong, what it costs and what fixing it gains."""

from __future__ import annotations

from dataclasses import asdict

from ..findings.find import Findings
from ..findings.finding import Finding
from .answer import BY_ROW, INFERRED, PREDICTED, RECORDED, AnswerColumn, AnswerContent, AskError, Fact, Value, Values
from .asked_traces import AskedTraces, meant
from .recorded_text import PROSE_WIDTH, quoted, recorded_path, recorded_text

_COLUMNS = (
    AnswerColumn("id", "id"), AnswerColumn("title", "name"), AnswerColumn("certainty", "text"),
    AnswerColumn("cost_ns", "ns", BY_ROW), AnswerColumn("gain_ns", "ns", PREDICTED),
    AnswerColumn("least_gain_ns", "ns", PREDICTED), AnswerColumn("most_gain_ns", "ns", PREDICTED),
    AnswerColumn("line", "name"), AnswerColumn("module", "name"), AnswerColumn("operator", "name"),
    AnswerColumn("kernel", "name"), AnswerColumn("rank", "number", RECORDED), AnswerColumn("first_event", "id"),
)  # fmt: skip


def findings(asked: AskedTraces, *, id: str = "", trace: int | None = None, steps: str | None = None) -> AnswerContent:
    """Findings, the largest gain first; with an id its evidence, advice, check and what-ifs."""
    numbers = asked.chosen(trace)
    found = asked.findings(numbers, steps)
    here = asked.at("trace", numbers[0], None) if len(numbers) == 1 else "traces"
    if id:
        return _one(asked, numbers, found, id)
    content = AnswerContent(columns=_COLUMNS)
    content.facts = [
        Fact("makespan_ns", found.makespan_ns, "ns", PREDICTED, here),
        Fact("replay_error", None if found.base is None else found.base.makespan, "share", PREDICTED, here),
        Fact("looked_for", len(found.looked_for), "count", RECORDED, here),
    ]
    if found.together is not None:
        content.facts.append(Fact("gain_of_the_first_three_ns", found.together.ns, "ns", PREDICTED, here))
    content.rows = [_row(asked, numbers, at, finding) for at, finding in enumerate(found.all)]
    content.notes = [quoted(note, 250) for note in found.notes]
    if found.none_reason:
        content.notes.insert(0, found.none_reason)
    else:
        content.notes.append("evidence, advice and check: findings with id=ID")
    return content


def _row(asked: AskedTraces, numbers: list[int], at: int, finding: Finding) -> Values:
    where, gain = finding.where, finding.gain
    number = where.rank if where.rank in asked.traces else numbers[0]
    return {
        "id": f"finding:{at}", "title": f"{finding.id}: {recorded_text(finding.title, PROSE_WIDTH)}",
        "certainty": finding.certainty, "cost_ns": finding.cost_ns,
        "gain_ns": None if gain is None else gain.ns, "least_gain_ns": None if gain is None else gain.low_ns,
        "most_gain_ns": None if gain is None else gain.high_ns,
        "line": where.source and recorded_path(where.source), "module": where.module and recorded_path(where.module),
        "operator": where.operator and recorded_text(where.operator),
        "kernel": where.kernel and recorded_text(where.kernel), "rank": where.rank,
        "first_event": asked.at("event", where.rows[0], number) if where.rows else None,
        "search": f"{finding.id} {finding.title}",
    }  # fmt: skip


def _one(asked: AskedTraces, numbers: list[int], found: Findings, id: str) -> AnswerContent:
    """Everything of one finding."""
    known = [*(f"finding:{at}" for at in range(len(found.all))), *(finding.id for finding in found.all)]
    if id not in known:
        works = [f"id=finding:{at} ({finding.id})" for at, finding in enumerate(found.first)] or ["findings without id"]
        raise AskError(f"no finding {quoted(id, 40)}", meant(id, known), works)
    at = known.index(id) % len(found.all)
    finding = found.all[at]
    here = f"finding:{at}"
    row = _row(asked, numbers, at, finding)
    units = {column.name: column for column in _COLUMNS}
    facts = [
        Fact(name, value, units[name].unit, finding.certainty if name == "cost_ns" else units[name].certainty, here)
        for name, value in row.items() if name in units and name != "id" and value is not None
    ]  # fmt: skip
    where = asdict(finding.where)
    for key in ("phase", "step", "stream", "start_ns", "end_ns"):
        if where[key] is not None:
            unit = "ns" if key.endswith("_ns") else "number" if key == "stream" else "name"
            shown: Value = recorded_text(where[key]) if isinstance(where[key], str) else where[key]
            facts.append(Fact(key, shown, unit, INFERRED if key == "phase" else RECORDED, here))
    if finding.gain is not None:
        facts.append(Fact("unexplained_waits", finding.gain.unexplained, "share", PREDICTED, here))
    parts = [
        *(_part("evidence", one.text, one.value, one.unit, one.command) for one in finding.evidence),
        _part("advice", finding.advice), _part("check", finding.check),
        *(_part("what-if", text) for text in finding.what_ifs),
    ]  # fmt: skip
    columns = (
        AnswerColumn("id", "id"), AnswerColumn("part", "text"), AnswerColumn("text", "name"),
        AnswerColumn("value", "number", BY_ROW), AnswerColumn("unit", "text"), AnswerColumn("command", "name"),
        AnswerColumn("certainty", "text"),
    )  # fmt: skip
    return AnswerContent(facts, columns, [{"id": here, **part, "certainty": finding.certainty} for part in parts])


def _part(part: str, text: str, value: Value | None = None, unit: str = "", command: str = "") -> dict[str, Value]:
    return {
        "part": part, "text": recorded_text(text, 400), "value": value, "unit": unit or None,
        "command": recorded_text(command, 200) or None,
    }  # fmt: skip
