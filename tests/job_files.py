"""Files of jobs for the tests, tasks for worker processes, and a real Dask scheduler on the loopback interface."""

import gzip
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support import fixture_pair, plain, read_json, shared_job

_INFO = re.compile(rb'("distributedInfo":\{"backend":"nccl","rank":)\d+(,"world_size":)\d+(.*?"ranks":)\[[0-9, ]*\]')


def write_job(folder: Path, ranks: int) -> Path:
    """Write `rank-N.et.json.gz` and `rank-N.kineto.json.gz`, alike but for the rank that the latter tell."""
    folder.mkdir(parents=True, exist_ok=True)
    et, kineto = map(plain, fixture_pair("pairs/gpu_shaped_from_cpu"))
    for rank in range(ranks):
        (folder / f"rank-{rank}.et.json.gz").write_bytes(gzip.compress(et, 1, mtime=0))
        told = _INFO.sub(rb"\g<1>%d\g<2>%d\g<3>%b" % (rank, ranks, str([*range(ranks)]).encode()), kineto)
        (folder / f"rank-{rank}.kineto.json.gz").write_bytes(gzip.compress(told, 1, mtime=0))
    return folder


def outputs(folder: Path) -> dict[str, bytes]:
    """The ET+ files in a folder: name to bytes."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("rank_*.etplus.json.gz"))}


def die_at(task: tuple[int, str]) -> int:
    """Square the number; 3 kills its process, but only once if there is a file to remember that by; 5 always."""
    number, memory = task
    if number == 5 or (number == 3 and not Path(memory).exists()):
        Path(memory).write_text("")
        os._exit(9)
    return number * number


COLLECTIVE = "gloo:"
"""How names of the nodes begin that are collectives of the host."""


def cut_before(et: Path, ordinal: int) -> bytes:
    """An ET of an observer that was stopped before a collective ended: nodes are in the order of their ends."""
    document = read_json(et)
    nodes = document["nodes"]
    at = [i for i, node in enumerate(nodes) if node["name"].startswith(COLLECTIVE)][ordinal]
    rest = [node for node in nodes[at:] if node["name"].startswith("[pytorch|profiler|execution_trace|")]
    return json.dumps({**document, "nodes": nodes[:at] + rest}).encode()


def write_cut_job(folder: Path, job: str, rank: int, ordinal: int = -1) -> Path:
    """The files of a job in a folder, the ET of one rank cut."""
    pairs = shared_job(f"parallel/{job}")
    folder.mkdir()
    for files in pairs:
        for file in files:
            (folder / file.name).symlink_to(file.resolve())
    cut = folder / f"rank{rank}.et.json.gz"
    text = cut_before(cut, ordinal)
    cut.unlink()
    cut.write_bytes(gzip.compress(text, 1, mtime=0))
    return folder


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
