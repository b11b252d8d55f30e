"""The form of every answer: facts, a table, notes; and how a long one is cut to a page."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import orjson

from ...trace.errors import UsageError
from ...trace.printable import shortened
from .recorded_text import PROSE_WIDTH, quoted, recorded_text
from .tokens import count_tokens

SCHEMA_VERSION = "1.0"
"""Of the contract, schemas/answers.schema.json: the first number changes where a reader of the old form would err."""
RECORDED, INFERRED, PREDICTED, BY_ROW = "recorded", "inferred", "predicted", "row"
"""How sure a number is: in the files, or a sum, count or difference of what is; derived by a rule (named in
docs/reference/agents.md); predicted by a replay; or as the `certainty` of its row says."""
_MOST_NOTES = 6

Value = str | int | float | bool | None
Values = Mapping[str, Value]


class Fact(NamedTuple):
    """One number or text of an answer.

    Attributes:
        unit: one of `UNITS`. certainty: see `RECORDED`; "" for text. id: of what it is about.
    """

    name: str
    value: Value
    unit: str
    certainty: str
    id: str


class AnswerColumn(NamedTuple):
    """A column of an answer's table; unit and certainty as of a `Fact`."""

    name: str
    unit: str
    certainty: str = ""


UNITS = (
    "ns", "count", "number", "share", "bytes", "flop", "flop/s", "bytes/s", "flop/byte", "tokens", "yes/no", "text",
    "name", "id",
)  # fmt: skip
"""Of values: "share" is from 0 to 1 where it is a part of something, "text" is etplus' own, "name" was recorded, so
that anyone may have written it (`recorded_text`), "id" is what `event`, `why` and others take, "number" has no unit."""


_MESSAGE = 400
"""Characters of an error's message, at most."""


class AskError(UsageError):
    """A question that cannot be answered.

    Attributes:
        did_you_mean: what may have been meant. works: questions that would be answered.
    """

    def __init__(self, message: str, did_you_mean: Sequence[str] = (), works: Sequence[str] = ()) -> None:
        message = shortened(message, _MESSAGE)  # it may repeat an argument of any length
        self.problem, self.did_you_mean, self.works = message, tuple(did_you_mean), tuple(works)
        meant = f"; did you mean {' or '.join(did_you_mean)}?" if did_you_mean else ""
        super().__init__(message + meant + (f"; works: {' · '.join(works)}" if works else ""))

    def to_dict(self, question: str) -> dict[str, Any]:
        """The error in the contract's form."""
        error = {"message": self.problem, "did_you_mean": list(self.did_you_mean), "works": list(self.works)}
        return {"schema_version": SCHEMA_VERSION, "question": recorded_text(question, 40), "error": error}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.problem, self.did_you_mean, self.works)


@dataclass
class AnswerContent:
    """What a question found, before it is cut to a page.

    Attributes:
        rows: values by the names of `columns`; in each that of "id" is what the row is about.
        notes: sentences; recorded text in them is `quoted`.
        about: numbers of the traces that it is about, () for those that were chosen.
        order: column by which the rows are in order, "" for one of their own.
    """

    facts: list[Fact] = field(default_factory=list)
    columns: tuple[AnswerColumn, ...] = ()
    rows: Sequence[Values] = ()
    notes: list[str] = field(default_factory=list)
    order: str = ""
    about: Sequence[int] = ()


@dataclass(frozen=True)
class Answer:
    """An answer to one question.

    Attributes:
        question: its name. arguments: what was asked with it.
        traces: what it is about: id, file and rank of each.
        row_count: rows of the whole table. next_cursor: for the rows after these, None after the last.

    Example:
        >>> trace.ask("hot", by="operator").rows[0][1]
        'aten::mm'
    """

    question: str
    arguments: Mapping[str, Any]
    traces: Sequence[Mapping[str, Value]]
    facts: tuple[Fact, ...]
    columns: tuple[AnswerColumn, ...]
    rows: tuple[tuple[Value, ...], ...]
    row_count: int
    next_cursor: str | None
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The contract's form, schemas/answers.schema.json."""
        return {
            "schema_version": SCHEMA_VERSION,
            "question": self.question,
            "arguments": dict(self.arguments),
            "traces": [dict(trace) for trace in self.traces],
            "facts": [_without_empty(fact._asdict()) for fact in self.facts],
            "columns": [_without_empty(column._asdict()) for column in self.columns],
            "rows": [list(row) for row in self.rows],
            "row_count": self.row_count,
            "next_cursor": self.next_cursor,
            "notes": list(self.notes),
        }

    def to_json(self) -> bytes:
        """`to_dict` as one line of JSON."""
        return to_json(self.to_dict())

    @property
    def tokens(self) -> int:
        """Of the JSON, see `count_tokens`."""
        return count_tokens(self.to_json().decode())

    def fact(self, name: str) -> Value:
        """The value of a fact.

        Raises:
            KeyError: there is none of this name.
        """
        for fact in self.facts:
            if fact.name == name:
                return fact.value
        raise KeyError(name)

    def table(self) -> list[dict[str, Value]]:
        """The rows as values by column."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]

    def __repr__(self) -> str:
        more = f" of {self.row_count:,}" if self.next_cursor else ""
        return f"<Answer to {self.question}: {len(self.facts)} facts, {len(self.rows):,}{more} rows>"


def to_json(form: Any) -> bytes:
    """One line of JSON."""
    return orjson.dumps(form)


def _without_empty(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key == "value" or value != ""}


def page(
    question: str, arguments: Mapping[str, Any], traces: Sequence[Values], found: AnswerContent,
    *, limit: int | None, cursor: str | None, max_tokens: int,
) -> Answer:  # fmt: skip
    """Cut what was found to an answer of so many rows and tokens.

    Args:
        arguments: those that the cursor holds for.
        limit: most rows. cursor: `next_cursor` of the page before, None for the first.

    Raises:
        AskError: the cursor is of another question, or not even one row fits.
    """
    digest = hashlib.blake2b(to_json([question, arguments, traces]), digest_size=4).hexdigest()
    begin = 0 if cursor is None else _begin(cursor, digest, len(found.rows))
    facts = [] if cursor is not None else found.facts  # further pages hold further rows
    rounded = tuple(fact._replace(value=_rounded(fact.value, fact.unit)) for fact in facts)
    notes = [*found.notes[:_MOST_NOTES]] if cursor is None else []
    if cursor is None and len(found.notes) > _MOST_NOTES:
        notes.append(f"{len(found.notes) - _MOST_NOTES:,} more notes: ask table with name=notes")
    cut = Answer(question, arguments, traces, rounded, found.columns, (), len(found.rows), _cursor(10**9, digest),
                 tuple(recorded_text(note, PROSE_WIDTH) for note in notes))  # fmt: skip
    while cut.notes and cut.tokens > max_tokens // 2:  # rows and facts say more
        cut = replace(cut, notes=cut.notes[:-1])
    rows, used = [], cut.tokens
    text = len(cut.to_json().decode())
    for row in found.rows[begin : None if limit is None else begin + limit]:
        values = tuple(_rounded(row[column.name], column.unit) for column in found.columns)
        line = to_json(values).decode()
        text += len(line) + 1
        used += count_tokens(line) + 1
        if max(used, -(-text // 3)) > max_tokens:
            break
        rows.append(values)
    if cut.tokens > max_tokens or (not rows and limit != 0 and begin < len(found.rows)):
        raise AskError(f"the answer does not fit {max_tokens:,} tokens", works=[f"max_tokens={4 * max_tokens:,}"])
    end = begin + len(rows)
    return replace(cut, rows=tuple(rows), next_cursor=_cursor(end, digest) if end < len(found.rows) else None)


def _rounded(value: Value, unit: str) -> Value:
    """A fraction as long as it says something: ns and counts with one decimal, others with six digits."""
    if not isinstance(value, float):
        return value
    return round(value, 1) if unit in ("ns", "count") else float(f"{value:.6g}")


def _cursor(begin: int, digest: str) -> str:
    return f"{begin}-{digest}"


def _begin(cursor: str, digest: str, count: int) -> int:
    """The row that a cursor begins with."""
    begin, _, of = cursor.partition("-")
    if of != digest or not (begin.isascii() and begin.isdigit()) or len(begin) > 12 or int(begin) > count:
        raise AskError(
            f"cursor {quoted(cursor, 40)} is of another question or trace",
            works=["the next_cursor of an answer, with the same arguments"],
        )
    return int(begin)
