"""`trace-link` cut short by signals or a closed pipe. Module: cli.main."""

import array
import fcntl
import signal
import subprocess
import termios
import time
from pathlib import Path

from support import command, fixture_pair, plain

ET, KINETO = fixture_pair("pairs/one_of_n")


def started(et: Path, kineto: Path | str, output: Path | str, **streams: int) -> subprocess.Popen[bytes]:
    words = [*command("trace-link"), "--et-file", et, "--kineto-file", kineto, "--output", output]
    return subprocess.Popen(list(map(str, words)), stderr=subprocess.PIPE, **streams)


def test_a_closed_pipe_ends_without_a_traceback() -> None:
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


def test_sigterm_while_reading_ends_without_traceback_or_output(tmp_path: Path) -> None:
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
