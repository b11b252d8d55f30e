"""The files that ASTRA-sim takes beside a set, and that it takes them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from astra_sim import RUNNER, run_astra
from etplus.converters.astra_config import write_astra_config
from etplus.converters.astra_links import astra_links
from etplus.converters.convert import convert
from etplus.linker import link
from etplus.replaying.network import Network
from made_jobs import JOBS


@pytest.mark.parametrize(
    ("network", "topology", "bandwidth", "latency", "exchange"),
    [
        (Network(2.0, 500.0), "FullyConnected", 2.0, 500, "ring"),
        (Network(2.0, 500.0, "direct"), "FullyConnected", 2.0 / 3, 500, "direct"),
        (Network(2.0, 500.0, "halving-doubling"), "Switch", 2.0, 250, "ring"),
        (Network(2.0, 500.0, library="gloo"), "FullyConnected", 2.0, 500, "ring"),
    ],
)
def test_what_the_files_say(
    network: Network, topology: str, bandwidth: float, latency: int, exchange: str, tmp_path: Path
) -> None:
    """Bandwidth a link in 2^30 bytes a second."""
    files, notes = write_astra_config(str(tmp_path / "job"), network, astra_links(network, 4), groups=False)
    assert [Path(file).name for file in files] == [
        "job.network.yml",
        "job.system.json",
        "job.memory.json",
        "job.run.sh",
    ]
    lines = dict(line.split(": ") for line in Path(files[0]).read_text().splitlines() if not line.startswith("#"))
    assert lines["topology"] == f"[ {topology} ]" and lines["npus_count"] == "[ 4 ]"
    assert float(lines["bandwidth"].strip("[ ]")) * 2**30 / 1e9 == pytest.approx(bandwidth)
    assert float(lines["latency"].strip("[ ]")) == latency
    assert json.loads(Path(files[1]).read_bytes())["all-to-all-implementation"] == [exchange]
    assert any("gloo" in note for note in notes) == (network.library == "gloo")
    assert "--comm-group-configuration=empty" in Path(files[3]).read_text()


def test_the_run_line_runs_the_simulator(tmp_path: Path) -> None:
    """As long as with the shared runner on the same network."""
    if not os.access(RUNNER, os.X_OK):
        pytest.skip(f"no {RUNNER}: ASTRA-sim is not at hand")
    traces = [link(*pair) for pair in JOBS["moe"].write(tmp_path)]
    done = convert(traces, tmp_path / "job", to="astra-sim", network="bandwidth=2.5,latency=5us")
    script = next(file for file in done.files if file.endswith(".run.sh"))
    simulator = {"ASTRA_SIM": str(RUNNER.with_name("AstraSim_Analytical_Congestion_Unaware"))}
    run = subprocess.run(["sh", script], capture_output=True, text=True, env={**os.environ, **simulator}, check=True)
    cycles = [
        int(word) for line in run.stdout.splitlines() if "finished" in line for word in line.split() if word.isdigit()
    ]
    assert max(cycles) == pytest.approx(run_astra(tmp_path / "job", 4, 2.5, 5000).makespan_ns, rel=1e-3)
