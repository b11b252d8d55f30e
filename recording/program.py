"""Run a program with a recorder in each of its Python processes, and collect their traces.

A `sitecustomize` file on PYTHONPATH starts the recorder (`hook/`). Each process that imports PyTorch writes its traces
and a status file. When the program has ended, the traces are renamed after their ranks."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from ..schemas.text.files import open_output
from ..schemas.text.transaction import transaction
from ..trace.errors import UsageError

_HOOK = Path(__file__).parent / "hook"
_VARIABLE = "ETPLUS_RECORD"
_COPY_BLOCK = 1 << 20
_FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGWINCH")


@dataclass(frozen=True)
class RecordingWindow:
    """The part of a program to record: steps `first` to `last`, counted from 0. With `by_time`, these are seconds since
    the import of PyTorch. If no step has run by then, the seconds in `otherwise` are recorded instead."""

    first: float
    last: float
    by_time: bool = False
    otherwise: tuple[float, float] | None = None

    @property
    def text(self) -> str:
        return f"{self.first:g}" if self.first == self.last else f"{self.first:g}-{self.last:g}"


@dataclass(frozen=True)
class Recorded:
    """`status` is the program's exit status, or 128 + N if signal N ended it. All `ranks` have a pair of traces.
    `notes` explain incomplete recordings. `call_lines` is True if Python stacks have line numbers of calls."""

    status: int
    ranks: tuple[int, ...]
    notes: tuple[str, ...]
    call_lines: bool


def record_program(command: Sequence[str], folder: str | os.PathLike[str], plan: RecordingWindow) -> Recorded:
    """Run a program with a recorder inside. For each rank, write `rank-N.et.json.gz` and `rank-N.kineto.json.gz`.

    The program keeps its standard streams and open files, and signals are forwarded to it.

    Args:
        folder: an existing folder. Files that have the same names are replaced.
        plan: what to record.

    Raises:
        UsageError: the program cannot be started.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix=".recording-") as name:
        scratch = Path(name).resolve()
        status = _run(command, _environment(scratch, plan))
        processes = _processes(scratch)
        found, notes = _pairs(scratch, processes, plan)
        with transaction(nested=True):  # the files must be in place when they are linked
            for rank, stem in found.items():
                for what in ("et", "kineto"):
                    source = scratch / f"{stem}.{what}.json"
                    with source.open("rb") as file, open_output(Path(folder, f"rank-{rank}.{what}.json.gz")) as out:
                        shutil.copyfileobj(file, out, _COPY_BLOCK)
    versions = [str(processes[stem.partition(".")[0]].get("torch", "")) for stem in found.values()]
    return Recorded(status, tuple(sorted(found)), tuple(notes), all(map(_has_call_lines, versions)))


def _environment(scratch: Path, plan: RecordingWindow) -> dict[str, str]:
    window: dict[str, Any] = {"seconds" if plan.by_time else "steps": [plan.first, plan.last]}
    if plan.otherwise is not None and not plan.by_time:
        window["otherwise"] = plan.otherwise
    before = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(_HOOK)] + ([before] if before else []))
    return {**os.environ, "PYTHONPATH": path, _VARIABLE: json.dumps({"folder": str(scratch), **window})}


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    with _forwarding() as hand_on:
        try:
            child = subprocess.Popen(command, env=environment, close_fds=False, preexec_fn=_limits())
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise UsageError(f"{command[0]}: cannot be started ({why}); check the command after --") from None
        hand_on(child)
        status = child.wait()
    return 128 - status if status < 0 else status


def _limits() -> Callable[[], None] | None:
    try:
        import resource
    except ImportError:  # Windows lacks this module
        return None
    kind = resource.RLIMIT_DATA
    try:
        wanted = resource.prlimit(os.getppid(), kind)
    except (AttributeError, OSError):  # not on Linux, or the parent process belongs to another user
        hard = resource.getrlimit(kind)[1]
        wanted = (hard, hard)

    def apply() -> None:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, wanted)

    return apply


@contextlib.contextmanager
def _forwarding() -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    children: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        if not children:
            early.append(number)
        elif not (number in _OF_TERMINAL and _in_foreground()):
            children[0].send_signal(number)

    def hand_on(child: subprocess.Popen[bytes]) -> None:
        children.append(child)
        for number in early:
            child.send_signal(number)

    before: dict[int, Any] = {}
    try:
        for number in (getattr(signal, name) for name in _FORWARDED if hasattr(signal, name)):
            if signal.getsignal(number) != signal.SIG_IGN:  # under `nohup`, the program must still ignore SIGHUP
                with contextlib.suppress(ValueError):  # only the main thread can set handlers
                    before[number] = signal.signal(number, forward)
        yield hand_on
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_OF_TERMINAL = {getattr(signal, name, None) for name in ("SIGINT", "SIGQUIT", "SIGWINCH", "SIGCONT")}


def _in_foreground() -> bool:
    try:
        with open("/dev/tty", "rb", buffering=0) as terminal:  # noqa: PTH123
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except (OSError, AttributeError):
        return False


def _has_call_lines(version: str) -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= (2, 14)


def _processes(scratch: Path) -> dict[str, dict[str, Any]]:
    processes: dict[str, dict[str, Any]] = {}
    for path in sorted(scratch.glob("*.status.json")):
        with contextlib.suppress(ValueError):  # the process was killed while writing the file
            processes[path.name.partition(".")[0]] = json.loads(path.read_bytes())
    return processes


def _pairs(
    scratch: Path, processes: dict[str, dict[str, Any]], plan: RecordingWindow
) -> tuple[dict[int, str], list[str]]:
    recorded = {int(state["rank"]): stem for stem, state in processes.items() if state["state"] == "recorded"}
    notes = [note for state in processes.values() if (note := _shortfall(state, plan))]
    if not recorded and not notes:
        notes.append(_nothing(scratch, list(processes.values()), plan))
        recorded = _by_time(scratch, processes)
        if recorded and plan.otherwise is not None:
            first, last = plan.otherwise
            notes[-1] = f"{notes[-1].partition('; ')[0]}; seconds {first:g}-{last:g} were recorded instead"
    return recorded, list(dict.fromkeys(notes))


def _by_time(scratch: Path, processes: dict[str, dict[str, Any]]) -> dict[int, str]:
    found: dict[int, tuple[int, str]] = {}
    for stem, state in processes.items():
        operators = _operators(scratch / f"{stem}.time.et.json") if state.get("otherwise") else 0
        if operators > found.get(int(state.get("rank", 0)), (0, ""))[0]:
            found[int(state["rank"])] = operators, f"{stem}.time"
    return {rank: stem for rank, (_, stem) in found.items()}


def _operators(path: Path) -> int:
    with path.open("rb") as file:
        return sum(line.count(b'"aten::') for line in file)


def _shortfall(state: dict[str, Any], plan: RecordingWindow) -> str:
    ending = f"was stopped by signal {state['signal']}" if "signal" in state else "ended"
    if state["state"] == "recorded" and state.get("cut") and not plan.by_time:
        where = f"in step {state['steps']}, before step {plan.last:g} was over"
        return f"rank {state['rank']}: the program {ending} {where}; the recorded part was kept"
    if state["state"] == "recorded" and state.get("cut"):
        return f"rank {state['rank']}: the program {ending} before second {plan.last:g}; the recorded part was kept"
    if state["state"] == "recording" and "signal" in state:
        return f"rank {state['rank']}: the process {ending} in a call that did not return; its traces are lost"
    if state["state"] == "recording":
        return f"rank {state['rank']}: the process was killed in the window; its traces are lost"
    if state["state"] == "failed":
        return f"rank {state['rank']}: {state['reason']}" if "rank" in state else str(state["reason"])
    return ""


def _nothing(scratch: Path, processes: Sequence[dict[str, Any]], plan: RecordingWindow) -> str:
    if not (scratch / "started").exists():
        return "no Python process started with the recorder: run Python without -I, -E and -S"
    if not processes:
        return "PyTorch was not imported"
    if plan.by_time:
        return f"the program ended before second {plan.first:g} after the import of PyTorch; choose an earlier window"
    most = max(processes, key=lambda state: state["steps"])
    if not most["steps"]:
        return (
            "no step was seen (no optimizer of torch.optim stepped, no module was called); record by time: --seconds 5"
        )
    reached = f"the program ended after {most['steps']} {most['kind']}, but the window is {plan.text}"
    return f"the window was not reached: {reached}; choose earlier --steps"
