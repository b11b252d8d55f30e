"""A job on a real Dask scheduler with two worker processes on the loopback interface, one of which is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import etplus
import pytest
from etplus import Job
from etplus.jobs.batch import link_many
from job_files import Workers, killed_at, local_cluster, outputs, write_job

pytest.importorskip("distributed", reason="dask.distributed is not installed")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[Path, Workers]]:
    with local_cluster(tmp_path) as found:
        yield found


@pytest.mark.slow
def test_a_worker_is_killed_and_nothing_is_lost(tmp_path: Path, cluster: tuple[Path, Workers]) -> None:
    file, workers = cluster
    job, out = write_job(tmp_path / "job", 8), tmp_path / "out"
    with killed_at(workers[0], lambda: len(outputs(out)), 1) as done_at_the_kill:
        batch = link_many(job, out, engine="dask", scheduler=str(file))
    assert 1 <= done_at_the_kill[0] < 8 and workers[0].wait(10) != 0 and workers[1].poll() is None
    assert batch.complete
    local = link_many(job, tmp_path / "local", jobs=2)
    assert len(outputs(out)) == 8 and outputs(out) == outputs(tmp_path / "local")
    assert batch.report == local.report
    there, here = etplus.load(out), etplus.load(tmp_path / "local")
    assert isinstance(there, Job) and isinstance(here, Job)
    assert there.on(scheduler=str(file)).summary().kernels == here.summary().kernels
