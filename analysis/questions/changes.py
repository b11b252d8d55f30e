"""The questions `whatif` and `diff`: what a change would gain, and what differs between two traces."""

from __future__ import annotations

from collections.abc import Sequence

from ...timeline.whatif import GRAMMAR
from ...trace.errors import UsageError
from ..findings.find import Findings
from ..findings.finding import Candidate, Intervention, Where
from ..findings.pricing import gain_of
from ..findings.trace_changes import changes as compare
from ..trace_diff import Difference, DiffRow
from .answer import BY_ROW, PREDICTED, RECORDED, AnswerColumn, AnswerContent, AskError, Fact, Values
from .asked_traces import AskedTraces, meant
from .recorded_text import PROSE_WIDTH, quoted, recorded_path, recorded_text

_FINDINGS = 2
"""So many findings of a comparison are said with its tables: the answer stays short."""
_FINDING_COLUMNS = (
    AnswerColumn("id", "id"), AnswerColumn("title", "name"), AnswerColumn("certainty", "text"),
    AnswerColumn("cost_ns", "ns", BY_ROW), AnswerColumn("line", "name"), AnswerColumn("operator", "name"),
    AnswerColumn("kernel", "name"), AnswerColumn("evidence", "name"), AnswerColumn("advice", "name"),
)  # fmt: skip
DIFF_BY = ("kernel", "operator", "line", "finding")


def whatif(
    asked: AskedTraces, *, changes: Sequence[str], trace: int | None = None, steps: str | None = None
) -> AnswerContent:
    """The makespan of the replay with changes, together and each by itself; of all ranks of a job coupled."""
    if not changes:
        raise AskError("no change was given", works=_grammar())
    numbers = asked.chosen(trace)
    case = asked.case(numbers, steps)
    here = asked.at("trace", numbers[0], None) if len(numbers) == 1 else "traces"
    content = AnswerContent(columns=(
        AnswerColumn("id", "id"), AnswerColumn("change", "name"), AnswerColumn("gain_ns", "ns", PREDICTED),
        AnswerColumn("least_gain_ns", "ns", PREDICTED), AnswerColumn("most_gain_ns", "ns", PREDICTED),
        AnswerColumn("makespan_ns", "ns", PREDICTED),
    ))  # fmt: skip
    sets = [tuple(changes), *((change,) for change in changes)] if len(changes) > 1 else [tuple(changes)]
    rows: list[Values] = []
    for at, given in enumerate(sets):
        try:
            after = asked.changed(numbers, given, steps).makespan_ns
        except UsageError as error:
            raise AskError(str(error).partition(";")[0], *_help(asked, numbers, given)) from None
        what = Candidate("", "", Where(), (), None, "", "", "", tuple(Intervention(text) for text in given))
        range_ = gain_of(case, [what])
        gain = case.makespan_ns - after
        rows.append({
            "id": asked.at("change", at, None), "change": recorded_text(" and ".join(given), 200), "gain_ns": gain,
            "least_gain_ns": range_.low_ns if range_ is not None and gain > 0 else None,
            "most_gain_ns": range_.high_ns if range_ is not None and gain > 0 else None, "makespan_ns": after,
        })  # fmt: skip
    content.rows = rows
    content.facts = [
        Fact("measured_ns", case.base.measured_ns, "ns", RECORDED, here),
        Fact("makespan_ns", case.makespan_ns, "ns", PREDICTED, here),
        Fact("gain_ns", rows[0]["gain_ns"], "ns", PREDICTED, here),
        Fact("gain_share", int(rows[0]["gain_ns"] or 0) / (case.makespan_ns or 1), "share", PREDICTED, here),
        Fact("replay_error", case.base.error, "share", PREDICTED, here),
        Fact("unexplained_waits", case.base.unexplained.share, "share", PREDICTED, here),
    ]  # fmt: skip
    if len(changes) > 1:
        content.notes.append("the first row is all changes together: gains do not add up")
    if not case.base_error.reliable:
        content.notes.append(
            "the replay without changes is too far from the recording for small gains to mean anything"
        )
    return content


def _grammar() -> list[str]:
    return [text for line in GRAMMAR.splitlines() if (text := line.split("  ")[0])]


def _help(asked: AskedTraces, numbers: list[int], given: Sequence[str]) -> tuple[list[str], list[str]]:
    """What a change may have meant that is not understood, or that means nothing in the traces."""
    names = [name for number in numbers for name in asked.traces[number].names]
    for text in given:
        target, colon, name = text.partition(":")
        name = name.lstrip("name").lstrip("~=").partition("*")[0] if colon else ""
        if name and (near := meant(name, names)):
            return [f"{target}:{'name=' if 'op' not in target else ''}{recorded_text(one, 80)}" for one in near], []
    return [], _grammar()


def diff(
    asked: AskedTraces, *, by: str = "kernel", a: int | None = None, b: int | None = None, total: bool = False
) -> AnswerContent:
    """Device time in two traces, an iteration of each on average where both have iterations; and what became slower
    and why, by="finding", of which the first ones are said in any case."""
    numbers = list(asked.traces)
    if len(numbers) < 2:
        raise AskError("diff compares two traces, one was given", works=["etplus diff A B", "etplus mcp A B"])
    first, second = (numbers[0] if a is None else a), (numbers[1] if b is None else b)
    for number in (first, second):
        asked.chosen(number)
    found = compare(asked.analysis(first), asked.analysis(second), total=total)
    content = AnswerContent(facts=_totals(asked, found, first, second), about=(first, second))
    if by == "finding":
        content.columns, content.rows = _FINDING_COLUMNS, _findings(asked, found.findings, second)
        content.notes = [found.findings.none_reason] if found.findings.none_reason else []
        return content
    content.facts += [
        Fact(f"finding {at + 1}", f"{one.id}: {recorded_text(one.title, PROSE_WIDTH)}", "name", one.certainty, of)
        for at, (one, of) in enumerate((one, asked.at("trace", second, None)) for one in found.findings[:_FINDINGS])
    ]
    content.rows = _lines(asked, found) if by == "line" else _named(asked, found, by)
    content.columns = (
        AnswerColumn("id", "id"), AnswerColumn(by, "name"), AnswerColumn("a_ns", "ns", RECORDED),
        AnswerColumn("b_ns", "ns", RECORDED), AnswerColumn("change_ns", "ns", RECORDED),
        AnswerColumn("a_count", "count", RECORDED), AnswerColumn("b_count", "count", RECORDED),
    )  # fmt: skip
    content.notes = [quoted(text, 200) for text in found.damage]
    if found.per_iteration:
        content.notes.append("all numbers are of an iteration, on average")
    if by == "line" and not content.rows:
        content.notes.append("no source lines are recorded: record with with_stack=True")
    return content


def _findings(asked: AskedTraces, found: Findings, second: int) -> list[Values]:
    """What became slower and why; places are in the second trace."""
    return [
        {
            "id": asked.at("change", at, None), "title": f"{one.id}: {recorded_text(one.title, PROSE_WIDTH)}",
            "certainty": one.certainty, "cost_ns": one.cost_ns,
            "line": one.where.source and recorded_path(one.where.source),
            "operator": one.where.operator and recorded_text(one.where.operator),
            "kernel": one.where.kernel and recorded_text(one.where.kernel),
            "evidence": recorded_text("; ".join(part.text for part in one.evidence), PROSE_WIDTH),
            "advice": recorded_text(one.advice, PROSE_WIDTH), "search": f"{one.id} {one.title}",
        }
        for at, one in enumerate(found)
    ]  # fmt: skip


def _totals(asked: AskedTraces, found: Difference, first: int, second: int) -> list[Fact]:
    of_a, of_b = (asked.at("trace", number, None) for number in (first, second))
    return [
        Fact("a_device", recorded_text(found.device_a), "name", RECORDED, of_a),
        Fact("b_device", recorded_text(found.device_b), "name", RECORDED, of_b),
        Fact("a_length_ns", found.latency_a, "ns", RECORDED, of_a),
        Fact("b_length_ns", found.latency_b, "ns", RECORDED, of_b),
        Fact("a_device_ns", found.total_a, "ns", RECORDED, of_a),
        Fact("b_device_ns", found.total_b, "ns", RECORDED, of_b),
        Fact("change_ns", found.latency_b - found.latency_a, "ns", RECORDED, of_b),
    ]


def _named(asked: AskedTraces, found: Difference, by: str) -> list[Values]:
    rows: Sequence[DiffRow] = found.kernels if by == "kernel" else found.ops
    return [
        {
            "id": asked.name_id(by, row.name), by: recorded_text(row.name), "search": row.name,
            "a_ns": row.a.total_ns if row.a else None, "b_ns": row.b.total_ns if row.b else None,
            "change_ns": row.change_ns,
            "a_count": row.a.count if row.a else None, "b_count": row.b.count if row.b else None,
        }
        for row in rows
    ]  # fmt: skip


def _lines(asked: AskedTraces, found: Difference) -> list[Values]:
    device = any(side.device_ns for row in found.lines for side in (row.a, row.b) if side is not None)
    key = "device_ns" if device else "host_ns"
    return [
        {
            "id": asked.at("changed", at, None), "line": recorded_path(row.place, 90), "search": row.place,
            "a_ns": getattr(row.a, key) if row.a else None, "b_ns": getattr(row.b, key) if row.b else None,
            "change_ns": row.change_ns,
            "a_count": row.a.calls if row.a else None, "b_count": row.b.calls if row.b else None,
        }
        for at, row in enumerate(found.lines)
    ]  # fmt: skip
