"""A job on a real Dask scheduler with two worker processes on the loopback interface, one of which is killed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from dask_cluster import Workers, killed_at, local_cluster
from etplus import Job
from etplus.jobs.batch import link_many
from etplus.report.job_page import large_job_html
from job_files import outputs, slow_digest, write_job
from made_ranks import make_job

pytest.importorskip("distributed", reason="dask.distributed is not installed")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[Path, Workers]]:
    with local_cluster(tmp_path) as found:
        yield found


@pytest.mark.slow
def test_answers_over_ranks_are_the_same_with_a_worker_killed(tmp_path: Path, cluster: tuple[Path, Workers]) -> None:
    """Columns written by the cluster, the page and what each rank contributes, while a worker is killed."""
    file, workers = cluster
    make_job(tmp_path / "pairs", 12)
    link_many(tmp_path / "pairs", tmp_path / "dask.etplus", engine="dask", scheduler=str(file))
    link_many(tmp_path / "pairs", tmp_path / "local.etplus", jobs=1)
    columns = [
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}
        for folder in (tmp_path / "dask.etplus", tmp_path / "local.etplus")
    ]
    assert columns[0] == columns[1] and len(columns[0]) > 12 * 10
    there, here = (Job([tmp_path / f"{name}.etplus"]) for name in ("dask", "local"))
    there = there.on(scheduler=str(file))
    mine, other = there.summary(), here.summary()
    assert mine.stragglers == other.stragglers and mine.kernels == other.kernels and mine.spread == other.spread
    begun = tmp_path / "begun"
    begun.mkdir()
    with killed_at(workers[0], lambda: len([*begun.iterdir()]), 3) as killed:
        found = list(there.map(partial(slow_digest, folder=str(begun))))
    assert found == list(here.map(partial(slow_digest, folder=str(begun))))
    assert 3 <= killed[0] < 12 and workers[0].wait(10) != 0 and workers[1].poll() is None
    assert large_job_html(there) == large_job_html(Job([tmp_path / "dask.etplus"]))


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
