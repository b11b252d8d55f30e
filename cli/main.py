"""The commands `etplus` and `trace-link`: a table of subcommands, one way of reporting errors."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from types import FrameType
from typing import NoReturn

from .. import __version__
from ..schemas.errors import EtplusError

__all__ = ["main", "trace_link"]

_COMMANDS = {
    "link": "join an Execution Trace with a Kineto trace into ET+",
    "batch": "link all ranks of a job, and report on them together",
    "convert": "convert ET+ to what simulators and viewers read, and back",
    "replay": "predict the timeline of ET+ graphs, and what if",
    "fit": "fit a model of what work takes on linked traces",
    "predict": "predict the time of a linked trace with a fitted model",
    "train": "train a network that predicts the times of graphs (needs the extra learn)",
    "evaluate": "hold networks and plain baselines against graphs they have not seen",
    "check": "check Chakra traces (.et) before a simulator runs them",
    "analyze": "tell where the time goes: streams, modules, operators, kernels, overheads",
    "report": "one HTML page: timeline, device time, kernels, roofline, overheads, communication",
    "augment": "write FLOPs, bytes and shares of peaks into a Kineto trace or ET+",
    "redact": "copy a trace without tokens, passwords and, on request, host names, user names and paths",
    "diff": "two traces side by side, by operator and by kernel",
    "demo": "link and convert a bundled real pair, and show the report",
}
"""Each is a module of this package with `prepare_parser(parser)` and `run(arguments) -> exit status`."""

_BAD_INPUT = 2
_SIGTERM = 128 + signal.SIGTERM


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of `etplus`; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="etplus",
        description="Join PyTorch Execution Traces with Kineto traces and use the result.",
        epilog="`etplus COMMAND --help` shows a command's options with an example.",
    )
    parser.add_argument("--version", action="version", version=f"etplus {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    given = list(sys.argv[1:] if arguments is None else arguments)
    for name, summary in _COMMANDS.items():
        sub = commands.add_parser(
            name, help=summary, add_help=True, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if given[:1] == [name]:  # the others need not be imported
            _prepare(name, sub)
    return _run(parser.parse_args(given), parser)


def trace_link(arguments: Sequence[str] | None = None) -> int:
    """Entry point of `trace-link`, which is `etplus link`."""
    parser = argparse.ArgumentParser(prog="trace-link", formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"etplus {__version__}")
    _prepare("link", parser)
    parser.set_defaults(command="link")
    return _run(parser.parse_args(arguments), parser)


def _prepare(command: str, parser: argparse.ArgumentParser) -> None:
    """The command's own options, and what all commands have."""
    _module(command).prepare_parser(parser)
    parser.add_argument(
        "--log-level",
        default="WARNING",
        choices=("DEBUG", "INFO", "WARNING", "ERROR"),
        help="DEBUG shows tracebacks",
    )


def _module(command: str):  # type: ignore[no-untyped-def]
    return import_module(f".{command}", __package__)


def _run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    level = arguments.log_level
    logging.basicConfig(level=level, format="%(levelname)s: %(message)s", stream=sys.stderr, force=True)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        status: int = _module(arguments.command).run(arguments)
        sys.stdout.flush()
        return status
    except EtplusError as error:
        if level == "DEBUG":
            logging.exception("traceback, because of --log-level DEBUG")
        print(f"{parser.prog}: error: {_one_line(error)}", file=sys.stderr)
        return _BAD_INPUT
    except BrokenPipeError:  # the reader of our output is gone, as in `… | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted; nothing was written", file=sys.stderr)
        return 128 + signal.SIGINT


def _terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
    """Turn SIGTERM into an exception, so that temporary files are removed."""
    raise SystemExit(_SIGTERM)


def _one_line(error: Exception) -> str:
    return "".join(c if c.isprintable() else " " for c in str(error))
