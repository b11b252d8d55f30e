"""The questions that can be asked of traces: one table, of which library, command line and server are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...trace.errors import EtplusError
from . import any_table, changes, found_problems, hottest, longest_path, one_event, overview, reasons
from .answer import Answer, AnswerContent, AskError, Values, page
from .asked_traces import AskedTraces, meant
from .recorded_text import quoted, recorded_path, recorded_text
from .tokens import DEFAULT_TOKENS, LEAST_TOKENS, MOST_TOKENS

_MOST_TRACES = 4
TEXT, TEXTS, NUMBER, SWITCH = "string", "array", "integer", "boolean"
"""Types of options, as JSON Schema calls them; an array is of strings."""


class QuestionOption(NamedTuple):
    """An option of a question.

    Attributes:
        type: one of `TEXT`, `TEXTS`, `NUMBER`, `SWITCH`. about: for help and for models.
        choices: what it may be, () for anything. required: the question makes no sense without it.
    """

    name: str
    type: str
    about: str
    choices: tuple[str, ...] = ()
    required: bool = False


class Question(NamedTuple):
    """A question.

    Attributes:
        about: for help and for models. options: its own. find: what answers it, with its options as keywords.
        example: options of one that works on most traces.
    """

    name: str
    about: str
    options: tuple[QuestionOption, ...]
    find: Callable[..., AnswerContent]
    example: str = ""

    def input_schema(self) -> dict[str, Any]:
        """JSON Schema of its options."""
        properties = {
            option.name: {"type": option.type, "description": option.about}
            | ({"items": {"type": TEXT}} if option.type == TEXTS else {})
            | ({"enum": list(option.choices)} if option.choices else {})
            for option in self.all_options
        }
        required = [option.name for option in self.options if option.required]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    @property
    def all_options(self) -> tuple[QuestionOption, ...]:
        """Its own options, and those of every question."""
        return (*self.options, *_COMMON)


_TRACE = QuestionOption(
    "trace", NUMBER, "number of the trace: its rank in a job, else its place from 0; default: the job, else the first"
)
_STEPS = QuestionOption("steps", TEXT, "only these steps, by number from 0: 3 or 0-4, or of a phase such as decode")
_CONTAINS = QuestionOption("contains", TEXT, "only rows with this text in a name, in any case")
_COMMON = (
    _CONTAINS,
    QuestionOption("order", TEXT, "column to order rows by, the largest first; with ' asc' the smallest first"),
    QuestionOption("limit", NUMBER, "most rows"),
    QuestionOption("cursor", TEXT, "next_cursor of the answer before, for the rows after it; other options the same"),
    QuestionOption("max_tokens", NUMBER,
                   f"length of the answer, {LEAST_TOKENS} to {MOST_TOKENS}; default: {DEFAULT_TOKENS}"),
)  # fmt: skip

_TABLE = (
    Question("overview", "What was recorded: traces, devices, busy and idle time, steps, memory, damage. Ask it first.",
             (_TRACE, _STEPS), overview.overview),
    Question("findings", "What is wrong, what it costs and what fixing it gains, the largest gain first.",
             (QuestionOption("id", TEXT, "of one finding, with its evidence, advice and check"), _TRACE, _STEPS),
             found_problems.findings),
    Question("hot", "Where time goes, the most first.",
             (QuestionOption("by", TEXT, "what the rows are; default: kernel", hottest.BY), _TRACE, _STEPS),
             hottest.hot, "by=operator"),
    Question("why", "Why a device was idle (idle), what launched a kernel and how it stands against the device's peaks "
             "(its name or id), or how a step differs from the others (step:N).",
             (QuestionOption("what", TEXT, "idle, a kernel's name or id, or step:N", required=True), _TRACE, _STEPS),
             reasons.why, "what=idle"),
    Question("path", "What the critical path is made of: only work on it shortens the run when it gets faster.",
             (QuestionOption("by", TEXT, "what the rows are; default: kind", longest_path.BY), _TRACE, _STEPS),
             longest_path.path, "by=operator"),
    Question("event", "All about one call or device event: launch, callers, callees, line, module, phase.",
             (QuestionOption("id", TEXT, "such as event:1204, of other answers", required=True),),
             one_event.event, "id=event:3"),
    Question("whatif", "What a change would gain end to end, by replay: kernel:name~gemm*0.5, comm*0.5, "
             "kernel:~gemm*bound/0.6, op:aten::mul*2, 'remove op:aten::copy_', 'no wait aten::item', 'no launch gaps', "
             "'overlap comm', cpu*0, 'module=Linear_3 kernel*2', 'rank=3 kernel*1.5'.",
             (QuestionOption("changes", TEXTS, "one or more, applied together", required=True), _TRACE, _STEPS),
             changes.whatif, "changes=kernel*0.5"),
    Question("diff", "What differs between two traces, the greatest change first.",
             (QuestionOption("by", TEXT, "what the rows are; default: kernel", changes.DIFF_BY),
              QuestionOption("a", NUMBER, "number of the trace before; default: the first"),
              QuestionOption("b", NUMBER, "number of the trace after; default: the second"),
              QuestionOption("total", SWITCH, "the whole traces, not an iteration on average")),
             changes.diff),
    Question("table", "Any table of the analysis, with chosen columns and conditions; a wrong name lists them.",
             (QuestionOption("name", TEXT, "such as kernels, memory_holders, gaps, collectives", required=True),
              QuestionOption("columns", TEXTS, "only these"),
              QuestionOption("where", TEXTS, "conditions that all hold: total_ns>1000, kernel~gemm, phase=backward"),
              _TRACE, _STEPS),
             any_table.table, "name=operators"),
)  # fmt: skip
QUESTIONS: dict[str, Question] = {question.name: question for question in _TABLE}
"""By name; in the order in which one asks them."""


def ask(asked: AskedTraces, question: str, /, **arguments: Any) -> Answer:
    """The answer to a question.

    Args:
        question: one of `QUESTIONS`. arguments: its options; None is as if it was not given.

    Raises:
        AskError: no such question or option, a value that makes no sense, or nothing of that name in the traces.

    Example:
        >>> answer = ask(AskedTraces({0: trace}), "hot", by="kernel", limit=1)
        >>> answer.table()[0]["device_ns"], answer.columns[2].unit, answer.tokens <= 2000
        (1388986, 'ns', True)
    """
    if question not in QUESTIONS:
        raise AskError(f"no question {quoted(question, 40)}", meant(question, list(QUESTIONS)), list(QUESTIONS))
    chosen = QUESTIONS[question]
    given = _checked(chosen, {name: value for name, value in arguments.items() if value is not None})
    own = {option.name for option in chosen.options}
    keywords = {name: value for name, value in given.items() if name in own}
    if chosen is QUESTIONS["hot"]:
        keywords["contains"] = given.get("contains", "")  # of a million events not all become rows
    try:
        content = chosen.find(asked, **keywords)
    except AskError:
        raise
    except EtplusError as error:
        raise AskError(recorded_text(str(error), 400), works=_works(chosen)) from None
    content.rows = _ordered(chosen, content, given)
    numbers = content.about or asked.chosen(given.get("trace"))
    names = [option.name for option in chosen.all_options if option.name not in ("cursor", "max_tokens")]
    repeated = _shown({name: given[name] for name in names if name in given})
    return page(
        question, repeated, _traces(asked, numbers), content, limit=given.get("limit"), cursor=given.get("cursor"),
        max_tokens=given.get("max_tokens", DEFAULT_TOKENS),
    )  # fmt: skip


def _works(question: Question) -> list[str]:
    return [f"{question.name} {question.example}".strip(), "overview"]


def _checked(question: Question, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The options with values of their types.

    Raises:
        AskError: an option that the question does not have, or a value that it cannot have.
    """
    given: dict[str, Any] = {}
    options = {option.name: option for option in question.all_options}
    for name, value in arguments.items():
        if name not in options:
            problem = f"{question.name} has no option {quoted(name, 40)}"
            raise AskError(problem, meant(name, list(options)), [f"{known}=" for known in options])
        given[name] = _value(question, options[name], value)
    for option in question.options:
        if option.required and not given.get(option.name):
            raise AskError(f"{question.name} needs {option.name}: {option.about}", works=_works(question))
    tokens = given.get("max_tokens", DEFAULT_TOKENS)
    if not LEAST_TOKENS <= tokens <= MOST_TOKENS:
        raise AskError(f"max_tokens={tokens} is out of range", works=[f"{LEAST_TOKENS} to {MOST_TOKENS}"])
    if given.get("limit", 1) < 1:
        raise AskError(f"limit={given['limit']} is no number of rows", works=["limit=10"])
    return given


def _value(question: Question, option: QuestionOption, value: Any) -> Any:
    """An option's value in its type: numbers may come as text, as from a command line, and texts as numbers.

    Raises:
        AskError: it has no such type, or is none of the choices.
    """
    if isinstance(value, int) and abs(value) >= 2**63:
        raise AskError(f"{option.name} is a number beyond 64 bits", works=_works(question))
    if option.type == TEXT and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    elif option.type == NUMBER and isinstance(value, str) and len(value) < 10 and value.strip().isdecimal():
        value = int(value)
    elif option.type == TEXTS and isinstance(value, str):
        value = [value]
    if option.type == TEXTS:
        fits = isinstance(value, (list, tuple)) and all(isinstance(text, str) for text in value)
    else:
        kind = {TEXT: str, NUMBER: int, SWITCH: bool}[option.type]
        fits = isinstance(value, kind) and (option.type != NUMBER or not isinstance(value, bool))
    if not fits:
        wanted = "a list of texts" if option.type == TEXTS else f"of type {option.type}"
        raise AskError(f"{option.name}={quoted(str(value), 40)} is not {wanted}", works=_works(question))
    if option.choices and value not in option.choices:
        raise AskError(
            f"{option.name}={quoted(str(value), 40)} is not known", meant(str(value), option.choices),
            [f"{option.name}={choice}" for choice in option.choices],
        )  # fmt: skip
    return value


def _ordered(question: Question, content: AnswerContent, given: Mapping[str, Any]) -> Sequence[Values]:
    """The rows that the common options choose, in their order."""
    rows = [*content.rows]
    if wanted := given.get("contains"):
        low = str(wanted).lower()
        rows = [row for row in rows if low in _searched(row)]
    order, names = given.get("order") or content.order, [column.name for column in content.columns]
    if not order:
        return rows
    column, _, way = str(order).partition(" ")
    if column not in names or way not in ("", "asc", "desc"):
        if not content.rows and not given.get("order"):
            return rows
        works = [f"order={name}" for name in names if name != "id"]
        raise AskError(f"order={quoted(str(order), 40)}: no such column", meant(column, names), works)
    known = [row for row in rows if row[column] is not None]
    if any(isinstance(row[column], str) for row in known):
        known.sort(key=lambda row: str(row[column]), reverse=way == "desc")
    else:
        known.sort(key=lambda row: row[column], reverse=way != "asc")  # type: ignore[arg-type, return-value]
    return [*known, *(row for row in rows if row[column] is None)]


def _searched(row: Values) -> str:
    text = row.get("search")
    return (str(text) if text is not None else " ".join(v for v in row.values() if isinstance(v, str))).lower()


def _shown(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options as an answer repeats them."""
    return {
        name: recorded_text(value) if isinstance(value, str)
        else [recorded_text(text) for text in value] if isinstance(value, (list, tuple)) else value
        for name, value in given.items()
    }  # fmt: skip


def _traces(asked: AskedTraces, numbers: Sequence[int]) -> list[Values]:
    """What an answer says of the traces that it is about; of many the first."""
    return [
        {"id": f"trace:{number}", "file": recorded_path(asked.traces[number].file), "rank": asked.traces[number].rank}
        for number in numbers[:_MOST_TRACES]
    ]
