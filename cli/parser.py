"""Parse command lines. This module has the table of commands, their parsers, and suggestions for misspelled words."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import groupby
from textwrap import wrap
from typing import Any, NoReturn, Protocol

from .. import __version__
from ..trace.errors import EtplusError
from ..trace.outer import missing_part
from ..trace.plugins import Plugin, plugins
from ..trace.printable import printable
from ..trace.text_tables import first_clause, terminal_width
from .terminal import red

GROUPS = {
    "Capture and link": {
        "record": "record an unchanged PyTorch program and link each rank",
        "link": "join an Execution Trace with a Kineto trace into ET+; for a folder, all ranks of a job",
        "convert": "convert ET+ to the formats of simulators and viewers, and back",
        "check": "check Chakra traces (.et) before a simulator runs them",
    },
    "Understand": {
        "why": "list problems in a trace, their cost, and the gain from fixing them",
        "top": "list the kernels, source lines, modules, operators or ranks with the most GPU time",
        "analyze": "print tables: streams, modules, operators, kernels, memory",
        "report": "write one HTML page: timeline, findings, GPU time, roofline, communication",
        "diff": "compare two traces or two jobs: show slowdowns and their causes",
        "sql": "query the tables of traces with SQL (needs the `frames` extra)",
    },
    "Predict": {
        "replay": "replay the timeline and try what-if changes",
        "predict": "predict the time of a trace with a fitted model",
        "reshard": "derive the traces of another parallel layout from a recorded job",
        "measure": "time the operators of a trace on this machine (needs the `torch` extra)",
    },
    "Other": {
        "demo": "link and convert a bundled pair of real traces, and show the report",
        "mcp": "answer an agent's questions about traces (needs the `mcp` extra)",
    },
}
# A command named X is the module X in this package.

TASKS = {
    "predict fit": "fit a cost model to linked traces",
    "predict run": "predict the time of a trace with a fitted model",
    "predict train": "train a neural network that predicts graph run times (needs the `learn` extra)",
    "predict evaluate": "compare neural networks with simple baselines on held-out graphs",
}
# The module `predict_TASK`, such as predict_fit, contains the task TASK of `predict`.

COMMANDS = {
    **{name: summary for group in GROUPS.values() for name, summary in group.items()},
    "completion": "print a shell script that completes commands and options",
}

GROUP = "etplus.commands"  # entry points of other packages; each maps a command name to a `Command` object or class

_OTHER_NAMES = {"--device": "--gpu", "--gpu": "--device", "--fail-over": "--max-regression"}
_WITH_TASKS = {task.partition(" ")[0] for task in TASKS}  # commands that consist of tasks
_HELP, _TITLE = "help", 19
_EXAMPLES = 3  # A help text has at most this many examples, so that it fits on one screen.
_USAGE = "usage: etplus COMMAND [options]"
_NEXT = "etplus COMMAND --help explains a command. Start with: etplus demo"
_CHOICES = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")


class Command(Protocol):
    """A command. Both modules and objects can be commands."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the description, epilog and options."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the command and return the exit status."""


class _Help(argparse.HelpFormatter):
    """Wraps paragraphs, but leaves indented lines and headings unchanged."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled: list[str] = []
        for is_prose, group in groupby(text.splitlines(), lambda line: bool(line) and line[0] != " "):
            lines = list(group)
            filled += wrap(" ".join(lines), width) if is_prose else lines
        return "".join(f"{indent}{line}\n" for line in filled)


class _Parser(argparse.ArgumentParser):
    """A parser with help that fits on one screen. Its errors take one line and suggest corrections."""

    # --help shows only options with these `dest` names. If this is empty, --help shows all options, as --help-all does.
    common: Sequence[str] = ()

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Help, **options)

    def format_help(self) -> str:
        return self._short_help() if self.common else super().format_help()

    def _short_help(self) -> str:
        shown = [action for name in self.common for action in self._actions if action.dest == name]
        words = [str(action.metavar) for action in shown if not action.option_strings]
        names = {_invocation(action): self._expanded(action) for action in shown if action.help != argparse.SUPPRESS}
        width, room = max(map(len, names)), terminal_width()
        options = [f"  {name:{width}}  {first_clause(text, room - width - 4)}" for name, text in names.items()]
        about = wrap((self.description or "").strip().partition("\n\n")[0].replace("\n", " "), room)
        found = re.search(r"^examples?:\n((?: .*\n?)*)", self.epilog or "", re.MULTILINE)
        examples = [] if found is None else found[1].splitlines()[:_EXAMPLES]
        count = sum(bool(action.option_strings) and action.help != argparse.SUPPRESS for action in self._actions)
        usage = " ".join(["usage:", self.prog, "[options]", *(f"{word} ..." for word in words)])
        more = f"{self.prog} --help-all shows all {count} options and the exit statuses"
        head = [f"usage: {self.usage}" if self.usage else usage, "", *about, "", *options]
        return "\n".join([*head, "", "examples:", *examples, "", more, ""])

    def _expanded(self, action: argparse.Action) -> str:
        return self._get_formatter()._expand_help(action)

    def error(self, message: str) -> NoReturn:
        if choice := _CHOICES.search(message):
            message += _suggestion(choice[1], re.findall(r"[^', ]+", choice[2]))
        see = " See" if message.endswith("?") else "; see"
        line = f"{printable(message, ' ')}{see} `{self.prog} --help`"
        self.exit(2, f"{self.prog}: {red('error:', sys.stderr)} {line}\n")

    def parse_all(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse the command line and reject unknown words. Files and an SQL query may be placed between options."""
        arguments, unknown = self.parse_known_args(words)
        between = unknown and not any(word.startswith("-") for word in unknown)
        if between and not any(action.nargs in (argparse.PARSER, argparse.REMAINDER) for action in self._actions):
            arguments, unknown = self.parse_known_intermixed_args(words)
        if not unknown:
            return arguments
        shown = {
            option for action in self._actions if action.help != argparse.SUPPRESS for option in action.option_strings
        }
        self.error(f"unrecognized arguments: {' '.join(unknown)}{_suggestion(unknown[0].partition('=')[0], shown)}")


def _invocation(action: argparse.Action) -> str:
    """Return all spellings of an option. Only the last one is followed by the value."""
    if not action.option_strings:
        return str(action.metavar)
    name = ", ".join(action.option_strings)
    if action.nargs == 0:
        return name
    value = action.metavar or (action.choices and "|".join(map(str, action.choices))) or action.dest.upper()
    value = value if isinstance(value, str) else " ".join(value)
    return f"{name} [{value}]" if action.nargs == "?" else f"{name} {value}"


class _HelpAll(argparse.Action):
    def __call__(self, parser: Any, _namespace: argparse.Namespace, _values: Any, _option: Any = None) -> None:
        print(argparse.ArgumentParser.format_help(parser), end="")
        parser.exit()


class _Root(_Parser):
    """The parser of `etplus` itself. Its help lists the commands in groups."""

    others: Mapping[str, str]  # summaries of the commands that other packages define

    def format_help(self) -> str:
        groups = {**GROUPS, "Other packages": self.others} if self.others else GROUPS
        width = max(len(name) for group in groups.values() for name in group)
        lines = [_USAGE]
        for title, group in groups.items():
            lines += ["", title]
            for name, summary in group.items():
                first, *more = wrap(summary, terminal_width() - width - 4)
                lines += [f"  {name:{width}}  {first}", *(" " * (width + 4) + line for line in more)]
        return "\n".join([*lines, "", *wrap(_NEXT, terminal_width()), ""])


def command_list() -> str:
    """Return the names of all commands in groups. `etplus` prints this list if no command is given."""
    groups: dict[str, Collection[str]] = {**GROUPS}
    if _others():
        groups["Other packages"] = _others()
    lines = [f"{title:{_TITLE}}{'  '.join(group)}" for title, group in groups.items()]
    return "\n".join([_USAGE, "", *lines, "", _NEXT])


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the words after `etplus`. Import only the module of the command."""
    if words[:1] == [_HELP]:
        words = [*words[1:], "--help"]
    task = " ".join(words[:2])
    name = task if task in TASKS else " ".join(words[:1])
    if name in COMMANDS.keys() - _WITH_TASKS or name in TASKS or name in _others():
        arguments = command_parser(name).parse_all(words[len(name.split()) :])
        arguments.command = name
        return arguments
    root, commands = etplus_parser(options=False)
    if not name:
        print(command_list())
        root.exit()
    if name not in commands and not name.startswith("-"):
        root.error(f"unknown command {name!r}{_suggestion(name, commands)}")
    return root.parse_all(words)


def parse_link(words: Sequence[str]) -> argparse.Namespace:
    from .link import COMMON, prepare_trace_link

    parser = _Parser(prog="trace-link")
    parser.common = COMMON.split()
    _add_version(parser)
    prepare_trace_link(parser)
    add_log_level(parser)
    arguments = parser.parse_all(words)
    arguments.command = "link"
    return arguments


def command_parser(name: str) -> _Parser:
    """Return the parser of one command or task."""
    parser = _Parser(prog=f"etplus {name}")
    _add_options(parser, name)
    return parser


def etplus_parser(*, options: bool = True) -> tuple[_Root, dict[str, _Parser]]:
    """Return the parser of `etplus`, and the parsers of its commands and tasks.

    Args:
        options: whether to import the commands and add their options.
    """
    root = _Root(prog="etplus", description="Link PyTorch Execution Traces with Kineto traces and analyze the result.")
    root.others = {name: _summary(plugin) for name, plugin in _others().items()}
    _add_version(root)
    commands = root.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    found: dict[str, _Parser] = {}
    for name, summary in {**COMMANDS, **root.others}.items():
        found[name] = commands.add_parser(name, help=summary)
        tasks = {task: text for task, text in TASKS.items() if task.startswith(f"{name} ")}
        if tasks:
            below = found[name].add_subparsers(dest="task", metavar="TASK", required=True)
            found |= {task: below.add_parser(task.rpartition(" ")[2], help=text) for task, text in tasks.items()}
    commands.add_parser(_HELP, help="show this list, or the options of one command")
    for name in [name for name in found if options and name not in _WITH_TASKS]:
        try:
            _add_options(found[name], name)
        except ModuleNotFoundError as error:
            if not missing_part(error):
                raise  # A parser that only lists the commands does not need their options.
    return root, found


def _add_options(parser: _Parser, name: str) -> None:
    command = command_named(name)
    parser.epilog, parser.common = getattr(command, "EPILOG", None), getattr(command, "COMMON", "").split()
    command.prepare_parser(parser)
    add_log_level(parser)


def command_named(name: str) -> Command:
    if name in COMMANDS or name in TASKS:
        return import_module(f".{name.replace(' ', '_')}", __package__)
    return _Other(_others()[name])


@dataclass(frozen=True)
class _Other:
    plugin: Plugin

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        self.plugin.call("prepare_parser", parser)

    def run(self, arguments: argparse.Namespace) -> int:
        return self.plugin.call("run", arguments) or 0


@cache
def _others() -> dict[str, Plugin]:
    return plugins(GROUP, "command", {*COMMANDS, _HELP})


def _summary(plugin: Plugin) -> str:
    try:
        return (plugin.load().__doc__ or f"of {plugin.package}").strip().partition("\n")[0].replace("%", "%%")
    except EtplusError as error:
        return str(error).replace("%", "%%")


def add_log_level(parser: argparse.ArgumentParser, default: str = "WARNING") -> None:
    """Add the options that every command has: -q, --log-level and --help-all."""
    add = parser.add_argument
    add("-q", "--quiet", action="store_true", help="print errors only")
    levels = ("DEBUG", "INFO", "WARNING", "ERROR")
    about = "debug (shows tracebacks), info, warning or error (default: warning)"
    add("--log-level", type=str.upper, default=default, metavar="LEVEL", choices=levels, help=about)
    add("--help-all", action=_HelpAll, nargs=0, help="show all options and exit")


def _add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", action="version", version=f"etplus {__version__}")


def _suggestion(word: str, known: Collection[str]) -> str:
    from difflib import get_close_matches  # This import is slow, and only misspelled words need it.

    other = _OTHER_NAMES.get(word, "")
    meant = [other] if other in known else get_close_matches(word, sorted(known), 1)
    return f"; did you mean {meant[0]}?" if meant else ""
