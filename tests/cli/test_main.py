"""What `main` makes of the ways in which a command can end, within this process."""

import contextlib
import io
import logging
import os
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from etplus.cli import check
from etplus.cli.main import _one_blas_thread, _parsed, _run_with_ranks, main, trace_link
from etplus.schemas.text.file_ranks import ProcessRank, SeveralRanksError
from etplus.trace.errors import UsageError
from support import call


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Exchanges what `etplus check` does for a function."""

    def exchange(work: Callable[[], Any]) -> None:
        monkeypatch.setattr(check, "run", lambda _arguments: work())

    return exchange


@contextlib.contextmanager
def closed_pipe() -> Iterator[io.TextIOWrapper]:
    """Standard output that nobody reads any more."""
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as stream, contextlib.redirect_stdout(stream):  # noqa: PTH123
        yield stream


def is_dropped(stream: io.TextIOWrapper) -> bool:
    """Whether what is written there goes nowhere, without an error."""
    return os.fstat(stream.fileno()).st_rdev == Path(os.devnull).stat().st_rdev


def raised(error: BaseException) -> Callable[[], int]:
    def work() -> int:
        raise error

    return work


def test_main_returns_the_status_of_the_command(command: Callable[[Callable[[], Any]], None]) -> None:
    for status in (0, 3):
        command(lambda status=status: status)  # type: ignore[misc]
        done = call("check", "x")
        assert (done.returncode, done.stdout, done.stderr) == (status, b"", b"")


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (UsageError("two\nlines\x1b"), 2, "error: two lines "),
        (KeyboardInterrupt(), 130, "interrupted; nothing was written"),
        (FileNotFoundError(2, "No such file", "a/b"), 2,
         "error: a/b: cannot be read or written (No such file); check the path and its permissions"),
        (OSError(28, "No space left"), 2,
         "error: cannot be read or written (No space left); check the path and its permissions"),
        (OSError(28, "No space left", "standard output"), 2,
         "error: standard output: writing failed (No space left); nothing was written"),
    ],
)  # fmt: skip
def test_an_error_ends_with_its_status_and_one_line(
    error: BaseException, status: int, line: str, command: Callable[[Callable[[], Any]], None]
) -> None:
    command(raised(error))
    done = call("check", "x")
    assert (done.returncode, done.stdout) == (status, b"") and done.stderr.decode() == f"etplus: {line}\n"


def test_what_is_unexpected_asks_for_a_report_and_shows_its_traceback_on_request(
    command: Callable[[Callable[[], Any]], None],
) -> None:
    command(raised(RuntimeError("odd")))
    done = call("check", "x").stderr.decode()
    assert done.count("\n") == 1 and "odd" in done and "--log-level DEBUG" in done
    told = call("check", "x", "--log-level", "DEBUG").stderr.decode()
    assert "Traceback" in told and told.splitlines()[-1].startswith("etplus: error: ")
    command(raised(MemoryError()))
    assert "not enough memory" in call("check", "x").stderr.decode()


def test_messages_of_the_log_cannot_steer_a_terminal(command: Callable[[Callable[[], Any]], None]) -> None:
    def work() -> int:
        logging.getLogger("etplus").warning("name %s", "\x1b[2J")
        logging.getLogger("etplus").info("quiet")
        return 0

    command(work)
    assert call("check", "x").stderr == b"WARNING: name \\u001b[2J\n"
    assert call("check", "x", "--log-level", "INFO").stderr.endswith(b"INFO: quiet\n")


def test_a_reader_that_is_gone_ends_a_command_quietly(
    command: Callable[[Callable[[], Any]], None], capsys: pytest.CaptureFixture[str]
) -> None:

    def work() -> int:
        print("text")
        return 0

    command(work)
    with closed_pipe() as stream:
        assert main(["check", "x"]) == 141 and is_dropped(stream)
    assert capsys.readouterr().err == ""


def test_an_error_comes_before_a_reader_that_is_gone(
    command: Callable[[Callable[[], Any]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> int:
        print("text")
        raise UsageError("wrong")

    command(work)
    with closed_pipe() as stream:
        assert main(["check", "x"]) == 2 and is_dropped(stream)
    assert capsys.readouterr().err == "etplus: error: wrong\n"


def test_help_into_a_closed_pipe_ends_with_status_141() -> None:
    with closed_pipe() as stream:
        assert main(["--help"]) == 141 and is_dropped(stream)


def test_wrong_usage_ends_with_status_2_and_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    for program, words in ((main, ["none"]), (trace_link, ["--none"])):
        with pytest.raises(SystemExit) as end:
            program(words)
        assert end.value.code == 2 and "error: " in capsys.readouterr().err
    assert trace_link([]) == 2 and capsys.readouterr().err.startswith("trace-link: error: no Kineto trace given")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_help_into_a_full_device_fails_with_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with open("/dev/full", "w") as full, contextlib.redirect_stdout(full):  # noqa: PTH123
        assert main(["--help"]) == 2 and is_dropped(full)
    assert capsys.readouterr().err.startswith("etplus: error: cannot be read or written (No space left on device)")


def test_fitting_keeps_to_one_thread_where_nothing_else_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    for lasting in (False, True):
        with _one_blas_thread(lasting=lasting):
            assert (os.environ["OPENBLAS_NUM_THREADS"], os.environ["MKL_NUM_THREADS"]) == ("3", "1")
        assert os.environ["OPENBLAS_NUM_THREADS"] == "3"
        assert os.environ.get("MKL_NUM_THREADS") == ("1" if lasting else None)
    for words, kept in ((["why", "x"], None), (["predict", "fit", "x", "-o", "y"], "1")):
        monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
        _parsed("parse", words, True)
        assert os.environ.get("MKL_NUM_THREADS") == kept
    monkeypatch.setenv("MKL_NUM_THREADS", "")  # so that it goes at the end


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_the_modules_are_imported_ends_the_process_at_once(number: signal.Signals) -> None:
    script = (
        "import os, signal; from etplus.cli.main import _signals\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"with _signals('etplus', True): os.kill(os.getpid(), {int(number)})"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False, timeout=60)
    assert done.returncode == 128 + number
    assert done.stderr == (b"etplus: interrupted; nothing was written\n" if number == signal.SIGINT else b"")


def test_a_command_runs_again_when_a_file_turns_out_to_hold_several_ranks() -> None:
    ranks = [ProcessRank("m.json", rank, 7 + rank, 0) for rank in range(2)]
    seen: list[Any] = []

    def run(arguments: Namespace) -> int:
        seen.append((arguments.files.pop(), dict(arguments.merged)))
        if "m.json" not in arguments.merged or seen[2:]:
            raise SeveralRanksError("m.json", ranks)
        return 7

    given = Namespace(files=["m.json"], merged={})
    assert _run_with_ranks(run, given) == 7 and given.files == ["m.json"]
    assert seen == [("m.json", {}), ("m.json", {"m.json": ranks})]
    for wrong in (given, Namespace(files=["m.json"])):  # once more, or where no command line could say which
        with pytest.raises((SeveralRanksError, AttributeError)):
            _run_with_ranks(run, wrong)
