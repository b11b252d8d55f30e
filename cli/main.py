"""The commands `etplus` and `trace-link`: a table of subcommands, one way of reporting errors.

All but the lightest modules are imported within `_reported`, so that an interrupt at any time ends in one line.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from .. import __version__
from ..trace.errors import EtplusError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from types import FrameType

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
_SIGINT, _SIGTERM = 128 + signal.SIGINT, 128 + signal.SIGTERM
_SIGPIPE = 128 + 13  # by number: Windows has no such signal
_STDOUT = "standard output"
_DEBUG = "--log-level DEBUG"
_INTERRUPTED = "interrupted; nothing was written"


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of `etplus`; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    return _reported("etplus", lambda: _parsed(given), alone=arguments is None)


def trace_link(arguments: Sequence[str] | None = None) -> int:
    """Entry point of `trace-link`, which is `etplus link`."""
    return _reported("trace-link", lambda: _parsed_link(arguments), alone=arguments is None)


def _parsed(given: list[str]) -> Namespace:
    import argparse

    parser = argparse.ArgumentParser(
        prog="etplus",
        description="Join PyTorch Execution Traces with Kineto traces and use the result.",
        epilog="`etplus COMMAND --help` shows a command's options with an example.",
    )
    parser.add_argument("--version", action="version", version=f"etplus {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in _COMMANDS.items():
        sub = commands.add_parser(
            name, help=summary, add_help=True, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if given[:1] == [name]:  # the others need not be imported
            _prepare(name, sub)
    return parser.parse_args(given)


def _parsed_link(given: Sequence[str] | None) -> Namespace:
    import argparse

    parser = argparse.ArgumentParser(prog="trace-link", formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"etplus {__version__}")
    _prepare("link", parser)
    parser.set_defaults(command="link")
    return parser.parse_args(given)


def _prepare(command: str, parser: ArgumentParser) -> None:
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


def _reported(program: str, parse: Callable[[], Namespace], *, alone: bool) -> int:
    """Parse and run; every exception becomes one line on standard error and an exit status.

    Args:
        alone: the process has nothing else to do.
    """
    level = "WARNING"
    with _signals(program, alone) as imported:
        try:
            if alone:
                _repair_streams()
            arguments = parse()
            level = arguments.log_level
            imported()
            return _run(arguments)
        except SystemExit as end:  # --help, wrong usage, SIGTERM
            lost = _lost_output()
            if lost is None or end.code:
                raise
            if isinstance(lost, BrokenPipeError):
                return _SIGPIPE
            line, status = f"error: {_explained(lost)}", _BAD_INPUT
        except KeyboardInterrupt:
            line, status = _INTERRUPTED, _SIGINT
        except Exception as error:
            line, status = f"error: {_one_line(_explained(error))}", _BAD_INPUT
            if level == "DEBUG":
                import logging

                logging.exception("traceback, because of %s", _DEBUG)
        _lost_output()
        print(f"{program}: {line}", file=sys.stderr)
        return status


def _run(arguments: Namespace) -> int:
    """Run the command as one transaction: none of its outputs appears unless it returns."""
    import logging

    from ..schemas.transaction import transaction

    logging.basicConfig(level=arguments.log_level, format="%(levelname)s: %(message)s", stream=sys.stderr, force=True)
    with transaction():
        try:
            status: int = _module(arguments.command).run(arguments)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader of our output is gone, as in `… | head`; files that are whole are kept
            _lost_output()
            return _SIGPIPE
    return status


def _explained(error: Exception) -> str:
    """What went wrong, and what to do."""
    if isinstance(error, EtplusError):
        return str(error)
    if isinstance(error, MemoryError):
        return "not enough memory; give smaller or fewer files, or run it on a machine with more"
    if isinstance(error, OSError) and error.filename == _STDOUT:
        return f"{_STDOUT}: writing failed ({error.strerror}); nothing was written"
    if isinstance(error, OSError):
        file = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return f"{file}cannot be read or written ({error.strerror or error}); check the path and its permissions"
    return (
        f"{type(error).__name__}: {str(error)[:200]}; this is a bug in etplus: please report it with what "
        f"{_DEBUG} shows"
    )


def _lost_output() -> OSError | None:
    """Flush standard output, or drop what cannot be written and return why, so that Python's exit is not disturbed."""
    try:
        sys.stdout.flush()
    except OSError as error:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error
    return None


def _repair_streams() -> None:
    """Streams that exist, take any text of a trace, and report errors of writing as their own.

    Where a descriptor was closed (`>&-`) Python has no stream. Standard output then is one that cannot be written to,
    so that what a command prints there is reported as lost.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    old = sys.stdout
    raw = _StandardOutput(os.open(os.devnull, os.O_RDONLY) if old is None else old.fileno(), "w", closefd=False)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw), encoding="utf-8" if old is None else old.encoding, errors="backslashreplace",
        line_buffering=raw.isatty(),
    )  # fmt: skip


class _StandardOutput(io.FileIO):
    """Its errors name it, as those of opening a file name the file."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = _STDOUT
            raise


@contextlib.contextmanager
def _signals(program: str, alone: bool) -> Iterator[Callable[[], None]]:
    """Have signals end the run in order; yields a function to call once the command's modules are imported.

    Until then they end the process at once: what a handler raises within an import can be printed and ignored by
    Python. From then on SIGTERM raises SystemExit and SIGINT KeyboardInterrupt, so that temporary files are removed.
    In a process with other things to do signals are left as they are.
    """
    if not alone:
        yield lambda: None
        return

    def stop(number: int, _frame: FrameType | None) -> NoReturn:
        if number == signal.SIGINT:
            os.write(2, f"{program}: {_INTERRUPTED}\n".encode())
        os._exit(128 + number)

    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: _terminate}
    if signal.getsignal(signal.SIGINT) != signal.default_int_handler:  # ignored, as in `nohup` and `command &`
        del handlers[signal.SIGINT]
    for number in handlers:
        signal.signal(number, stop)

    def imported() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    try:
        yield imported
    finally:
        for number in handlers:
            signal.signal(number, signal.SIG_DFL)


def _terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
    """Turn SIGTERM into an exception, so that temporary files are removed."""
    raise SystemExit(_SIGTERM)


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
