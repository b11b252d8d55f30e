"""A job on a real Dask scheduler with two worker processes on the loopback interface, one of which is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from etplus import Job
from etplus.jobs.batch import link_many
from etplus.report.many_ranks import large_job_html
from job_files import outputs, slow_digest, write_job
from made_ranks import make_job

pytest.importorskip("distributed", reason="dask.distributed is not installed")

_QUICK = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "3s"}  # Dask asks a dead worker for its results for so long


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[Path, list[subprocess.Popen[bytes]]]]:
    """A scheduler's file, and the worker processes."""
    file, log = tmp_path / "scheduler.json", (tmp_path / "log").open("wb")

    def start(what: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", "--scheduler-file", str(file), *arguments]
        path = os.pathsep.join(sys.path)  # the workers have to find etplus
        environment = {**os.environ, **_QUICK, "PYTHONPATH": path}
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        stack.callback(process.wait, 20)
        stack.callback(process.kill)
        return process

    with ExitStack() as stack:
        start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        workers = [start("worker", "--no-nanny", "--nthreads", "1", "--no-dashboard") for _ in range(2)]
        until = time.monotonic() + 60
        while not file.exists() and time.monotonic() < until:
            time.sleep(0.02)
        yield file, workers
    log.close()


@pytest.mark.slow
def test_answers_over_ranks_are_the_same_with_a_worker_killed(
    tmp_path: Path, cluster: tuple[Path, list[subprocess.Popen[bytes]]]
) -> None:
    """Columns written by the cluster, the page and what each rank contributes, while a worker is killed."""
    file, workers = cluster
    make_job(tmp_path / "pairs", 12)
    link_many(tmp_path / "pairs", tmp_path / "dask.etplus", engine="dask", scheduler=str(file))
    link_many(tmp_path / "pairs", tmp_path / "local.etplus", jobs=1)
    there, here = (Job([tmp_path / f"{name}.etplus"]) for name in ("dask", "local"))
    there = there.on(scheduler=str(file))
    mine, other = there.summary(), here.summary()
    assert mine.stragglers == other.stragglers and mine.kernels == other.kernels and mine.spread == other.spread
    begun = tmp_path / "begun"
    begun.mkdir()
    killed = []

    def kill_one() -> None:
        until = time.monotonic() + 60
        while len([*begun.iterdir()]) < 3 and time.monotonic() < until:
            time.sleep(0.002)
        workers[0].kill()
        killed.append(len([*begun.iterdir()]))

    killer = threading.Thread(target=kill_one)
    killer.start()
    found = list(there.map(partial(slow_digest, folder=str(begun))))
    killer.join()
    assert found == list(here.map(partial(slow_digest, folder=str(begun))))
    assert 3 <= killed[0] < 12 and workers[0].wait(10) != 0 and workers[1].poll() is None
    assert large_job_html(there) == large_job_html(Job([tmp_path / "dask.etplus"]))


@pytest.mark.slow
def test_a_worker_is_killed_and_nothing_is_lost(
    tmp_path: Path, cluster: tuple[Path, list[subprocess.Popen[bytes]]]
) -> None:
    file, workers = cluster
    job, out = write_job(tmp_path / "job", 8), tmp_path / "out"
    done_at_the_kill = []

    def kill_one() -> None:
        until = time.monotonic() + 60
        while not outputs(out) and time.monotonic() < until:
            time.sleep(0.002)
        workers[0].kill()
        done_at_the_kill.append(len(outputs(out)))

    killer = threading.Thread(target=kill_one)
    killer.start()
    batch = link_many(job, out, engine="dask", scheduler=str(file))
    killer.join()
    assert 1 <= done_at_the_kill[0] < 8 and workers[0].wait(10) != 0 and workers[1].poll() is None
    assert batch.complete
    local = link_many(job, tmp_path / "local", jobs=2)
    assert len(outputs(out)) == 8 and outputs(out) == outputs(tmp_path / "local")
    assert batch.report == local.report
