"""`etplus top`: its sums are those of the trace, and a screen of text."""

from collections import Counter
from pathlib import Path

import orjson
import pytest
from etplus import load
from support import FIXTURES, call, fixture_pair, read_json, run

KINETO = FIXTURES / "gpu" / "tf32.kineto.json.gz"


def test_top_lists_kernels_by_their_device_time() -> None:
    done = run("etplus", "top", KINETO)
    first, heads, *rows = done.stdout.decode().splitlines()
    assert (done.returncode, done.stderr) == (0, b"")
    assert first.startswith("GPU 17.2 of 18.6 ms busy (93%)") and "--by operator, module, line" in first
    assert heads.split() == ["kernel", "total", "ms", "share", "count", "mean", "µs"]
    assert max(map(len, done.stdout.decode().splitlines())) <= 80 and "sgemm" in rows[1]
    told = orjson.loads(call("top", KINETO, "--json", "-").stdout)
    trace, times = load(KINETO), Counter[str]()
    for event in trace.device_events:
        times[event.name] += event.duration_ns
    assert {row["name"]: row["device_ns"] for row in told["rows"]} == times
    assert [row["device_ns"] for row in told["rows"]] == sorted(times.values(), reverse=True)
    assert sum(row["share"] for row in told["rows"]) == pytest.approx(1)


def test_ranks_of_a_job_are_added_up(tmp_path: Path) -> None:
    document = read_json(KINETO)
    for rank in range(2):
        document["distributedInfo"] = {"rank": rank, "world_size": 2, "backend": "nccl"}
        (tmp_path / f"rank{rank}.json").write_bytes(orjson.dumps(document))
    one, two = (
        orjson.loads(call("top", *files, "--json", "-").stdout)["rows"][0]
        for files in ((KINETO,), (tmp_path / "rank0.json", tmp_path / "rank1.json"))
    )
    assert (two["device_ns"], two["count"]) == (2 * one["device_ns"], 2 * one["count"])
    ranks = orjson.loads(call("top", tmp_path, "--by", "rank", "--json", "-").stdout)["rows"]
    assert sorted(row["name"] for row in ranks) == ["rank 0", "rank 1"]


def test_without_a_gpu_operators_have_cpu_time() -> None:
    kineto = fixture_pair("demo/train_cpu")[1]
    assert call("top", kineto).stdout.endswith(b"the trace has no times by kernel; try --by operator\n")
    assert b"CPU ms" in call("top", kineto, "--by", "operator", "--top", "1").stdout.splitlines()[1]
