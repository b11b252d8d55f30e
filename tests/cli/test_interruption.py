"""`trace-link` cut short by signals or a closed pipe."""

from __future__ import annotations

import array
import fcntl
import signal
import subprocess
import termios
import time
from pathlib import Path
from random import Random

import orjson
import pytest
from support import command, et_document, fixture_pair, kineto_document, plain

ET, KINETO = fixture_pair("pairs/one_of_n")


def started(et: Path, kineto: Path | str, output: Path | str, **streams: int) -> subprocess.Popen[bytes]:
    words = [*command("trace-link"), "--et-file", et, "--kineto-file", kineto, "--output", output]
    return subprocess.Popen(list(map(str, words)), stderr=subprocess.PIPE, **streams)


def test_a_closed_pipe_is_no_traceback() -> None:
    """As in `trace-link --output - | head -c 10`."""
    with started(ET, KINETO, "-", stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        process.stdout.read(10)
        process.stdout.close()
        errors = process.stderr.read()
        process.wait(timeout=60)
    assert process.returncode == 128 + signal.SIGPIPE and b"Traceback" not in errors


def all_is_read(process: subprocess.Popen[bytes]) -> bool:
    """Whether nothing is left in the pipe to a process's standard input."""
    assert process.stdin
    waiting = array.array("i", [0])
    fcntl.ioctl(process.stdin, termios.FIONREAD, waiting)
    return waiting[0] == 0


def test_interrupted_while_reading(tmp_path: Path) -> None:
    with started(ET, "-", tmp_path / "o.json", stdin=subprocess.PIPE) as process:
        assert process.stdin
        process.stdin.write(plain(KINETO)[:1000])
        process.stdin.flush()
        deadline = time.monotonic() + 60
        while not all_is_read(process):
            assert time.monotonic() < deadline
            time.sleep(0.001)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 143 and b"Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_interrupted_at_random_moments_of_writing(tmp_path: Path) -> None:
    """The old file stays, and nothing is beside it."""
    count = 60_000
    calls = [
        {"ph": "X", "cat": "cpu_op", "name": f"op{i}", "ts": i, "dur": 1, "args": {"Record function id": 1 + i}}
        for i in range(count)
    ]
    nodes = [{"id": 3 + i, "name": f"op{i}", "rf_id": 1 + i} for i in range(count)]
    et, kineto, output = tmp_path / "et.json", tmp_path / "kineto.json", tmp_path / "out" / "plus.json"
    et.write_bytes(orjson.dumps(et_document(nodes)))
    kineto.write_bytes(orjson.dumps(kineto_document(calls)))
    output.parent.mkdir()
    begin = time.monotonic()
    with started(et, kineto, output) as process:
        process.communicate(timeout=60)
    whole, random = time.monotonic() - begin, Random(1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL) * 4:
        output.write_bytes(b"old")
        with started(et, kineto, output) as process:
            time.sleep(whole * random.uniform(0.3, 1))
            process.send_signal(number)
            process.communicate(timeout=60)
        assert process.returncode in (0, -number if number == signal.SIGKILL else 128 + number)
        assert [path.name for path in output.parent.iterdir()] == ["plus.json"]
        assert (output.read_bytes() == b"old") == (process.returncode != 0)
