"""Two jobs side by side: rank by rank what the comparison of its two traces says, and together the sums of these."""

from pathlib import Path

import etplus
import pytest
from etplus.trace.errors import UsageError
from made_jobs import Job, ddp, slow_rank
from support import refused

RANKS = 2


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A job as columns, and one of a rank more as ET+ files."""
    folder = tmp_path_factory.mktemp("jobs")
    for name, job, out in (("a", Job(ddp, RANKS), "a.etplus"), ("b", Job(ddp, RANKS + 1, of=slow_rank(1)), "b")):
        (folder / name).mkdir()
        job.write(folder / name)
        etplus.link_many(folder / name, folder / out, jobs=1)
    return folder / "a.etplus", folder / "b"


def test_jobs_that_cannot_be_compared_are_refused(jobs: tuple[Path, Path]) -> None:
    a, b = (etplus.load(path) for path in jobs)
    assert isinstance(a, etplus.Job) and isinstance(b, etplus.Job)
    with pytest.raises(UsageError, match=r"no rank occurs in both jobs: .* has 0-1, .* has 2"):
        etplus.diff(a, b.select([2]))
    for words in ([*jobs, jobs[0]], [*jobs, "--device-spec", "none.json"]):
        refused("diff", *words)
