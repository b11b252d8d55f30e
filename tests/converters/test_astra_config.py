"""The files that ASTRA-sim takes beside a set, and that it takes them."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from astra_sim import RUNNER, need_runner, run_astra
from broken_sets import GROUPS, NETWORK_FLAWS, coll, comp, spoil_network, write, write_with_network
from chakra_sets import data_parallel, write_set
from etplus.converters.astra_config import DEFAULT, described_network, write_astra_config
from etplus.converters.astra_links import astra_links
from etplus.converters.preflight import check
from etplus.timeline import Network, parse_network
from etplus.timeline.network_description import NetworkLevel


@pytest.mark.parametrize(
    ("network", "topology", "bandwidth", "latency", "exchange"),
    [
        (Network(2.0, 500.0), "FullyConnected", 2.0, 500, "ring"),
        (Network(2.0, 500.0, "direct"), "FullyConnected", 2.0 / 3, 500, "direct"),
        (Network(2.0, 500.0, "halving-doubling"), "Switch", 2.0, 250, "ring"),
        (Network(9.0, levels=(NetworkLevel(4, 2.0, 500.0, topology="ring"),)), "Ring", 2.0, 500, "ring"),
        (Network(2.0, 500.0, library="gloo"), "FullyConnected", 2.0, 500, "ring"),
    ],
)
def test_config_files_describe_the_network(
    network: Network, topology: str, bandwidth: float, latency: int, exchange: str, tmp_path: Path
) -> None:
    files, notes = write_astra_config(str(tmp_path / "job"), network, astra_links(network, 4), groups=False)
    assert [file.rpartition("/job.")[2] for file in files] == ["network.yml", "system.json", "memory.json", "run.sh"]
    lines = dict(line.split(": ") for line in Path(files[0]).read_text().splitlines() if not line.startswith("#"))
    assert lines["topology"] == f"[ {topology} ]" and lines["npus_count"] == "[ 4 ]"
    assert float(lines["bandwidth"].strip("[ ]")) * 2**30 / 1e9 == pytest.approx(bandwidth)
    assert float(lines["latency"].strip("[ ]")) == latency
    system = json.loads(Path(files[1]).read_bytes())
    assert (system["all-to-all-implementation"], system["collective-optimization"]) == ([exchange], "baseline")
    assert any("gloo" in note for note in notes) == (network.library == "gloo")
    assert "--comm-group-configuration=empty" in Path(files[3]).read_text()


def test_two_levels_are_two_dimensions_and_the_network_is_described(tmp_path: Path) -> None:
    network = Network(1.0, 2000.0, levels=(NetworkLevel(4, 10.0, 1000.0),))
    files, _ = write_astra_config(str(tmp_path / "job"), network, astra_links(network, 8), groups=False)
    assert json.loads(Path(files[1]).read_bytes())["collective-optimization"] == "localBWAware"
    assert "npus_count: [ 4, 2 ]\n" in Path(files[0]).read_text()
    write_astra_config(str(tmp_path / "job"), Network(2.5, 500.0), astra_links(Network(2.5), 8), groups=False)
    assert parse_network(described_network(str(tmp_path / "job"))) == Network(2.5, 500.0)
    Path(files[0]).write_text("# no network\n")
    assert described_network(str(tmp_path / "job")) == described_network(str(tmp_path / "none")) == str(DEFAULT)


def test_the_run_script_runs_the_simulator(tmp_path: Path) -> None:
    need_runner()
    prefix = write_set(tmp_path, data_parallel(4))
    network = Network(2.5, 5000.0)
    *_, script = write_astra_config(str(prefix), network, astra_links(network, 4), groups=False)[0]
    simulator = {"ASTRA_SIM": str(RUNNER.with_name("AstraSim_Analytical_Congestion_Unaware"))}
    run = subprocess.run(["sh", script], capture_output=True, text=True, env={**os.environ, **simulator}, check=True)
    cycles = [int(word) for line in run.stdout.splitlines() if "finished" in line for word in line.split()
              if word.isdigit()]  # fmt: skip
    assert max(cycles) == pytest.approx(run_astra(prefix, 4, 2.5, 5000).makespan_ns, rel=1e-3)


def test_the_run_line_without_the_simulator_says_what_to_set(tmp_path: Path) -> None:
    files, _ = write_astra_config(str(tmp_path / "job"), Network(1.0), astra_links(Network(1.0), 4), groups=False)
    without = {name: value for name, value in os.environ.items() if name != "ASTRA_SIM"}
    for environment in (without, {**without, "ASTRA_SIM": "/none/sim"}):
        run = subprocess.run(["sh", files[3]], capture_output=True, text=True, env=environment, check=False)
        (line,) = run.stderr.splitlines()
        assert run.returncode == 2 and "set ASTRA_SIM" in line and "https://github.com/astra-sim/astra-sim" in line
        assert line.startswith(environment.get("ASTRA_SIM", "AstraSim_Analytical_Congestion_Unaware"))


@pytest.mark.parametrize(("suffix", "old", "new", "words"), NETWORK_FLAWS)
def test_broken_network_files_are_errors_of_check(suffix: str, old: str, new: str, words: str, tmp_path: Path) -> None:
    prefix = write_with_network(tmp_path)
    assert check(prefix, profile="astra-sim").ok
    spoil_network(prefix, suffix, old, new)
    report = check(prefix, profile="astra-sim")
    assert not report.ok and words in report.problems[0].text and set(report.counts) == {"network-files"}
    assert check(prefix).ok


def test_halving_and_doubling_needs_a_power_of_two(tmp_path: Path) -> None:
    network = Network(1.0)
    prefix = write(tmp_path, [[comp(1), coll(2, 1, group="")] for _ in range(3)], {})
    write_astra_config(str(prefix), network, astra_links(network, 3), groups=False)
    spoil_network(prefix, "system.json", '"ring"', '"halvingDoubling"')
    report = check(prefix, profile="astra-sim")
    assert [problem.kind for problem in report.problems if "not a power of two" in problem.text] == [
        "network-files"
    ] * 4
    spoil_network(prefix, "network.yml", "[ 3 ]", "[ 4 ]")
    assert "not a power of two" not in str(check(prefix, profile="astra-sim").problems)


def test_a_set_against_the_network_that_it_is_for(tmp_path: Path) -> None:
    prefix = write_with_network(tmp_path)
    same = check(prefix, profile="astra-sim", network=Network(25.0, 5000.0))
    assert same.counts == {} and not same.skipped
    other = Network(25.0, 5000.0, "tree", levels=(NetworkLevel(3, 50.0),))
    report = check(prefix, profile="astra-sim", network=other)
    assert report.ok and report.counts == {"network-differs": 1, "network-inexact": 1}
    assert check(prefix, network=other).counts == {}
    for file in ("network.yml", "system.json"):
        prefix.with_name(f"{prefix.name}.{file}").unlink()
        (skipped,) = check(prefix, network="bandwidth=25,latency=5us").skipped
        assert skipped == "network files were not checked, because there are none next to the set"


def test_a_collective_that_splits_into_uneven_bytes_is_reported(tmp_path: Path) -> None:
    ranks = [[comp(1), *(coll(at, at - 1, size=size) for at, size in ((2, 3), (3, 201), (4, 64)))] for _ in range(2)]
    report = check(write(tmp_path, ranks, GROUPS), profile="astra-sim", network=Network(1.0))
    found = [(problem.kind, problem.text) for problem in report.problems]
    assert found == [("uneven-parts", "ALL_REDUCE of node 2: 3 bytes over 2 ranks")] * 2
