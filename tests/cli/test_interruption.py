"""`trace-link` cut short by signals or a closed pipe, and what it shows on a terminal."""

from __future__ import annotations

import array
import contextlib
import fcntl
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

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
    words = ["--et-file", str(ET), "--kineto-file", "-", "--output", str(tmp_path / "o.json")]
    arguments = [*command("trace-link"), *words]
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin
    process.stdin.write(plain(KINETO)[:1000])
    process.stdin.flush()
    return process


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.001)


def all_is_read(process: subprocess.Popen[bytes]) -> bool:
    """Whether nothing is left in the pipe to a process's standard input."""
    assert process.stdin
    waiting = array.array("i", [0])
    fcntl.ioctl(process.stdin, termios.FIONREAD, waiting)
    return waiting[0] == 0


def test_interrupted_while_reading(tmp_path: Path) -> None:
    with waiting_for_input(tmp_path) as process:
        until(lambda: all_is_read(process))
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 143 and b"Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a pair that takes much longer to write than a signal to arrive."""
    folder = tmp_path_factory.mktemp("large")
    nodes = [{"id": 3 + i, "name": f"op{i}", "rf_id": 1 + i} for i in range(60_000)]
    calls = [
        {"ph": "X", "cat": "cpu_op", "name": f"op{i}", "ts": i, "dur": 1, "args": {"Record function id": 1 + i}}
        for i in range(60_000)
    ]
    (folder / "et.json").write_bytes(orjson.dumps(et_document(nodes)))
    (folder / "kineto.json").write_bytes(orjson.dumps(kineto_document(calls)))
    return folder


def written_so_far(process: subprocess.Popen[bytes], folder: Path) -> int:
    """Bytes of a process's output that has no name in the folder yet; −1 if there is none."""
    try:
        for link in Path(f"/proc/{process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                held = str(link.readlink())
                if held.startswith(f"{folder}/") and held.endswith("(deleted)"):
                    return link.stat().st_size
    except (FileNotFoundError, PermissionError):  # it has ended
        pass
    return -1


def link_into(folder: Path, large: Path) -> subprocess.Popen[bytes]:
    """A run that replaces a file in the folder."""
    folder.mkdir(exist_ok=True)
    (folder / "plus.json").write_bytes(b"old")
    arguments = ["--et-file", large / "et.json", "--kineto-file", large / "kineto.json", "--output"]
    whole = [*command("trace-link"), *map(str, arguments), str(folder / "plus.json")]
    return subprocess.Popen(whole, stderr=subprocess.PIPE)


@pytest.mark.slow
def test_interrupted_at_random_moments_of_writing(tmp_path: Path, large: Path, fuzz_cases: int) -> None:
    """Signals after a random share of the output was written: the old file stays, and nothing is beside it."""
    before = {path.name: path.read_bytes() for path in large.iterdir()}
    with link_into(tmp_path / "whole", large) as process:
        process.communicate(timeout=60)
    size = (tmp_path / "whole" / "plus.json").stat().st_size
    random, hits, folder = Random(1), 0, tmp_path / "out"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL) * max(fuzz_cases // 50, 1):
        wanted = random.randrange(size)
        with link_into(folder, large) as process:
            until(lambda: written_so_far(process, folder) >= wanted or process.poll() is not None)  # noqa: B023
            process.send_signal(number)
            process.communicate(timeout=60)
        hit = process.returncode != 0
        hits += hit
        assert process.returncode in (0, -number if number == signal.SIGKILL else 128 + number)
        assert [path.name for path in folder.iterdir()] == ["plus.json"]
        assert ((folder / "plus.json").read_bytes() == b"old") == hit
    assert hits >= 0.8 * 3 * max(fuzz_cases // 50, 1), "most signals come before the end"
    assert {path.name: path.read_bytes() for path in large.iterdir()} == before


@pytest.mark.slow
def test_the_disk_is_full_at_random_moments_of_writing(tmp_path: Path, large: Path, fuzz_cases: int) -> None:
    folder, random = tmp_path / "out", Random(2)
    folder.mkdir()
    limited = (
        "import resource, signal, sys; from etplus.cli.main import trace_link\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); n = int(sys.argv.pop(1))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (n, n)); sys.exit(trace_link())\n"
    )
    for _ in range(max(fuzz_cases // 50, 1)):
        (folder / "plus.json").write_bytes(b"old")
        files = ["--et-file", large / "et.json", "--kineto-file", large / "kineto.json", "--output"]
        room = str(random.randrange(8_000_000))
        done = subprocess.run(
            [sys.executable, "-c", limited, room, *map(str, files), str(folder / "plus.json")],
            capture_output=True, check=False, timeout=100,
        )  # fmt: skip
        assert done.returncode == 2 and b"writing failed (File too large)" in done.stderr, done.stderr
        assert done.stderr.count(b"\n") == 1
        assert [path.read_bytes() for path in folder.iterdir()] == [b"old"]
