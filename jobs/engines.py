"""Run the tasks of a job in local processes, on a Dask cluster, or in any other executor."""

from __future__ import annotations

import importlib
import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ..schemas.text.files import progress_bar
from ..schemas.text.parallel import local_pool
from ..trace.errors import EtplusError, UsageError

_LOG = logging.getLogger("etplus")

ENGINES = ("processes", "dask")
Task = TypeVar("Task")
Result = TypeVar("Result")

# A task raises one of these exceptions if its process was killed or terminated.
_STOPPED = (BrokenExecutor, SystemExit, KeyboardInterrupt)


@dataclass(frozen=True)
class Engine:
    # Creates an executor that runs the given number of tasks in parallel. Its `with` block waits for all tasks.
    open: Callable[[int], AbstractContextManager[Executor]]
    window: int | None = None  # maximum number of submitted tasks; None submits all tasks at once
    reopen: bool = False  # True if a new executor can replace a broken one


def dask_cluster(scheduler: str) -> Engine:
    """Return an engine that runs on a Dask cluster. Dask reassigns the tasks of a dead worker. `scheduler` is an
    address ("tcp://host:8786") or the path of a scheduler file. Raise UsageError if `distributed` is not installed, if
    the file does not exist, or (when the engine is opened) if no scheduler answers."""
    try:
        client_of: Any = importlib.import_module("distributed").Client
    except ImportError:
        raise UsageError('the engine "dask" needs distributed; try: pip install "etplus[batch]"') from None

    if "://" not in scheduler and not Path(scheduler).is_file():  # Dask would wait until the file exists
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


def engine_of(engine: str | Executor, jobs: int | None, scheduler: str | None) -> Engine:
    if isinstance(engine, Executor):
        return Engine(lambda _: nullcontext(engine))  # leave the user's executor open
    if engine not in ENGINES:
        raise UsageError(f"unknown engine {engine!r}; one of: {', '.join(ENGINES)}")
    if (engine == "dask") != (scheduler is not None):
        raise UsageError('a scheduler requires engine="dask": engine="dask", scheduler="tcp://host:8786"')
    if scheduler is not None:
        return dask_cluster(scheduler)
    if jobs is not None and jobs < 1:
        raise UsageError(f"invalid number of processes: {jobs}; use 1 or more")
    return Engine(local_pool, window=jobs or os.cpu_count() or 1, reopen=True)


def run_all(
    engine: Engine, function: Callable[[Task], Result], tasks: Sequence[Task]
) -> Iterator[tuple[Task, Result | BaseException]]:
    """Run the function on each task. Yield each task with its result or exception when it finishes. If a process dies,
    all tasks that were running are repeated after all other tasks, one at a time. If a task kills its process again,
    it is yielded with its `BrokenExecutor`."""
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
    running: dict[Future[Result], Task] = {}
    broken = False
    while running or (waiting and not broken):
        while waiting and not broken and (engine.window is None or len(running) < engine.window):
            try:
                running[executor.submit(function, waiting[0])] = waiting[0]
                waiting.popleft()
            except BrokenExecutor as error:
                broken = True
                if not running:
                    yield waiting.popleft(), error
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            task, raised = running.pop(future), _raised(future)
            broken = broken or isinstance(raised, BrokenExecutor)
            yield task, future.result() if raised is None else raised


def _raised(future: Future[Result]) -> BaseException | None:
    try:
        return future.exception()
    except BaseException as error:  # the task was canceled, for example because the scheduler has disappeared
        return error


def with_progress(results: Iterator[Any], total: int, label: str, progress: bool) -> Iterator[Any]:
    """Yield the results and show a progress bar. Raise a `UsageError` immediately, because it affects all ranks."""
    with progress_bar(total, label, progress, unit="rank") as bar:
        for task, result in results:
            if isinstance(result, UsageError):
                raise result
            if isinstance(result, BaseException):
                _LOG.debug("rank failed", exc_info=result)
            yield task, result
            bar.update()


def failure_reason(error: BaseException) -> str:
    if isinstance(error, EtplusError):
        return str(error)
    if isinstance(error, (BrokenExecutor, SystemExit, KeyboardInterrupt)):
        return "its process was killed twice, perhaps for lack of memory; run again with fewer --jobs"
    if isinstance(error, MemoryError):
        return "there is not enough memory; run again with fewer --jobs"
    return f"{type(error).__name__}: {error}"
