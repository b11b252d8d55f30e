"""Tables of traces without start times: sums of durations, and nothing that start times would have to say."""

from pathlib import Path

import pytest
from chakra_sets import MB, Ranks, collective, compute, single_collective, write_set
from support import call, read_json, succeeds

SET: Ranks = [
    [compute(0, 100), collective(1, "all_reduce", MB, 0), compute(2, 200, 1), collective(3, "all_reduce", MB, 2)]
] * 3


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    prefix = write_set(tmp_path, SET)
    return [f"{prefix}.{rank}.et" for rank in range(len(SET))]


def test_analyze_shows_sums_and_claims_no_idle_time(files: list[str], tmp_path: Path) -> None:
    done = call("analyze", *files, "--json", tmp_path / "n.json")
    assert done.returncode == 0 and done.stderr.count(b"no start times") == 1
    for claim in (b"idle ms", b"overlap", b"exposed", b"looked for 3"):
        assert claim not in done.stdout
    for analysis in read_json(tmp_path / "n.json")["traces"]:
        assert [(use["total_ns"], use["busy_ns"], use["idle_ns"]) for use in analysis["streams"]] == [
            (300_000, None, None), (0, None, None),
        ]  # fmt: skip
        assert not any(analysis[name] for name in ("device_use", "idle_causes", "iteration_list", "queues"))
        assert {row["kernel"]: row["total_ns"] for row in analysis["breakdown"]} == {
            "layer_0": 100_000, "layer_2": 200_000, "all_reduce_1": 0, "all_reduce_3": 0,
        }  # fmt: skip
        assert analysis["findings"]["found"] == analysis["findings"]["looked_for"] == []


def test_ranks_together_have_no_stragglers_and_no_idle_time(files: list[str], tmp_path: Path) -> None:
    done = call("analyze", *files, "--summary", "--json", tmp_path / "n.json")
    job = read_json(tmp_path / "n.json")["job"]
    assert done.returncode == 0 and b"straggler" not in done.stdout
    assert not job["collectives"] and not job["stragglers"]
    assert {(row["compute_ns"], row["idle_ns"], row["exposed_ns"]) for row in job["ranks"]} == {(300_000, None, None)}


def test_a_set_without_any_duration_is_analysed(tmp_path: Path) -> None:
    prefix = write_set(tmp_path, single_collective("all_gather", 2))
    assert b"all nodes lack durations" in succeeds("analyze", "--full", f"{prefix}.0.et").stdout
