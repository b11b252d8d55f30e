"""`etplus ask`: one question of traces, answered as text or in the contract's JSON."""

from __future__ import annotations

import argparse
from typing import Any

from ..analysis.questions.answer_text import text_of
from ..analysis.questions.asked_traces import AskedTraces
from ..analysis.questions.questions import QUESTIONS, SWITCH, TEXTS, Question, ask
from ..analysis.questions.tokens import MOST_TOKENS
from ..schemas.text.files import open_output
from ..trace.printable import escaped
from ..trace.text_tables import terminal_width
from .inputs import add_inputs, find_inputs, read_inputs, shell_of
from .options import add_selection, selected
from .outputs import add_tables_and_switch
from .parser import add_log_level
from .terminal import print_text, warn_of_damage

_STDOUT = "-"
_EPILOG = """\
examples:
  etplus ask overview trace.json
  etplus ask hot trace.json --by line
  etplus ask why trace.json --what idle --json
  etplus ask whatif rank*.json.gz --changes 'comm*0.5'
  etplus ask diff before.json after.json --by operator
  etplus ask table trace.json --name kernels --where 'total_ns>1000000' --columns kernel --columns total_ns

With --json an answer has the form of schemas/answers.schema.json and at most 2,000 tokens (--max-tokens); --cursor
continues it. Several ranks of one job are asked together. `etplus mcp` gives agents the same answers:
docs/reference/agents.md.
"""
_NAMES = {"max_tokens": "--max-tokens"}


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Ask one question about traces."
    parser.epilog = _EPILOG
    questions = parser.add_subparsers(dest="question", metavar="QUESTION", required=True)
    for question in QUESTIONS.values():
        _prepare(question, questions.add_parser(question.name, help=question.about.replace("%", "%%")))


def _prepare(question: Question, parser: argparse.ArgumentParser) -> None:
    parser.description = question.about
    add_inputs(parser, "the ranks of a job are asked together; diff takes two")
    for option in question.all_options:
        about = option.about.replace("%", "%%")
        shape: dict[str, Any] = {"action": "store_true", "default": None}
        if option.type != SWITCH:
            shape = {"metavar": option.name.upper() if not option.choices else "|".join(option.choices)}
        if option.type == TEXTS:
            shape["action"], about = "append", f"{about}; repeatable"
        parser.add_argument(
            _NAMES.get(option.name, f"--{option.name}"), dest=f"option_{option.name}", help=about, **shape
        )
    add_selection(parser, "ask of", steps=False)  # most questions have steps themselves
    add_tables_and_switch(parser)
    add_log_level(parser, argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Ask and print; returns the exit status."""
    inputs = find_inputs(arguments, outputs=[arguments.json, arguments.output])
    traces = [selected(trace, arguments) for trace in read_inputs(inputs)]
    warn_of_damage(traces)
    shells = [shell_of(given, arguments) for given in inputs]
    question = QUESTIONS[arguments.question]
    options = {option.name: getattr(arguments, f"option_{option.name}") for option in question.all_options}
    as_text = arguments.json != _STDOUT
    if as_text and arguments.json is None and options["max_tokens"] is None:
        options["max_tokens"] = MOST_TOKENS  # people have a screen that scrolls
        options["limit"] = options["limit"] or "30"
    answer = ask(AskedTraces.of(traces, shells), question.name, **options)
    if arguments.json is not None:
        with open_output(arguments.json) as out:
            out.write(answer.to_json() + b"\n")
    if arguments.output not in (None, _STDOUT):
        with open_output(arguments.output) as out:
            out.write(escaped(text_of(answer, terminal_width())).encode() + b"\n")
    elif as_text:
        print_text(text_of(answer, terminal_width()))
    return 0
