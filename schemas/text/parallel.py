"""Run independent pieces of work on several processes; results are in order, whatever the number of processes."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from concurrent.futures import wait as futures_wait
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from contextvars import ContextVar
from copy import copy
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import FrameType
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

_PROCESSES: ContextVar[int] = ContextVar("processes", default=1)
_AHEAD = 2  # Each worker may be this many pieces ahead of the results.
_LOOK_S = 2  # If a result takes longer than this many seconds, the parent looks for killed workers.
_SAFE_PATH = "PYTHONSAFEPATH"
_ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def processes(count: int) -> Iterator[None]:
    """Let `parallel_map` use this many processes inside the block; outside, it uses a single process."""
    before = _PROCESSES.set(count)
    try:
        yield
    finally:
        _PROCESSES.reset(before)


def parallel_map(
    work: Callable[[int], T], count: int, *, most: int = sys.maxsize
) -> AbstractContextManager[Iterator[T]]:
    """Yield an iterator over `work(0)` to `work(count − 1)`. The results do not depend on the number of processes.

    With n processes, this process computes every n-th piece, and forked workers compute the others. If forking fails,
    this process computes all pieces. If a worker is killed, this process computes the worker's piece. Results and
    errors are pickled, but `work` is not. Workers end with the block.
    """
    return closing(_results(work, count, min(_PROCESSES.get(), most, count)))


def may_fork() -> bool:
    return sys.platform == "linux" and threading.active_count() == 1


@contextmanager
def local_pool(
    workers: int, setup: Callable[..., None] | None = None, *arguments: Any
) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of processes that ends with the block. Each process first calls `setup` with the arguments.

    The workers also end if the block raises an error or this process ends. Running tasks get a `SystemExit`, so they
    can clean up. Raise OSError or NotImplementedError if no process can start.
    """
    forks = may_fork()
    context: Any = copy(multiprocessing.get_context("fork" if forks else "spawn"))
    start = context.Process if forks else _Spawned
    context.Process = lambda *, target, args: start(target=_without_traceback, args=(target, args))
    ended, alive = context.Pipe(duplex=False)
    with ended, alive:
        with _safe_path():  # Creating the pool may start Python's resource tracker process.
            pool = ProcessPoolExecutor(workers, context, _set_up, (ended, alive, setup, arguments))
        try:
            with _signals_held_back():
                pool.submit(int)  # Submitting forks all processes before the pool's thread starts.
            if forks:  # While the writer is open, the pool waits forever if a worker ends in the middle of a result.
                with suppress(AttributeError):  # Python does not document this attribute.
                    pool._result_queue._writer.close()  # type: ignore[attr-defined]
            yield pool
        except BaseException:
            alive.close()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


class _Spawned(SpawnProcess):
    def start(self) -> None:
        with _safe_path():
            super().start()


@contextmanager
def _safe_path() -> Iterator[None]:
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before


def _without_traceback(serve: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """End a worker without a traceback if the pool's queue fails, for example because a worker was killed."""
    try:
        serve(*arguments)
    except Exception:
        sys.exit(1)


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """Block signals during a fork, because exceptions that signal handlers raise there would be lost."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _set_up(
    ended: Connection, alive: Connection, setup: Callable[..., None] | None, arguments: tuple[Any, ...]
) -> None:
    """Set up a worker so that it ends when the parent ends or closes its end of the pipe."""

    def watch() -> None:
        wait([ended])
        os.kill(os.getpid(), signal.SIGTERM)

    alive.close()
    if setup is not None:
        setup(*arguments)
    try:
        for number in _ENDING:  # Ctrl-C reaches all processes in a terminal, but only the parent reports it.
            signal.signal(number, _end)
        threading.Thread(target=watch, daemon=True).start()  # Keep signals blocked until the thread has started.
        if hasattr(signal, "SIGALRM"):
            signal.signal(signal.SIGALRM, _end)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    except SystemExit:  # The pool would log the SystemExit.
        os._exit(128 + signal.SIGTERM)


def _end(_signal: int, _frame: FrameType | None) -> NoReturn:
    """End the task and remove its files. The pool treats errors as results, so an alarm ends the worker in a second."""
    if hasattr(signal, "alarm"):
        signal.alarm(1)
    raise SystemExit(128 + signal.SIGTERM)


def _results(work: Callable[[int], T], count: int, share: int) -> Generator[T, None, None]:
    results: Iterator[T] = map(partial(_do_here, work), range(count))
    with ExitStack() as stack:
        if share > 1 and may_fork():
            with suppress(OSError, NotImplementedError):  # Without workers, this process does all the work.
                pool = stack.enter_context(local_pool(share - 1, _assign, work))
                results = _shared_results(pool, work, count, share)
        yield from results


def _shared_results(pool: ProcessPoolExecutor, work: Callable[[int], T], count: int, share: int) -> Iterator[T]:
    pieces = (i for i in range(count) if i % share)
    submitted: deque[Future[bytes] | None] = deque()
    for i in range(count):
        while len(submitted) < _AHEAD * (share - 1) and (piece := next(pieces, None)) is not None:
            try:
                submitted.append(pool.submit(_do_in_worker, piece))
            except BrokenExecutor:  # A worker was killed earlier.
                submitted.append(None)
        if i % share == 0:
            yield _do_here(work, i)
            continue
        task = submitted.popleft()
        if task is None or _failure(task, pool) is not None:
            yield _do_here(work, i)
            continue
        succeeded, result = pickle.loads(task.result())
        if not succeeded:
            raise result
        yield result


def _failure(task: Future[bytes], pool: ProcessPoolExecutor) -> BaseException | None:
    """Wait for a task. A worker that is killed while it sends a result blocks all other workers, so kill them."""
    while not futures_wait([task], _LOOK_S).done:
        workers = [*(getattr(pool, "_processes", None) or {}).values()]
        if wait([worker.sentinel for worker in workers], 0):
            for worker in workers:
                worker.kill()
    return task.exception()


def _do_here(work: Callable[[int], T], i: int) -> T:
    with processes(1):  # This avoids nested processes.
        return work(i)


# This worker runs this function. Workers inherit the function by forking, because it cannot be pickled.
_in_worker: Callable[[int], Any]


def _assign(work: Callable[[int], Any]) -> None:
    global _in_worker
    _in_worker = work


def _do_in_worker(i: int) -> bytes:
    """Return the pickled result. If the pool pickled the result, it would print errors instead of raising them."""
    try:
        result = True, _do_here(_in_worker, i)
    except Exception as error:
        result = False, error
    return pickle.dumps(result, 5)
