"""Count the steps of the program around this code, and record a window of steps with both of PyTorch's observers.

The plan is a JSON object. `folder` is the folder for the output files. The window is a pair [first, last], given as
either `steps` or `seconds`. The optional `otherwise` is a pair of seconds. This window is recorded if no step has run
when it begins. Each process writes `PID.et.json` and `PID.kineto.json` (`PID.time.…` for the window `otherwise`), and
reports its progress in `PID.status.json`. The recorder never prints anything and never raises errors in the program."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .costs import UntracedSteps, measured_costs
from .fatal_signals import FatalSignals
from .observers import annotate, annotate_run, make_observer, make_profiler, profile_options, rank_of, without_notices
from .step_hooks import FORWARD, StepHooks

_LAUNCHERS = re.compile(r"(?:^|[/\\])(?:torchrun|accelerate|deepspeed)$|^torch\.distributed\.(?:run|launch)$")
TIME = "seconds"


class StepRecorder:
    def __init__(self, plan: dict[str, Any]) -> None:
        self._folder = Path(plan["folder"])
        self._by_time = "seconds" in plan
        self._first, self._last = plan["seconds" if self._by_time else "steps"]
        self._done = 0  # number of finished steps
        self._untraced = UntracedSteps(self._before_window)
        self._costs = ""
        self._kind = ""
        self._hooks = StepHooks(self._step_ended)
        self._thread: int | None = None  # the thread that is recorded; while recording, only its steps are counted
        self._profiler: Any = None
        self._step: Any = None  # the annotation that is open around the current step of the window
        self._observer: Any = None
        self._otherwise: list[float] | None = plan.get("otherwise")
        self._provisional = False  # True while the window `otherwise` is being recorded
        self._callbacks: list[Any] = []
        self._signals = FatalSignals(self._interrupted, self._lost)
        self._over = self._complete = False
        self._status: dict[str, Any] = {"state": "waiting", "reason": ""}

    def arm(self) -> None:
        """Register the hooks. If this is impossible, report why."""
        words = [word for word in sys.orig_argv[1:4] if not word.startswith("-")]
        self._status["launcher"] = "RANK" not in os.environ and any(map(_LAUNCHERS.search, words))
        with self._reporting():
            import torch

            self._status["torch"] = str(torch.__version__)
            if self._status["launcher"]:
                return
            from torch.optim import optimizer

            if not hasattr(torch.profiler, "ExecutionTraceObserver") or not hasattr(
                optimizer, "register_optimizer_step_post_hook"
            ):
                self._fail(f"PyTorch {torch.__version__} is too old; 2.0 or later is needed")
                return
            atexit.register(self._at_exit)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=self._in_child)
            if self._by_time:
                self._kind = TIME
                self._wait(self._first, self._begin_window)
            else:
                self._hooks.add()
                if self._otherwise is not None:
                    self._wait(self._otherwise[0], self._begin_otherwise)
            self._write()

    def _step_ended(self, kind: str) -> None:
        if kind == FORWARD and self._thread is None and not self._over:
            self._thread = threading.get_ident()
        with self._reporting():
            self._boundary(kind)

    def _boundary(self, kind: str) -> None:
        if self._over or (self._profiler is not None and threading.get_ident() != self._thread):
            return
        with self._signals.deferred():
            self._step_over(kind)

    @property
    def _before_window(self) -> int:
        return max(int(self._first) - 1, 1)

    def _step_over(self, kind: str) -> None:
        import torch

        if self._provisional:  # a step has run, so record by steps instead
            self._end_provisional()
        if kind != self._kind:
            self._kind, self._done = kind, 0
            self._untraced = UntracedSteps(self._before_window)
        self._done += 1
        if self._profiler is None:
            self._untraced.step_over(torch, self._done)
        if self._profiler is not None:
            self._end_annotation()
            with without_notices(self._folder):
                self._profiler.step()
            if self._done == self._first:
                self._mark()
            if self._done > self._last:
                self._end()
            elif self._done >= self._first:
                self._begin_annotation()
        elif self._done >= self._before_window:
            self._begin()
        elif self._done == 1:
            self._write()

    def _begin_window(self) -> None:
        if self._profiler is None and not self._over:
            with self._reporting():
                self._begin()
                if self._profiler is not None:
                    self._wait(self._last - self._first, self._end_window)

    def _end_window(self) -> None:
        if self._profiler is not None and not self._over:
            with self._reporting(), self._signals.deferred():
                self._end()

    def _begin_otherwise(self) -> None:
        import torch

        if self._over or self._done or self._profiler is not None or torch.utils.data.get_worker_info() is not None:
            return
        assert self._otherwise is not None
        self._provisional = True
        with self._reporting():
            self._begin()
            self._wait(self._otherwise[1] - self._otherwise[0], self._end_otherwise)

    def _end_otherwise(self) -> None:
        if self._provisional:
            with self._reporting(), self._signals.deferred():
                self._end_provisional()

    def _end_provisional(self) -> None:
        try:
            self._stop()
            self._status["otherwise"] = self._complete
        finally:
            self._provisional = self._complete = False
            self._thread = None
            self._status |= {"state": "waiting", "marked": False}
            self._write()

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        def call_back(_argument: Any) -> int:
            then()
            return 0

        call = _CALLBACK(call_back)
        self._callbacks.append(call)  # the callback must stay alive until it is called

        def later() -> None:
            time.sleep(seconds)
            ctypes.pythonapi.Py_AddPendingCall(call, None)

        threading.Thread(target=later, daemon=True, name="etplus-record").start()

    def _begin(self) -> None:
        import torch

        self._status["rank"] = rank = rank_of(torch)
        by_time = self._by_time or self._provisional
        try:
            if not self._provisional:
                Path(self._folder, f"rank-{rank}.claim").touch(exist_ok=False)
        except FileExistsError:
            self._fail(f"another process has recorded as rank {rank}")
            return
        if torch.autograd._profiler_enabled():
            self._fail("the program itself was profiling when the window began")
            return
        self._thread = threading.get_ident()
        with contextlib.suppress(Exception), without_notices(self._folder):  # recording works even without the costs
            self._costs = measured_costs(torch, self._path("costs"))
        self._observer = make_observer(torch, self._path("et"))
        if self._observer is None:
            self._fail("the program itself records an Execution Trace")
            return
        options: dict[str, Any] = {"record_shapes": True, "with_stack": True, "on_trace_ready": self._window_over}
        options |= profile_options(torch)
        if not by_time:
            done, first, last, action = self._done, self._first, self._last, torch.profiler.ProfilerAction

            def schedule(number: int) -> Any:
                step = number if number >= done else done  # when it is created, the profiler already asks for step 0
                if step < first:
                    return action.WARMUP
                return action.RECORD if step < last else action.RECORD_AND_SAVE if step == last else action.NONE

            options["schedule"] = schedule
        self._profiler = make_profiler(torch, self._observer, options)
        if not by_time:
            self._profiler.step_num = self._done
            self._profiler.record_steps = False  # the annotation would include the recorder's work between steps
        self._signals.watch()
        with self._signals.deferred(), without_notices(self._folder):
            self._profiler.start()
        self._status["state"] = "recording"
        self._write()
        if by_time or self._done >= self._first:
            self._mark()
        if not by_time and self._done >= self._first:
            self._begin_annotation()

    def _begin_annotation(self) -> None:
        import torch

        self._step = torch.profiler.record_function(f"ProfilerStep#{self._done}")
        self._step.__enter__()

    def _end_annotation(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(None, None, None)

    def _mark(self) -> None:
        import torch

        annotate_run(torch, self._status["rank"])
        for text in filter(None, (self._untraced.annotation(), self._costs)):
            annotate(torch, text)
        self._status["marked"] = True

    def _window_over(self, _profiler: Any) -> None:
        self._complete = self._status.get("marked", False)

    def _end(self) -> None:
        self._over = True
        try:
            self._stop()
            if self._complete:
                self._status["state"] = "recorded"
            elif self._status["state"] == "recording":  # the program ended during the warmup of the profiler
                self._status["state"] = "waiting"
        finally:
            self._hooks.drop()
            self._write()

    def _stop(self) -> None:
        profiler, self._profiler = self._profiler, None
        observer, self._observer = self._observer, None
        try:
            self._end_annotation()
            with without_notices(self._folder):
                if profiler is not None:
                    profiler.stop()
                if observer is not None:
                    observer.unregister_callback()  # this completes the file
            if self._complete:
                profiler.export_chrome_trace(str(self._path("kineto")))
        finally:
            self._signals.unwatch()

    def _at_exit(self) -> None:
        with self._reporting(), self._signals.deferred():
            self._end_early()

    def _in_child(self) -> None:
        self._status.pop("otherwise", None)  # a fork inherits this state from its parent
        if self._profiler is None:
            return
        self._over = True
        self._profiler = self._observer = None  # `forks` has already stopped them
        self._hooks.drop()

    def _interrupted(self, number: int) -> None:
        with self._reporting():
            self._status["signal"] = number
            self._end_early()

    def _lost(self, number: int) -> None:
        with contextlib.suppress(Exception):
            self._status["signal"] = number
            self._write()

    def _end_early(self) -> None:
        if self._over:
            return
        if self._provisional:
            self._end_provisional()
        self._status["cut"] = self._profiler is not None
        self._end()

    def _path(self, what: str) -> Path:
        time = ".time" if self._provisional and what in ("et", "kineto") else ""
        return self._folder / f"{os.getpid()}{time}.{what}.json"

    def _fail(self, reason: str) -> None:
        if self._provisional:  # ignore a failure in the window `otherwise`
            self._end_provisional()
            return
        self._status |= {"state": "failed", "reason": reason}
        self._end()

    def _write(self) -> None:
        self._status |= {"kind": self._kind, "steps": self._done}
        temporary = self._path("part")
        temporary.write_text(json.dumps(self._status))
        temporary.replace(self._path("status"))

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            with contextlib.suppress(Exception):
                self._fail(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}")


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
