"""The question `table`: any table of the analysis, with chosen columns and conditions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...jobs.rank_communications import communications
from ..device_gaps import longest_gaps
from ..job_tables import job_collectives
from ..summary import TABLES, Analysis, table_of
from .answer import INFERRED, RECORDED, AnswerColumn, AnswerContent, AskError, Value
from .asked_traces import AskedTraces, meant
from .recorded_text import quoted, recorded_path, recorded_text

_CONDITION = re.compile(r"\s*([A-Za-z_]\w*)\s*(<=|>=|!=|=|<|>|~)\s*(.*)", re.S | re.ASCII)
_MOST_COLUMNS = 14
_OF_JOB = ("collectives", "stragglers")
_OF_TRACES = ("gaps", "notes")
_UNITS = (
    (re.compile(r".*_ns|start|end|ns|(?:call|delay|gpu)_ns"), "ns"), (re.compile(r".*share.*"), "share"),
    (re.compile(r".*flops_per_second"), "flop/s"), (re.compile(r".*bytes_per_second|.*bandwidth"), "bytes/s"),
    (re.compile(r".*bytes.*|allocated|reserved"), "bytes"), (re.compile(r"flops"), "flop"),
    (re.compile(r"intensity"), "flop/byte"), (re.compile(r".*tokens.*"), "tokens"),
    (re.compile(r"device|stream|rank|line|number|position|mean|last_rank|depth|step"), "number"),
)  # fmt: skip
_INFERRED = re.compile(
    r".*share|.*flops.*|.*bytes.*|.*bandwidth|intensity|bound|backward.*|phase|module.*|source|repeated.*|own|exact|"
    r"idle_ns|instances|last.*|wait.*|caused.*|longest_wait.*|dtype|category"
)
_FROM_PATHS = ("file", "source")


def table_names(asked: AskedTraces) -> list[str]:
    """Names of the tables that there are."""
    others = asked.analysis(next(iter(asked.traces))).others
    return [*TABLES, *_OF_TRACES, *others, *(_OF_JOB if asked.job else ())]


def table(
    asked: AskedTraces, *, name: str, columns: Sequence[str] = (), where: Sequence[str] = (),
    trace: int | None = None, steps: str | None = None,
) -> AnswerContent:  # fmt: skip
    """Rows of a table in its own order; each with an id, its place in the table before conditions are applied."""
    names = table_names(asked)
    if name not in names:
        raise AskError(f"no table {quoted(name, 40)}", meant(name, names), [f"name={known}" for known in names])
    rows = list(_rows(asked, name, asked.chosen(trace), steps))
    known = list(dict.fromkeys(key for _, row in rows for key in row))
    for column in columns:
        if known and column not in known:
            raise AskError(f"table {name} has no column {quoted(column, 40)}", meant(column, known), known)
    chosen = list(columns) or known[:_MOST_COLUMNS]
    kept = [(at, number, row) for at, (number, row) in enumerate(rows)]
    for condition in where:
        fits = _condition(condition, name, known)
        kept = [of for of in kept if fits(of[2])]
    shape = [AnswerColumn(column, *_unit(column, (row.get(column) for _, row in rows))) for column in chosen]
    content = AnswerContent(columns=(AnswerColumn("id", "id"), *shape))
    content.rows = [_plain(asked, name, at, number, row, content.columns) for at, number, row in kept]
    if not columns and len(known) > _MOST_COLUMNS:
        content.notes.append(f"further columns: {', '.join(known[_MOST_COLUMNS:])}")
    return content


def _rows(
    asked: AskedTraces, name: str, numbers: Sequence[int], steps: str | None
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if name in _OF_JOB:
        ranks = {number: communications(asked.case([number], steps).trace) for number in asked.traces}
        collectives, late = job_collectives(ranks)
        yield from ((-1, row.plain()) for row in (collectives if name == "collectives" else late))
        return
    for number in numbers:
        rows = _of_trace(asked.analysis(number, steps), name)
        yield from ((number, {"rank": number, **row} if len(numbers) > 1 else row) for row in rows)


def _of_trace(analysis: Analysis, name: str) -> Iterable[Mapping[str, Any]]:
    if name == "gaps":
        return [row.plain() for row in longest_gaps(analysis.trace)]
    if name == "notes":
        return [{"note": note} for note in (*analysis.trace.damage, *analysis.notes)]
    return table_of(analysis, name).plain()


def _unit(column: str, values: Iterable[Any]) -> tuple[str, str]:
    kinds = {type(value) for value in values if value is not None}
    if bool in kinds:
        return "yes/no", INFERRED
    if kinds & {str, tuple, list} or not kinds:
        return "name", ""
    unit = next((unit for form, unit in _UNITS if form.fullmatch(column)), "count")
    return unit, INFERRED if _INFERRED.fullmatch(column) else RECORDED


def _plain(
    asked: AskedTraces, name: str, at: int, number: int, row: Mapping[str, Any], columns: Sequence[AnswerColumn]
) -> dict[str, Value]:
    found: dict[str, Value] = {"id": asked.at(name, at, None)}
    texts = []
    for column in columns[1:]:
        value = row.get(column.name)
        if isinstance(value, (tuple, list)):
            value = ", ".join(map(str, value))
        if isinstance(value, str):
            texts.append(value)
            value = (recorded_path if column.name in _FROM_PATHS else recorded_text)(value)
        found[column.name] = float(value) if type(value) is int and abs(value) >= 2**63 else value
    return found | {"search": " ".join(texts)}


def _condition(text: str, name: str, known: Sequence[str]) -> Callable[[Mapping[str, Any]], bool]:
    """What a condition such as "total_ns>1000" or "kernel~gemm" asks of a row.

    Raises:
        AskError: not such a text, or no such column.
    """
    parsed = _CONDITION.fullmatch(text)
    works = ["total_ns>1000", "kernel~gemm", "phase=backward", "device!=0"]
    if parsed is None:
        raise AskError(f"condition {quoted(text, 60)} is not understood", works=works)
    column, sign, wanted = parsed[1], parsed[2], parsed[3].strip()
    if known and column not in known:
        raise AskError(f"table {name} has no column {quoted(column, 40)}", meant(column, known), known)
    try:
        number: float | None = float(wanted)
    except ValueError:
        number = None
    if number is None and sign in ("<", "<=", ">", ">="):
        raise AskError(f"condition {quoted(text, 60)} compares with no number", works=works)

    def fits(row: Mapping[str, Any]) -> bool:
        value = row.get(column)
        if sign == "~":
            return wanted.lower() in str(value).lower()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and number is not None:
            return _SIGNS[sign](value, number)
        same = str(value).lower() == wanted.lower()
        return same if sign == "=" else not same if sign == "!=" else False

    return fits


_SIGNS: dict[str, Callable[[float, float], bool]] = {
    "=": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip
