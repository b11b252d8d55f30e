"""`etplus report` with several files: ranks of one job, or a refusal that says why they are not."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from support import Document, call, kineto_document, shared_trace

HOUR_US = 3_600_000_000
DATA = re.compile(rb'<script id="report" type="application/json">(.*?)</script>', re.DOTALL)


def trace(folder: Path, name: str, rank: int | None = None, size: int = 2, *, at: float = 0, **header: Any) -> Path:
    """A Kineto trace of one op and one kernel that begins at a time (µs); `rank` None: nothing recorded of a job."""
    info: Document = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": size, "backend": "nccl"}}
    events: list[Document] = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": at, "dur": 50, "args": {}},
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": at + 20, "dur": 10, "args": {"stream": 7, "device": 0}},
    ]
    path = folder / name
    path.write_bytes(orjson.dumps(kineto_document(events, **info, **header)))
    return path


def report(folder: Path, *files: Path) -> tuple[int, str, Path]:
    page = folder / "page.html"
    done = call("report", *files, "-o", page)
    return done.returncode, done.stderr.decode(), page


def refused(folder: Path, *files: Path) -> str:
    """The one line of a refusal."""
    status, message, page = report(folder, *files)
    assert status == 2 and message.count("\n") == 1 and not page.exists(), message
    assert "give only the traces of one job" in message
    return message


def data_of(page: Path) -> Document:
    found: Document = orjson.loads(DATA.findall(page.read_bytes())[0])
    return found


def test_ranks_of_one_job(tmp_path: Path) -> None:
    files = [trace(tmp_path, f"{rank}.json", rank, at=rank) for rank in (1, 0)]
    status, message, page = report(tmp_path, *files)
    assert status == 0 and "warning" not in message
    data = data_of(page)
    assert [rank["label"] for rank in data["ranks"]] == ["0", "1"] and data["warnings"] == []


def test_the_same_file_twice(tmp_path: Path) -> None:
    file = trace(tmp_path, "a.json", 0)
    assert "both have rank 0" in refused(tmp_path, file, file)
    single = trace(tmp_path, "b.json")
    assert "b.json and " in refused(tmp_path, single, single)


def test_a_copy_under_another_name(tmp_path: Path) -> None:
    first = trace(tmp_path, "a.json")
    copy = tmp_path / "copy.json.gz"
    copy.write_bytes(gzip.compress(first.read_bytes()))
    assert "are the same recording" in refused(tmp_path, first, copy)


def test_one_rank_twice(tmp_path: Path) -> None:
    message = refused(tmp_path, trace(tmp_path, "a.json", 1), trace(tmp_path, "b.json", 1, at=5))
    assert "a.json" in message and "b.json" in message and "both have rank 1" in message


def test_jobs_of_different_sizes(tmp_path: Path) -> None:
    a, b, c = (trace(tmp_path, f"{rank}.json", rank, 4 if rank < 2 else 8, at=rank) for rank in range(3))
    assert "a job of 4 ranks, a job of 8 ranks" in refused(tmp_path, b, c)
    assert "2.json is of a job of 8 ranks, the others of a job of 4 ranks" in refused(tmp_path, a, b, c)


def test_a_trace_of_no_job_among_ranks(tmp_path: Path) -> None:
    files = [trace(tmp_path, "0.json", 0, 3), trace(tmp_path, "1.json", 1, 3, at=1), trace(tmp_path, "x.json", at=2)]
    assert "x.json is of no distributed job" in refused(tmp_path, *files)


@pytest.mark.parametrize("count", [2, 3])
def test_recordings_of_different_hours(tmp_path: Path, count: int) -> None:
    files = [trace(tmp_path, f"{rank}.json", rank, 3, at=2 * HOUR_US if rank == 1 else rank) for rank in range(count)]
    assert "2 hours" in refused(tmp_path, *files)


def test_more_files_than_ranks(tmp_path: Path) -> None:
    files = [trace(tmp_path, f"{rank}.json", rank, 2, at=rank) for rank in range(3)]
    assert "3 traces of a job of 2 ranks" in refused(tmp_path, *files)


def test_ranks_that_are_not_recorded_are_named(tmp_path: Path) -> None:
    """Old traces have no distributedInfo: shown by their names, with a warning on the page and on standard error."""
    files = [trace(tmp_path, name, at=at) for at, name in enumerate(("a.json", "b.json"))]
    status, message, page = report(tmp_path, *files)
    data = data_of(page)
    assert status == 0 and [rank["label"] for rank in data["ranks"]] == ["a.json", "b.json"]
    (warning,) = data["warnings"]
    assert "do not record their rank" in warning and f"warning: {warning}" in message


@pytest.mark.slow
def test_real_ranks_and_unrelated_real_traces(tmp_path: Path) -> None:
    dlrm = [shared_trace(f"gpu-pairs/dlrm.rank{rank}.kineto.json.gz") for rank in range(2)]
    assert report(tmp_path, *dlrm)[0] == 0
    (tmp_path / "page.html").unlink()
    for other in ("gpu-kineto/alexnet.json.gz", "gpu-kineto/h100_bert.json.gz", "gpu-pairs/linear.kineto.json.gz"):
        refused(tmp_path, dlrm[1], shared_trace(other))
