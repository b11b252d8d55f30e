"""Sets of which one rank's ET ends early: linked they are whole, and in ASTRA-sim every rank runs to its last node."""

import gzip
import json
import re
from pathlib import Path

import pytest
from astra_sim import run_astra
from etplus_files import cpu, etplus
from job_files import COLLECTIVE, write_cut_job
from support import Document, call, read_json, shared_job, succeeds

REFUSED = (
    "rank 2 lacks ALL_REDUCE of 530,432 bytes, collective 1 (from 0) of all ranks, which ranks 0, 1, 3 have "
    "(node 1008 of rank 0); a simulator would wait forever; link that rank again with its Kineto trace, or keep "
    "unmatched communications as computations of fixed duration with --degrade"
)


def lossy(folder: Path) -> Path:
    """ddp4, of whose rank 2 neither file has the second all-reduce: what an older link wrote of the cut job."""
    job = write_cut_job(folder, "block.ddp4", rank=2)
    name = job / "rank2.kineto.json.gz"
    document: Document = read_json(name)
    runs = [event for event in document["traceEvents"] if event["name"].startswith(COLLECTIVE)]
    document["traceEvents"].remove(max(runs, key=lambda event: event["ts"]))
    name.unlink()
    name.write_bytes(gzip.compress(json.dumps(document).encode(), 1))
    return job


@pytest.mark.parametrize(
    "job", ["block.ddp4", *(pytest.param(f"block.{job}", marks=pytest.mark.slow) for job in ("pp2", "fsdp-tp4"))]
)
def test_a_cut_job_runs_to_the_last_node_of_every_rank(job: str, tmp_path: Path) -> None:
    ranks = len(shared_job(f"parallel/{job}"))
    cut = write_cut_job(tmp_path / "job", job, rank=ranks - 1)
    done = succeeds("convert", cut, "--to", "astra-sim", "-o", tmp_path / "set")
    assert done.stderr.decode().splitlines()[-1].startswith("check   passed: 0 errors, ")
    spans = []
    for gbps in (100, 0.1):
        run = run_astra(tmp_path / "set", ranks, gbps)
        assert run.complete, run
        spans.append(run.makespan_ns)
    assert spans[0] < spans[1]


def test_a_cut_that_takes_the_issuing_call_as_well_is_refused(tmp_path: Path) -> None:
    job = write_cut_job(tmp_path / "job", "block.ddp2", rank=1)
    done = call("convert", job, "--to", "astra-sim", "-o", tmp_path / "set")
    assert done.returncode == 2 and f"{job}/rank1.et.json.gz: rank 1 lacks ALL_REDUCE" in done.stderr.decode()
    assert not list(tmp_path.glob("set*"))


def test_a_set_that_cannot_be_whole_is_refused_in_one_line(tmp_path: Path) -> None:
    job = lossy(tmp_path / "job")
    done = call("convert", job, "--to", "astra-sim", "-o", tmp_path / "set")
    assert done.returncode == 2
    *_, last = done.stderr.decode().splitlines()
    assert last.startswith(f"etplus: error: {job}/rank2.et.json.gz: rank 2 lacks ALL_REDUCE of 530,432 bytes, ")
    assert re.sub(r"node \d+", "node 1008", last).endswith(REFUSED)
    assert not list(tmp_path.glob("set*"))


def test_convert_ends_with_the_verdict_of_check(tmp_path: Path) -> None:
    for rank in (2, 3):
        etplus([cpu(3, "a", 0, 9)], rank=rank, world_size=4).write(tmp_path / f"rank{rank}.json")
    done = call("convert", "rank2.json", "rank3.json", "--to", "chakra", "-o", "set", "--json", "x.json", cwd=tmp_path)
    shown = call("check", "set", cwd=tmp_path)
    assert shown.stdout.startswith(b"failed: 1 error, ")
    assert b"check   failed: 1 error, " in done.stderr
    assert done.returncode == shown.returncode == 1
    told = read_json(tmp_path / "x.json")["check"]
    assert told["counts"]["missing-rank"] == 1 and not told["ok"]
