"""`trace-link` cut short by signals or a closed pipe, and what it shows on a terminal."""

from __future__ import annotations

import array
import fcntl
import os
import pty
import signal
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from support import command, et_document, fixture_pair, kineto_document, plain

ET, KINETO = fixture_pair("pairs/one_of_n")


def test_a_closed_pipe_is_no_traceback() -> None:
    """As in `trace-link --output - | head -c 10`."""
    arguments = [*command("trace-link"), "--et-file", str(ET), "--kineto-file", str(KINETO), "--output", "-"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        process.stdout.read(10)
        process.stdout.close()
        errors = process.stderr.read()
        process.wait(timeout=60)
    assert process.returncode == 128 + signal.SIGPIPE and b"Traceback" not in errors


def waiting_for_input(tmp_path: Path) -> subprocess.Popen[bytes]:
    """A run that has read its ET and waits for the Kineto trace."""
    arguments = [
        *command("trace-link"),
        "--et-file",
        str(ET),
        "--kineto-file",
        "-",
        "--output",
        str(tmp_path / "o.json"),
    ]
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin
    process.stdin.write(plain(KINETO)[:1000])
    process.stdin.flush()
    return process


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.001)


def all_is_read(process: subprocess.Popen[bytes]) -> bool:
    """Whether nothing is left in the pipe to a process's standard input."""
    assert process.stdin
    waiting = array.array("i", [0])
    fcntl.ioctl(process.stdin, termios.FIONREAD, waiting)
    return waiting[0] == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_while_reading(tmp_path: Path, number: signal.Signals, status: int) -> None:
    with waiting_for_input(tmp_path) as process:
        until(lambda: all_is_read(process))
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == status and b"Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.slow
def test_interrupted_while_writing(tmp_path: Path, number: signal.Signals) -> None:
    """The signal comes as soon as there is a temporary file; a pair of this size takes much longer to write."""
    nodes = [{"id": 3 + i, "name": f"op{i}", "rf_id": 1 + i} for i in range(150_000)]
    calls = [
        {"ph": "X", "cat": "cpu_op", "name": f"op{i}", "ts": i, "dur": 1, "args": {"Record function id": 1 + i}}
        for i in range(150_000)
    ]
    (tmp_path / "et.json").write_bytes(orjson.dumps(et_document(nodes)))
    (tmp_path / "kineto.json").write_bytes(orjson.dumps(kineto_document(calls)))
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "plus.json.gz").write_bytes(b"old")
    arguments = ["--et-file", tmp_path / "et.json", "--kineto-file", tmp_path / "kineto.json", "--output"]
    whole = [*command("trace-link"), *map(str, arguments), str(folder / "plus.json.gz")]
    with subprocess.Popen(whole, stderr=subprocess.PIPE) as process:
        until(lambda: len(list(folder.iterdir())) > 1 or process.poll() is not None)
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [("plus.json.gz", b"old")]


def on_a_terminal(arguments: list[str]) -> bytes:
    """What a command writes to standard error where that is a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(arguments, stderr=theirs)
    os.close(theirs)
    seen = b""
    try:
        while piece := os.read(ours, 65536):
            seen += piece
    except OSError:  # Linux tells the end of a terminal so
        pass
    os.close(ours)
    assert process.wait(timeout=60) == 0
    return seen


def test_short_runs_show_no_progress_even_on_a_terminal(tmp_path: Path) -> None:
    arguments = [*command("trace-link"), "--et-file", str(ET), "--kineto-file", str(KINETO), "--output"]
    for more in ([], ["--no-progress"]):
        seen = on_a_terminal([*arguments, str(tmp_path / "o.json"), *more])
        assert b"%|" not in seen and b"linked" in seen
