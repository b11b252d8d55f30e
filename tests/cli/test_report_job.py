"""`etplus report` with several files: ranks of one job, or a refusal that says why they are not."""

import gzip
from pathlib import Path
from typing import Any

import pytest
from etplus.cli import report as module
from made_traces import kernel, kineto_of, op
from pages import data_of
from support import Document, call, refused, succeeds

HOURS_US = 7_200_000_000


def trace(folder: Path, name: str, rank: int | None = None, size: int = 2, *, at: float = 0) -> Path:
    """A Kineto trace of one op and one kernel that begins at a time (µs); `rank` None: nothing recorded of a job."""
    info: Document = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": size, "backend": "nccl"}}
    data = kineto_of([op("aten::mm", at, 50), kernel("gemm", 0, at + 20, 10)], **info)
    (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return folder / name


def refused_page(folder: Path, *files: Path) -> str:
    """The one line of a refusal."""
    message = refused("report", *files, "-o", folder / "page.html")
    assert "give only the traces of one job" in message and not (folder / "page.html").exists()
    return message


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ([("a.json", 0), ("a.json", 0)], "both have rank 0"), ([("b.json",), ("b.json",)], "b.json and "),
        ([("a.json",), ("copy.json.gz",)], "are the same recording"),
        ([("a.json", 1), ("b.json", 1)], "both have rank 1"),
        ([("b.json", 1, 4), ("c.json", 2, 8)], "a job of 4 ranks, a job of 8 ranks"),
        ([("a.json", 0, 4), ("b.json", 1, 4), ("c.json", 2, 8)],
         "c.json is of a job of 8 ranks, the others of a job of 4 ranks"),
        ([("0.json", 0, 3), ("1.json", 1, 3), ("x.json",)], "x.json is of no distributed job"),
        ([("0.json", 0), ("1.json", 1), ("2.json", 2)], "3 traces of a job of 2 ranks"),
    ],
)  # fmt: skip
def test_files_that_are_not_ranks_of_one_job_are_refused(made: list[Any], message: str, tmp_path: Path) -> None:
    files = [trace(tmp_path, *one, at=one[1] if len(one) > 1 else 2 * (one[0] == "x.json")) for one in made]
    assert message in refused_page(tmp_path, *files)
    hours = [trace(tmp_path, f"{rank}.json", rank, at=HOURS_US * rank) for rank in range(2)]
    assert "2 hours" in refused_page(tmp_path, *hours)


def test_ranks_are_in_order_and_ranks_that_are_not_recorded_are_named(tmp_path: Path) -> None:
    for made, labels in (
        ([("1.json", 1), ("0.json", 0)], ["0", "1"]),
        ([("a.json",), ("b.json",)], ["a.json", "b.json"]),
    ):
        files = [trace(tmp_path, *one, at=place) for place, one in enumerate(made)]
        done = call("report", *files, "-o", tmp_path / "page.html")
        data = data_of((tmp_path / "page.html").read_bytes())
        assert done.returncode == 0 and [rank["label"] for rank in data["ranks"]] == labels
        assert len(data["warnings"]) == (labels[0] == "a.json")
        assert all(
            "do not record their rank" in one and f"warning: {one}" in done.stderr.decode() for one in data["warnings"]
        )


def test_a_large_job_has_a_page_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [trace(tmp_path, f"{rank}.json", rank) for rank in range(2)]
    for most, is_large in ((2, False), (1, True)):
        monkeypatch.setattr(module, "MOST_IN_FULL", most)
        succeeds("report", *files, "--title", "T", "-o", tmp_path / "page.html")
        data = data_of((tmp_path / "page.html").read_bytes())
        assert ("many" in data) == is_large and data["title"] == "T"
    done = call("report", *files, "--graph-capture", files[0], "-o", tmp_path / "page.html")
    assert done.returncode == 2 and b"--graph-capture works for at most 1 ranks" in done.stderr
