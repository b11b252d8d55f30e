"""`check --run`: the real simulator's times next to the replay's and the recording's."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from astra_sim import RUNNER, need_runner
from chakra_sets import data_parallel, message, write_set
from etplus.converters.astra_run import SimulatedRank, _ms, _recorded_ns, run_set
from etplus.converters.chakra import write_et
from etplus.trace.errors import UsageError
from etplus_files import cpu, etplus, gpu
from support import call, read_json, refused, succeeds

NETWORK = "bandwidth=25,latency=5us"


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    need_runner()
    monkeypatch.setenv("ASTRA_SIM", str(RUNNER.with_name("AstraSim_Analytical_Congestion_Unaware")))


@pytest.mark.usefixtures("simulator")
def test_simulated_and_replayed_times_agree_and_several_networks_are_a_table(tmp_path: Path) -> None:
    prefix = write_set(tmp_path, data_parallel(4))
    slow = "bandwidth=5,latency=5us"
    succeeds("check", prefix, "--run", "--network", NETWORK, "--network", slow, "--json", tmp_path / "run.json")
    runs = read_json(tmp_path / "run.json")["runs"]
    assert [run["network"] for run in runs] == [NETWORK, slow]
    for run in runs:
        for rank in run["ranks"]:
            assert rank["ran"] == rank["nodes"] and rank["simulated"] == pytest.approx(rank["replayed"], rel=0.03)
    assert runs[1]["ranks"][0]["simulated"] > 2 * runs[0]["ranks"][0]["simulated"]
    assert b"ranks done" in call("check", prefix, "--run", "--network", NETWORK, "--network", slow).stdout


@pytest.mark.usefixtures("simulator")
def test_nodes_that_were_never_issued_fail(tmp_path: Path) -> None:
    ranks = [list(nodes) for nodes in data_parallel(2)]
    ranks[1].append(message(999, 0, 1, 7, 64, is_send=False))
    done = call("check", write_set(tmp_path, ranks), "--run", "--network", NETWORK)
    assert done.returncode == 1 and b"failed: rank 1 did not run to the end" in done.stdout


@pytest.mark.usefixtures("simulator")
def test_without_the_variable_the_command_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASTRA_SIM")
    assert "environment variable ASTRA_SIM" in refused("check", write_set(tmp_path, data_parallel(2)), "--run")


def test_the_recorded_time_of_a_rank_is_from_its_first_start_to_its_last_end(tmp_path: Path) -> None:
    write_et(etplus([cpu(3, "a", 50, 100), gpu(4, "k", 60, 20.5)]), tmp_path / "t.0.et")
    assert _recorded_ns(str(tmp_path / "t.0.et")) == 100_000
    prefix = write_set(tmp_path, data_parallel(2))
    assert _recorded_ns(f"{prefix}.0.et") is None
    assert (_ms(2_500_000), _ms(None)) == (2.5, None)


def test_a_rank_is_complete_if_the_simulator_says_so_and_no_node_is_left() -> None:
    def complete(ran: int | None, simulated: float | None) -> bool:
        return SimulatedRank(0, 5, ran, simulated, None, None).is_complete

    assert complete(5, 1.0) and complete(None, 1.0)
    assert not complete(4, 1.0) and not complete(5, None) and not complete(None, None)


def test_a_rank_that_the_simulator_does_not_name_is_incomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = write_set(tmp_path, data_parallel(2))
    program = tmp_path / "simulator"
    monkeypatch.setenv("ASTRA_SIM", str(program))
    for status, printed in ((3, "sys[1] finished, 2500000 cycles"), (0, "nothing more to do")):
        program.write_text(f"#!/bin/sh\necho '{printed}'\nexit {status}\n")
        program.chmod(0o755)
        (ranks,) = run_set([f"{prefix}.{rank}.et" for rank in (0, 1)], None, ["bandwidth=1"]).values()
        assert [rank.simulated for rank in ranks] == [None, 2.5 if status else None]


def test_a_simulator_that_cannot_be_run_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = write_set(tmp_path, data_parallel(2))
    monkeypatch.setenv("ASTRA_SIM", "/bin/false")
    with pytest.raises(UsageError, match=r"/bin/false: failed with status 1 .*; check ASTRA_SIM"):
        run_set([f"{prefix}.{rank}.et" for rank in (0, 1)], None, ["bandwidth=1"])

    def stuck(words: list[str], **options: Any) -> None:
        raise subprocess.TimeoutExpired(words, 3600)

    monkeypatch.setattr(subprocess, "run", stuck)
    with pytest.raises(UsageError, match=r"/bin/false: cannot be run .*timed out"):
        run_set([f"{prefix}.{rank}.et" for rank in (0, 1)], None, ["bandwidth=1"])
