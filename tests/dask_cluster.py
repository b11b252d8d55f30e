"""A real Dask scheduler with worker processes on the loopback interface, for tests and benchmarks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_QUICK = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "3s"}  # Dask asks a dead worker for its results for so long

Workers = list["subprocess.Popen[bytes]"]


@contextmanager
def local_cluster(folder: Path, workers: int = 2) -> Iterator[tuple[Path, Workers]]:
    """A scheduler's file in a folder, and its worker processes; all end with the block."""
    file, log = folder / "scheduler.json", (folder / "log").open("wb")

    def start(what: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", "--scheduler-file", str(file), *arguments]
        path = os.pathsep.join(sys.path)  # the workers have to find etplus
        environment = {**os.environ, **_QUICK, "PYTHONPATH": path}
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        stack.callback(process.wait, 20)
        stack.callback(process.kill)
        return process

    with log, ExitStack() as stack:
        start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        started = [start("worker", "--no-nanny", "--nthreads", "1", "--no-dashboard") for _ in range(workers)]
        until = time.monotonic() + 60
        while not file.exists() and time.monotonic() < until:
            time.sleep(0.02)
        yield file, started


@contextmanager
def killed_at(worker: subprocess.Popen[bytes], done: Callable[[], int], count: int) -> Iterator[list[int]]:
    """Kill a worker once so much is done; gives what was done then, when the block ends."""
    found: list[int] = []

    def kill() -> None:
        until = time.monotonic() + 600
        while done() < count and not ended.wait(0.002) and time.monotonic() < until:
            pass
        worker.kill()
        found.append(done())

    ended, killer = threading.Event(), threading.Thread(target=kill)
    killer.start()
    try:
        yield found
    finally:
        ended.set()
        killer.join()
