"""Command lines: the table of commands, one parser a command, suggestions for what is misspelt."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import groupby
from textwrap import wrap
from typing import Any, NoReturn, Protocol

from .. import __version__
from ..trace.errors import EtplusError
from ..trace.plugins import Plugin, plugins
from ..trace.printable import printable
from .terminal import red

COMMANDS = {
    "record": "record an unchanged PyTorch program and link each rank",
    "link": "join an Execution Trace with a Kineto trace into ET+; a folder: all ranks of a job",
    "convert": "convert ET+ to what simulators and viewers read, and back",
    "replay": "predict the timeline of traces, and what if",
    "fit": "fit a model of what work takes on traces",
    "predict": "predict the time of a trace with a fitted model",
    "measure": "time the operators of traces on this machine (needs the extra torch)",
    "repro": "write a script that calls an operator of a trace as recorded",
    "reshard": "derive a recorded job in another parallel layout",
    "train": "train a network that predicts the times of graphs (needs the extra learn)",
    "evaluate": "compare networks and plain baselines on graphs they have not seen",
    "check": "check Chakra traces (.et) before a simulator runs them, and Kineto traces by PyTorch's rules",
    "conformance": "hold the output of any linker against pairs whose links are known",
    "analyze": "show where the time goes: streams, modules, operators, kernels, overheads",
    "why": "what is wrong in a trace, what it costs, what fixing it would gain",
    "ask": "ask one question of traces: what is hot, why idle, what a change would gain; for scripts and agents",
    "mcp": "answer the same questions to an agent over the Model Context Protocol (needs the extra mcp)",
    "report": "one HTML page: timeline, device time, kernels, roofline, overheads, communication",
    "augment": "write FLOPs, bytes and shares of peaks into a Kineto trace or ET+",
    "redact": "copy a trace without tokens, passwords and, on request, host names, user names and paths",
    "sql": "query the tables of traces with SQL (needs the extra frames)",
    "diff": "compare two traces by operator and by kernel",
    "demo": "link and convert a bundled real pair, and show the report",
    "completion": "print a script that completes commands and options in a shell",
}
"""Those of etplus, each a `Command`: the module of this name in this package. What others show is their docstring's
first line."""

GROUP = "etplus.commands"
"""Group of the entry points of other packages: the name is the command's, the value a `Command` or a class of one."""

_REPLACED = {"batch": "link FOLDER"}
"""Commands of releases before 1.0, which have other names now."""
_HELP = "help"
_EPILOG = """\
`etplus help COMMAND` shows a command's options with an example.

example:
  etplus analyze trace.json
"""
_CHOICES = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")


class Command(Protocol):
    """A command: a module, or an object."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add its description, its epilog and its options."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do what the options say; returns the exit status."""


class _Help(argparse.HelpFormatter):
    """Paragraphs as wide as the terminal; indented lines, such as examples, and headings stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled: list[str] = []
        for is_prose, group in groupby(text.splitlines(), lambda line: bool(line) and line[0] != " "):
            lines = list(group)
            filled += wrap(" ".join(lines), width) if is_prose else lines
        return "".join(f"{indent}{line}\n" for line in filled)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and suggest what may have been meant."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Help, **options)

    def error(self, message: str) -> NoReturn:
        if choice := _CHOICES.search(message):
            message += _suggestion(choice[1], re.findall(r"[^', ]+", choice[2]))
        see = " See" if message.endswith("?") else "; see"
        line = f"{printable(message, ' ')}{see} `{self.prog} --help`"
        self.exit(2, f"{self.prog}: {red('error:', sys.stderr)} {line}\n")

    def parse_all(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse, and refuse what is not known; files and a query may also stand after and between options."""
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


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the words that follow `etplus`; only the command's own module is imported.

    Raises:
        SystemExit: wrong usage, or help was asked for and is printed.
    """
    if words[:1] == [_HELP]:
        words = [*words[1:], "--help"]
    root, commands = etplus_parser(words[:1])
    name = words[0] if words else ""
    if name in commands:
        arguments = commands[name].parse_all(words[1:])
        arguments.command = name
        return arguments
    if name and not name.startswith("-"):
        if name in _REPLACED:
            root.error(f"the command {name!r} is now `etplus {_REPLACED[name]}`")
        root.error(f"unknown command {name!r}{_suggestion(name, commands)}")
    return root.parse_all(words)


def parse_link(words: Sequence[str]) -> argparse.Namespace:
    """Parse the words that follow `trace-link`."""
    from .link import prepare_trace_link

    parser = _Parser(prog="trace-link")
    _add_version(parser)
    prepare_trace_link(parser)
    add_log_level(parser)
    arguments = parser.parse_all(words)
    arguments.command = "link"
    return arguments


def etplus_parser(prepared: Collection[str] | None = None) -> tuple[_Parser, dict[str, _Parser]]:
    """The parser of `etplus` and those of its commands.

    Args:
        prepared: the commands whose options are added, which imports their modules; None for all.
    """
    summaries = dict(COMMANDS)
    if not prepared or not COMMANDS.keys() >= {*prepared}:  # the search takes longer than to parse
        summaries |= {name: _summary(plugin) for name, plugin in _others().items()}
    root = _Parser(
        prog="etplus",
        description="Join PyTorch Execution Traces with Kineto traces and use the result.",
        epilog=_EPILOG,
    )
    _add_version(root)
    commands = root.add_subparsers(dest="command", metavar="COMMAND", required=True)
    found = {name: commands.add_parser(name, help=summary) for name, summary in summaries.items()}
    commands.add_parser(_HELP, help="show this list, or the options of a command")
    for name in found if prepared is None else prepared:
        if name in found:
            _prepare(name, found[name])
    return root, found


def hidden_alias(parser: argparse.ArgumentParser, old: str, new: str, **options: Any) -> None:
    """Accept an option's former name, which help no longer shows; `new` is the current option."""
    parser.add_argument(old, dest=new.removeprefix("--").replace("-", "_"), help=argparse.SUPPRESS,
                        default=argparse.SUPPRESS, **options)  # fmt: skip


def command_named(name: str) -> Command:
    """A command, whose modules are imported now."""
    return _own(name) if name in COMMANDS else _Other(_others()[name])


def _own(name: str) -> Command:
    module: Any = import_module(f".{name}", __package__)
    return module  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Other:
    """A command of another package."""

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


def _prepare(command: str, parser: argparse.ArgumentParser) -> None:
    """The command's own options, and what all commands have."""
    command_named(command).prepare_parser(parser)
    add_log_level(parser)


def add_log_level(parser: argparse.ArgumentParser, default: str = "WARNING") -> None:
    """Add --log-level; parsers below a command's leave its default to that one's."""
    parser.add_argument("--log-level", type=str.upper, default=default, metavar="LEVEL",
        choices=("DEBUG", "INFO", "WARNING", "ERROR"),
        help="debug (shows tracebacks), info, warning or error (default: warning)")  # fmt: skip


def _add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", action="version", version=f"etplus {__version__}")


def _suggestion(word: str, known: Collection[str]) -> str:
    from difflib import get_close_matches  # for mistakes only

    meant = get_close_matches(word, sorted(known), 1)
    return f"; did you mean {meant[0]}?" if meant else ""
