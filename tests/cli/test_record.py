"""`etplus record`: what it records of unchanged programs, and that they do not notice."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
from argparse import ArgumentTypeError
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from etplus import link
from etplus.cli import record as module
from etplus.cli.record import _seconds, _steps
from etplus.recording import RecordingWindow
from etplus.trace.kinds import CERTAIN
from programs_to_record import TRAIN
from support import assert_valid, call, command, read_json, refused, run

CHILDREN = """
import multiprocessing, os, sys, torch

def work(done):
    (torch.ones(4, requires_grad=True) * 2).sum().backward()
    done.put(1)
    sys.exit(4)

def start(kind):
    if kind == "spawn":
        context = multiprocessing.get_context(kind)
        done = context.Queue()
        child = context.Process(target=work, args=(done,))
        child.start()
        done.get()
        child.join()
        print(child.exitcode)
    elif os.fork() == 0:
        print("kept in the buffer until the end", end=" ")
        train(20)
        sys.exit(5)
    else:
        print(os.waitstatus_to_exitcode(os.wait()[1]))

def train(steps, kind=""):
    for step in range(steps):
        if step == 4 and kind:
            sys.stdout.flush()
            start(kind)
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

if __name__ == "__main__":
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(8, sys.argv[1])
    print("trained", file=sys.stderr)
    sys.exit(3)
"""
"""Starts a child process in step 4: spawn, or a plain `os.fork`."""


PYTHON = os.environ.get("ETPLUS_TEST_TORCH_PYTHON", sys.executable)
"""Runs the programs that need PyTorch, which may be in another environment than etplus."""
needs_torch = pytest.mark.skipif(
    sys.executable == PYTHON and importlib.util.find_spec("torch") is None,
    reason="recording needs PyTorch; ETPLUS_TEST_TORCH_PYTHON may name a Python that has it",
)
_LOG_HEAD = re.compile(rb"(?<=^[WE])\d{4} [\d:.]+ \d+", re.MULTILINE)
"""Time and process in what PyTorch logs."""
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def program(folder: Path, text: str) -> Path:
    file = folder / "program.py"
    file.write_text(text)
    return file


def recorded(folder: Path, *words: str | Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return run("etplus", "record", "-o", folder / "traces", *words, **{"env": ONE_THREAD, **options})


def steps_of(kineto: Path) -> list[str]:
    """The names of the steps, none of which contains what the recorder does when the window begins."""
    events = [event for event in read_json(kineto)["traceEvents"] if event.get("ph") == "X"]
    steps = [event for event in events if event["name"].startswith("ProfilerStep#")]
    mark = next(event for event in events if event["name"].startswith("etplus.run="))
    assert all(mark["ts"] + mark["dur"] <= step["ts"] for step in steps)
    return sorted({step["name"] for step in steps})


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "accumulate", "fail_at"),
    [("train", 3, -1), ("train", 1, 5), ("inference", 1, -1), ("compiled", 1, -1), ("ddp", 1, -1)],
)
def test_a_recorded_program_behaves_as_it_does_alone(tmp_path: Path, kind: str, accumulate: int, fail_at: int) -> None:
    start = [PYTHON]
    if kind == "ddp":
        start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words = [*start, str(program(tmp_path, TRAIN)), kind, "8", str(accumulate), str(fail_at)]
    alone = subprocess.run(words, capture_output=True, env=ONE_THREAD, check=False)
    done = recorded(tmp_path, "--steps", "4-5", "--", *words)
    assert (done.returncode, done.stdout) == (alone.returncode, alone.stdout)
    if kind != "ddp":  # whose launcher prints times
        assert _LOG_HEAD.sub(b"", done.stderr).startswith(_LOG_HEAD.sub(b"", alone.stderr))
    for rank in range(1 + (kind == "ddp")):
        assert steps_of(tmp_path / "traces" / f"rank-{rank}.kineto.json.gz") == ["ProfilerStep#4", "ProfilerStep#5"]
        trace = read_json(tmp_path / "traces" / "etplus" / f"rank_{rank}.etplus.json.gz")
        assert_valid(trace)
        calls = [node for node in trace["nodes"] if "kineto_event" in node]
        assert len(calls) > 20 and {node["link"] for node in calls} == {"certain"}
        assert trace["stacks"]
    ranks = read_json(tmp_path / "traces" / "etplus" / "job_report.json")["ranks"]
    assert all(one["linked"] >= 0.99 * one["ops"] > 0 for one in ranks)
    assert len(re.findall(rb"trained", done.stderr)) == alone.stderr.count(b"trained")
    call_lines = "CallFrom" in str(read_json(tmp_path / "traces" / "rank-0.kineto.json.gz")["traceEvents"])
    assert (b"the first line of each function" in done.stderr) != call_lines


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["spawn", "os.fork"])
def test_processes_that_start_in_the_window_leave_the_recording_alone(tmp_path: Path, kind: str) -> None:
    words = [PYTHON, str(program(tmp_path, CHILDREN)), kind]
    alone = subprocess.run(words, capture_output=True, env=ONE_THREAD, timeout=120, check=False)
    assert alone.returncode == 3 and alone.stderr == b"trained\n"
    done = recorded(tmp_path, "--steps", "4-5", "--", *words, timeout=120)
    assert (done.returncode, done.stdout) == (alone.returncode, alone.stdout)
    assert done.stderr.startswith(alone.stderr) and b"warning" not in done.stderr
    trace = link(*(tmp_path / "traces" / f"rank-0.{what}.json.gz" for what in ("et", "kineto")))
    assert trace.report.linked_share >= 0.99
    assert set(trace.nodes.link[trace.nodes.link > 0].tolist()) == {int(CERTAIN)}


def test_a_recorded_program_keeps_its_streams_arguments_and_status(tmp_path: Path) -> None:
    text = "import sys\nprint(sys.stdin.read(), sys.argv[1:])\nprint('said', file=sys.stderr)\nsys.exit(7)\n"
    file = program(tmp_path, text)
    done = recorded(tmp_path, "--", sys.executable, file, "--steps", "--", "x y", input=b"given")
    assert (done.returncode, done.stdout) == (7, b"given ['--steps', '--', 'x y']\n")
    assert done.stderr == b"said\netplus record: PyTorch was not imported\n"
    assert not list((tmp_path / "traces").iterdir())


def test_signals_are_passed_on_to_the_program(tmp_path: Path) -> None:
    text = """
import signal, sys
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(5))
print("ready", flush=True)
signal.pause()
"""
    words = [*command("etplus"), "record", "-o", tmp_path / "traces", "--", sys.executable, program(tmp_path, text)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
    with subprocess.Popen([*map(str, words)], **options) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGUSR1)
        assert process.wait(30) == 5


def test_a_shadowed_sitecustomize_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.customized = True\n")
    file = program(tmp_path, "import sitecustomize, sys\nprint(customized, sitecustomize.__file__)\nimport recorder\n")
    done = recorded(tmp_path, "--", sys.executable, file, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert done.stdout.decode().split() == ["True", str(tmp_path / "sitecustomize.py")]
    assert done.returncode == 1 and b"No module named 'recorder'" in done.stderr


def test_a_torch_that_is_too_old_is_reported(tmp_path: Path) -> None:
    (tmp_path / "torch" / "optim").mkdir(parents=True)
    texts = {"__init__": "__version__ = '1.8'\nfrom . import optim, profiler\n", "profiler": ""}
    for name, text in (texts | {"optim/__init__": "from . import optimizer\n", "optim/optimizer": ""}).items():
        (tmp_path / "torch" / f"{name}.py").write_text(text)
    done = recorded(tmp_path, "--", sys.executable, program(tmp_path, "import torch\nprint(torch.__version__)\n"))
    assert (done.returncode, done.stdout) == (0, b"1.8\n")
    assert done.stderr == b"etplus record: PyTorch 1.8 is too old; 2.0 or later is needed\n"


def test_a_python_that_ignores_the_hook_is_reported(tmp_path: Path) -> None:
    done = recorded(tmp_path, "--", sys.executable, "-I", "-c", "print(1)")
    assert (done.returncode, done.stdout) == (0, b"1\n")
    assert b"no Python process started with the recorder" in done.stderr


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("", "no program given"), ("-- no-such-program-here", "no-such-program-here: cannot be started (No such file"),
        ("--steps 0-2 -- true", "'0-2' must be steps after step 0"), ("--steps 3-2 -- true", "'3-2' must be steps"),
        ("--steps 1.5 -- true", "'1.5' must be steps"), ("--seconds 0 -- true", "'0' must be seconds"),
        ("--seconds x -- true", "'x' must be seconds"),
        ("--steps 2 --seconds 1 -- true", "not allowed with argument --steps"),
    ],
)  # fmt: skip
def test_wrong_usage_fails_with_one_line(tmp_path: Path, words: str, line: str) -> None:
    assert line in refused("record", "-o", tmp_path / "traces", *words.split())
    assert not (tmp_path / "traces").exists()


def test_windows_of_steps_and_seconds_are_parsed() -> None:
    steps, seconds = RecordingWindow, partial(RecordingWindow, by_time=True)
    assert (_steps("3"), _steps("3-5"), _steps("1")) == (steps(3, 3), steps(3, 5), steps(1, 1))
    assert (_seconds("5"), _seconds("20-25"), _seconds("0.5-1.25")) == (
        seconds(0, 5), seconds(20, 25), seconds(0.5, 1.25)
    )  # fmt: skip
    with pytest.raises(ArgumentTypeError):
        _seconds("2-2")


def test_notes_and_a_summary_come_after_the_program_and_its_status_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = SimpleNamespace(notes=("a\nb",), ranks=(0,), call_lines=False, status=7)
    monkeypatch.setattr(module, "record_program", lambda words, folder, plan: done)
    lines = call("record", "-o", tmp_path, "--", "x").stderr.decode().splitlines()
    assert lines[0] == "etplus record: a b" and lines[1].startswith("etplus record: recorded, but not linked: ")
    assert lines[2].startswith("note   Python stacks show the first line of each function")
    done.call_lines, done.notes = True, ()
    assert call("record", "-o", tmp_path, "--", "x").stderr.count(b"\n") == 1
    done.ranks = ()
    again = call("record", "-o", tmp_path, "--", "x")
    assert (again.returncode, again.stderr) == (7, b"")
