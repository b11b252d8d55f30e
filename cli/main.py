"""Define the entry points of `etplus` and `trace-link`, including their error handling.

An interrupted command must always end with one line of output. Therefore, only small modules are imported before
`_reported`."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ..trace.errors import EtplusError
from ..trace.outer import missing_part
from ..trace.printable import escaped, printable
from .terminal import quieted, red

if TYPE_CHECKING:
    from argparse import Namespace
    from logging import LogRecord
    from types import FrameType

_BAD_INPUT = 2
_SIGINT, _SIGTERM = 128 + signal.SIGINT, 128 + signal.SIGTERM
_SIGPIPE = 128 + 13  # Windows does not define this signal, so its number is used.
_STDOUT = "standard output"
_DEBUG = "--log-level DEBUG"
_INTERRUPTED = "interrupted; nothing was written"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `etplus` and return the exit status."""
    return _reported("etplus", "parse", arguments)


def trace_link(arguments: Sequence[str] | None = None) -> int:
    """Run `trace-link`, an alias of `etplus link`, and return the exit status."""
    return _reported("trace-link", "parse_link", arguments)


def _reported(program: str, parse: str, given: Sequence[str] | None) -> int:
    """Parse and run the command. Print an exception as one line on standard error and return an exit status.

    Args:
        parse: the name of a function in the module `parser`.
        given: the command line. None means sys.argv; the command then has the process to itself."""
    level, alone = "WARNING", given is None
    with _signals(program, alone) as imported:
        try:
            if alone:
                _repair_streams()
            arguments = _parsed(parse, list(sys.argv[1:] if given is None else given), alone)
            level = arguments.log_level
            imported()
            return _run(arguments, alone)
        except SystemExit as end:  # --help, wrong usage and SIGTERM raise this exception.
            lost = _lost_output()
            if lost is None or end.code:
                raise
            if isinstance(lost, BrokenPipeError):
                return _SIGPIPE
            line, status = f"{_error()} {_explained(lost)}", _BAD_INPUT
        except KeyboardInterrupt:
            line, status = _INTERRUPTED, _SIGINT
        except Exception as error:
            line, status = f"{_error()} {printable(_explained(error), ' ')}", _BAD_INPUT
            if level == "DEBUG":
                import logging

                logging.exception("traceback, because of %s", _DEBUG)
        _lost_output()
        print(f"{program}: {line}", file=sys.stderr)
        return status


def _parsed(parse: str, words: list[str], alone: bool) -> Namespace:
    """Parse the command line. Freeze all imported modules, so that the garbage collector skips them."""
    if alone:
        gc.disable()
    with _one_blas_thread(lasting=words[:2] == ["predict", "fit"]) if alone else contextlib.nullcontext():
        from . import parser

        arguments: Namespace = getattr(parser, parse)(words)
    if alone:
        gc.freeze()
        gc.enable()
    return arguments


@contextlib.contextmanager
def _one_blas_thread(*, lasting: bool) -> Iterator[None]:
    """Import numpy with one BLAS thread. Starting more takes 0.1 s of CPU time, and small GEMMs do not benefit.

    If `lasting` is True, the limit stays in place, because `predict fit` solves many small systems."""
    added = [name for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS") if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        yield
    finally:
        for name in () if lasting else added:
            del os.environ[name]


def _run(arguments: Namespace, alone: bool) -> int:
    """Run the command in one transaction, so that its outputs appear only if it succeeds."""
    import logging

    from ..schemas.text.memory_limit import capped_memory
    from ..schemas.text.transaction import transaction
    from .parser import command_named

    is_quiet = getattr(arguments, "quiet", False)
    level = "ERROR" if is_quiet else arguments.log_level
    logging.basicConfig(level=level, format="%(levelname)s: %(message)s", stream=sys.stderr, force=True)
    logging.getLogger().handlers[0].addFilter(_made_printable)
    with capped_memory() if alone else contextlib.nullcontext(), quieted(is_quiet), transaction():
        try:
            status = _run_with_ranks(command_named(arguments.command).run, arguments)
            sys.stdout.flush()
        except BrokenPipeError:  # The reader has closed the pipe, as in `… | head`. Complete output files are kept.
            _lost_output()
            return _SIGPIPE
    return status


def _run_with_ranks(run: Callable[[Namespace], int], arguments: Namespace) -> int:
    """Run a command. If a file turns out to contain merged traces, run the command again with one rank per trace."""
    from ..schemas.text.file_ranks import ProcessRank, SeveralRanksError

    while True:
        copied = {key: [*value] if isinstance(value, list) else value for key, value in vars(arguments).items()}
        try:
            return run(type(arguments)(**copied))  # The lists are copied, because commands may remove words from them.
        except SeveralRanksError as several:
            known = getattr(arguments, "merged", None)
            if known is None or several.file in known or not isinstance(several.ranks[0], ProcessRank):
                raise
            arguments.merged = {**known, several.file: several.ranks}


def _made_printable(record: LogRecord) -> bool:
    """Remove control characters from a log message, because names in traces are untrusted."""
    record.msg, record.args = escaped(record.getMessage()), None
    return True


def _explained(error: Exception) -> str:
    if isinstance(error, EtplusError):
        return str(error)
    if missing := missing_part(error):
        return missing
    if isinstance(error, MemoryError):
        from ..schemas.text.memory_limit import or_raise_limit

        return f"not enough memory; pass smaller or fewer files, or use a machine with more{or_raise_limit()}"
    if isinstance(error, OSError) and error.filename == _STDOUT:
        return f"{_STDOUT}: writing failed ({error.strerror}); nothing was written"
    if isinstance(error, OSError):
        file = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return f"{file}cannot be read or written ({error.strerror or error}); check the path and its permissions"
    return (
        f"{type(error).__name__}: {str(error)[:200]}; this is a bug in etplus: please report it with the output of "
        f"{_DEBUG}"
    )


def _lost_output() -> OSError | None:
    """Flush standard output. On failure, drop the output and return the error, so that Python exits cleanly."""
    try:
        sys.stdout.flush()
    except OSError as error:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error
    return None


def _repair_streams() -> None:
    """Make the standard streams accept any text, and name them for error messages.

    If a descriptor is closed (`>&-`), Python has no stream for it. A read-only stream takes its place, so that the lost
    output is reported."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    old = sys.stdout
    raw = _StandardOutput(os.open(os.devnull, os.O_RDONLY) if old is None else old.fileno(), "w", closefd=False)
    encoding, writer = "utf-8" if old is None else old.encoding, io.BufferedWriter(raw)
    sys.stdout = io.TextIOWrapper(writer, encoding=encoding, errors="backslashreplace", line_buffering=raw.isatty())


class _StandardOutput(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = _STDOUT
            raise


@contextlib.contextmanager
def _signals(program: str, alone: bool) -> Iterator[Callable[[], None]]:
    """Handle signals. Yield a function that the caller must call when all modules of the command are imported.

    Until then, a signal ends the process immediately, because Python may ignore exceptions during an import.
    Afterwards, SIGTERM raises SystemExit and SIGINT raises KeyboardInterrupt, so that temporary files are removed."""
    if not alone:
        yield lambda: None
        return

    def stop(number: int, _frame: FrameType | None) -> NoReturn:
        if number == signal.SIGINT:
            os.write(2, f"{program}: {_INTERRUPTED}\n".encode())
        os._exit(128 + number)

    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: _terminate}
    # If SIGINT was ignored at startup, as under `nohup` and in `command &`, it must stay ignored.
    if signal.getsignal(signal.SIGINT) != signal.default_int_handler:
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
    raise SystemExit(_SIGTERM)


def _error() -> str:
    return red("error:", sys.stderr)
