"""A job on a real Dask scheduler with two worker processes on the loopback interface, one of which is killed."""

from pathlib import Path

import pytest
from etplus.jobs.batch import link_many
from job_files import killed_at, local_cluster, outputs, write_job

pytest.importorskip("distributed", reason="dask.distributed is not installed")


@pytest.mark.slow
def test_a_worker_is_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    job, out = write_job(tmp_path / "job", 8), tmp_path / "out"
    with local_cluster(tmp_path) as (file, workers):
        with killed_at(workers[0], lambda: len(outputs(out)), 1) as done_at_the_kill:
            batch = link_many(job, out, engine="dask", scheduler=str(file))
        assert 1 <= done_at_the_kill[0] < 8 and workers[0].wait(10) != 0 and workers[1].poll() is None
    local = link_many(job, tmp_path / "local", jobs=2)
    assert batch.complete and batch.report == local.report
    assert len(outputs(out)) == 8 and outputs(out) == outputs(tmp_path / "local")
