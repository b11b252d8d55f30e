"""Signals that end a program within its window: what is saved before, and that the program ends as it would have."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from etplus.recording.hook.fatal_signals import FatalSignals

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are left alone elsewhere")

PROGRAM = """
import ctypes, os, signal, sys, time
from etplus.recording.hook import fatal_signals

fatal_signals.GRACE_SECONDS = 0.2
def say(text):
    os.write(1, text.encode() + b"\\n")
watched = fatal_signals.FatalSignals(lambda number: say(f"saved {number}"), lambda number: say(f"lost {number}"))
def end():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(5)
"""


def ended(text: str, tmp_path: Path) -> tuple[int, list[str]]:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM + text)
    done = subprocess.run([sys.executable, file], capture_output=True, timeout=60, check=False)
    return done.returncode, [*done.stdout.decode().splitlines(), *done.stderr.decode().splitlines()]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_the_traces_are_saved_and_the_signal_ends_the_program(name: str, tmp_path: Path) -> None:
    number = getattr(signal, name)
    text = f"watched.watch()\nos.kill(os.getpid(), {int(number)})\ntime.sleep(5)\n"
    assert ended(text, tmp_path) == (-number, [f"saved {int(number)}"])


def test_a_signal_waits_until_the_profiler_is_in_order(tmp_path: Path) -> None:
    text = "watched.watch()\nwith watched.deferred():\n    os.kill(os.getpid(), 15)\n    time.sleep(0.1)\n    "
    assert ended(f"{text}say('deferred')\ntime.sleep(5)", tmp_path) == (-signal.SIGTERM, ["deferred", "saved 15"])


def test_a_signal_inside_two_blocks_is_passed_on_behind_the_outer_one() -> None:
    log, before = list[str](), signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def save(number: int) -> None:
        log.append("saved")
        signal.signal(number, lambda *_: log.append("passed on"))

    watched = FatalSignals(save, lambda _: log.append("lost"))
    watched.watch()
    try:
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        with watched.deferred():
            pass
        with watched.deferred():
            with watched.deferred():
                os.kill(os.getpid(), signal.SIGTERM)
            log.append("deferred")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert log == ["deferred", "saved", "passed on"]


def test_the_thread_ends_though_a_fork_still_holds_the_pipe_open() -> None:
    before, watched = set(threading.enumerate()), FatalSignals(lambda _: None, lambda _: None)
    watched.watch()
    (thread,) = set(threading.enumerate()) - before
    held = os.dup(watched._wakeup)
    watched.unwatch()
    thread.join(5)
    assert not thread.is_alive()
    os.close(held)


def test_a_call_that_does_not_return_is_ended(tmp_path: Path) -> None:
    text = """
import threading
watched.watch()
for second in (0.1, 0.2):
    threading.Timer(second, os.kill, (os.getpid(), signal.SIGTERM)).start()
lock, libc = ctypes.create_string_buffer(128), ctypes.CDLL(None)
libc.pthread_mutex_lock(lock)
libc.pthread_mutex_lock(lock)
"""
    assert ended(text, tmp_path) == (-signal.SIGTERM, ["lost 15"])


@pytest.mark.parametrize(
    ("text", "status", "printed"),
    [
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\nwatched.watch()\nend()", 5, []),
        ("watched.watch()\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\nend()", 5, []),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwatched.watch()\nos.kill(os.getpid(), 15)\nsay('alive')", 0,
         ["alive"]),
        ("watched.watch()\nwatched.unwatch()\nend()", -signal.SIGTERM, []),
        ("import threading\nthread = threading.Thread(target=watched.watch)\nthread.start()\nthread.join()\nend()",
         -signal.SIGTERM, []),
    ],
    ids=["handled before", "handled later", "ignored", "after the window", "another thread"],
)  # fmt: skip
def test_what_the_program_or_the_system_handles_is_theirs(
    text: str, status: int, printed: list[str], tmp_path: Path
) -> None:
    assert ended(text, tmp_path) == (status, printed)


def test_a_signal_ends_a_forked_child_at_once(tmp_path: Path) -> None:
    text = """
watched.watch()
child = os.fork()
if not child:
    time.sleep(5)
time.sleep(0.1)
os.kill(child, signal.SIGTERM)
say(f"child {os.waitpid(child, 0)[1]}")
time.sleep(0.5)
watched.unwatch()
say(f"wakeup {signal.set_wakeup_fd(-1)}")
"""
    assert ended(text, tmp_path) == (0, ["child 15", "wakeup -1"])


def test_the_wakeup_descriptor_of_the_program_is_kept(tmp_path: Path) -> None:
    text = """
read_end, write_end = os.pipe()
os.set_blocking(write_end, False)
signal.set_wakeup_fd(write_end)
watched.watch()
watched.unwatch()
say(str(signal.set_wakeup_fd(-1) == write_end))
watched.watch()
signal.set_wakeup_fd(write_end)
watched.unwatch()
say(str(signal.set_wakeup_fd(-1) == write_end))
"""
    assert ended(text, tmp_path) == (0, ["True", "True"])
