"""Two jobs side by side: rank by rank what the comparison of its two traces says, and together the sums of these."""

from pathlib import Path
from typing import Any

import etplus
import pytest
from etplus.analysis.job_diff import JobDifference
from etplus.trace.errors import UsageError
from made_jobs import Job, Rank, ddp
from support import call

RANKS = 2


class SlowRank(Rank):
    """Rank 1 computes more slowly."""

    def compute(self, name: str, ns: int, *sides: Any) -> None:
        super().compute(name, ns * (1 + self.rank), *sides)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A job as columns, and one of a rank more as ET+ files."""
    folder = tmp_path_factory.mktemp("jobs")
    for name, job, out in (("a", Job(ddp, RANKS), "a.etplus"), ("b", Job(ddp, RANKS + 1, of=SlowRank), "b")):
        (folder / name).mkdir()
        job.write(folder / name)
        etplus.link_many(folder / name, folder / out, jobs=1)
    return folder / "a.etplus", folder / "b"


@pytest.mark.parametrize(("total", "back"), [(False, False), (True, False), (False, True)])
def test_ranks_are_those_of_single_comparisons_and_sums_their_sums(
    jobs: tuple[Path, Path], total: bool, back: bool
) -> None:
    jobs = jobs[::-1] if back else jobs
    found = etplus.diff(*map(str, jobs), total=total)
    assert isinstance(found, JobDifference)
    assert (found.only_a, found.only_b) == (((RANKS,), ()) if back else ((), (RANKS,)))
    one, other = map(etplus.load, jobs)
    single = {rank: etplus.diff(one[rank], other[rank], total=total) for rank in range(RANKS)}  # type: ignore[index]
    assert found.per_iteration == (not total) == single[0].per_iteration
    for row in found.ranks:
        of = single[row.rank]
        assert (row.a_ns, row.b_ns, row.a_device_ns, row.b_device_ns) == pytest.approx(
            (of.latency_a, of.latency_b, of.total_a, of.total_b)
        )
    for name in ("ops", "kernels"):
        rows = {row.name: row for row in getattr(found, name)}
        own = {rank: {row.name: row for row in getattr(of, name)} for rank, of in single.items()}
        assert rows.keys() == {kernel for of in own.values() for kernel in of}
        for key, row in rows.items():
            changes = {rank: of[key].change_ns for rank, of in own.items() if key in of}
            assert row.change_ns == pytest.approx(sum(changes.values()), abs=1e-3)
            assert abs(row.rank_change_ns) == pytest.approx(max(map(abs, changes.values())))
            assert changes[row.rank] == pytest.approx(row.rank_change_ns)
            for side in ("a", "b"):
                counts = [getattr(of[key], side) for of in own.values() if key in of]
                expected = sum(of.count for of in counts if of is not None)
                assert getattr(getattr(row, side), "count", 0) == pytest.approx(expected)
    assert found.ranks == sorted(found.ranks, key=lambda row: (-abs(row.change_ns), row.rank))
    slowest = [max(of.latency_a for of in single.values()), max(of.latency_b for of in single.values())]
    assert [found.latency_a, found.latency_b] == slowest
    assert found.tables["ranks"].to_pandas()["change_ns"].tolist() == [row.change_ns for row in found.ranks]


def test_what_cannot_be_compared(jobs: tuple[Path, Path]) -> None:
    a, b = (etplus.load(path) for path in jobs)
    assert isinstance(a, etplus.Job) and isinstance(b, etplus.Job)
    with pytest.raises(UsageError, match=r"no rank occurs in both jobs: .* has 0-1, .* has 2"):
        etplus.diff(a, b.select([2]))
    for words in ([*jobs, jobs[0]], [*jobs, "--device-spec", "none.json"]):
        done = call("diff", *words)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
