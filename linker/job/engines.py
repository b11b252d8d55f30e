"""Running one function on many tasks side by side: on processes of this machine, on a Dask cluster, on any executor."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeVar

from ...trace.errors import UsageError

__all__ = ["Engine", "dask_cluster", "given_executor", "local_processes", "run_all"]

Task = TypeVar("Task")
Result = TypeVar("Result")

_STOPPED = (BrokenExecutor, SystemExit, KeyboardInterrupt)
"""What a task ends with when its process is killed, or told to end."""


@dataclass(frozen=True)
class Engine:
    """Where tasks run.

    Attributes:
        open: makes an executor for so many tasks at once; its block ends when all have ended.
        window: how many tasks to hand over at a time, None for all.
        reopen: whether a new executor can be made in place of a broken one.
    """

    open: Callable[[int], AbstractContextManager[Executor]]
    window: int | None = None
    reopen: bool = False


def local_processes(count: int) -> Engine:
    """Processes of this machine.

    They are forked where that is sound (on Linux, while no other thread runs), else started anew.
    """

    @contextmanager
    def start(at_once: int) -> Iterator[Executor]:
        fork = sys.platform == "linux" and threading.active_count() == 1
        context = multiprocessing.get_context("fork" if fork else "spawn")
        executor = ProcessPoolExecutor(at_once, context, _end_with_parent)
        try:
            yield executor
        finally:
            executor.shutdown(wait=True, cancel_futures=True)

    return Engine(start, window=count, reopen=True)


def _end_with_parent() -> None:
    """Have this process end when it is told to, or when the one that started it is gone, killed perhaps: else it would
    wait for work for ever."""
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGTERM, _end)
        signal.signal(signal.SIGALRM, _end)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def _end(_signal: int, _frame: FrameType | None) -> NoReturn:
    """End the task, so that its files are removed, and soon after, as the executor takes that for the task's result,
    the wait for another."""
    signal.alarm(1)
    raise SystemExit(128 + signal.SIGTERM)


def given_executor(executor: Executor) -> Engine:
    """Any `concurrent.futures.Executor`; it is left open."""
    return Engine(lambda _: nullcontext(executor))


def dask_cluster(scheduler: str) -> Engine:
    """A Dask cluster that runs already; Dask itself gives the tasks of a worker that died to others.

    Args:
        scheduler: its address, "tcp://host:8786", or the path of its scheduler file.

    Raises:
        UsageError: `distributed` is not installed, or there is no such file. (On opening: nothing answers.)
    """
    try:
        client_of: Any = importlib.import_module("distributed").Client
    except ImportError:
        raise UsageError('the engine "dask" needs distributed; try: pip install "etplus[batch]"') from None

    if "://" not in scheduler and not Path(scheduler).is_file():  # Dask would wait for it
        raise UsageError(f"{scheduler}: no such file; start a scheduler: dask scheduler --scheduler-file {scheduler}")

    @contextmanager
    def connect(_: int) -> Iterator[Executor]:
        try:
            client = client_of(scheduler) if "://" in scheduler else client_of(scheduler_file=scheduler)
        except (OSError, ValueError, TimeoutError) as error:
            raise UsageError(f"no Dask scheduler answers at {scheduler} ({error}); start one: dask scheduler") from None
        with client:
            yield client.get_executor(pure=False)

    return Engine(connect)


def run_all(
    engine: Engine, function: Callable[[Task], Result], tasks: Sequence[Task]
) -> Iterator[tuple[Task, Result | BaseException]]:
    """Run the function on each task; gives tasks and results, or what was raised, as they come.

    When a process dies, all that ran at that moment are suspected: each runs again, alone, after all others. One that
    dies then, too, is given with its `BrokenExecutor`.
    """
    waiting, suspects = deque(tasks), deque[Task]()
    while waiting:
        with engine.open(min(engine.window or len(waiting), len(waiting))) as executor:
            for task, result in _run(engine, executor, function, waiting):
                if isinstance(result, _STOPPED) and engine.reopen:
                    suspects.append(task)
                else:
                    yield task, result
    for task in suspects:
        with engine.open(1) as executor:
            yield from _run(engine, executor, function, deque([task]))


def _run(
    engine: Engine, executor: Executor, function: Callable[[Task], Result], waiting: deque[Task]
) -> Iterator[tuple[Task, Result | BaseException]]:
    """Run tasks until there are none, or the executor breaks: what did not begin is waiting then."""
    running: dict[Future[Result], Task] = {}
    broken = False
    while running or (waiting and not broken):
        while waiting and not broken and (engine.window is None or len(running) < engine.window):
            try:
                running[executor.submit(function, waiting[0])] = waiting[0]
                waiting.popleft()
            except BrokenExecutor as error:
                broken = True
                if not (running or engine.reopen):
                    yield waiting.popleft(), error
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            task, raised = running.pop(future), _raised(future)
            broken = broken or isinstance(raised, BrokenExecutor)
            yield task, future.result() if raised is None else raised


def _raised(future: Future[Result]) -> BaseException | None:
    try:
        return future.exception()
    except BaseException as error:  # cancelled, as when the scheduler is gone
        return error
