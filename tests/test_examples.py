"""The examples run as a user runs them."""

import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from astra_sim import RUNNER
from made_jobs import JOBS
from support import names_in, read_json

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow


def run(folder: Path, example: str, *arguments: str | Path) -> str:
    command = [sys.executable, str(ROOT / "examples" / example), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, cwd=folder, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="recording needs PyTorch")
def test_train_and_record_writes_both_traces_and_the_joined_one(tmp_path: Path) -> None:
    text = run(tmp_path, "train_and_record.py", "made")
    assert "(100.00%)" in text and "written: made" in text
    assert names_in(tmp_path / "made") == ["rank-0.et.json.gz", "rank-0.etplus.json.gz", "rank-0.kineto.json.gz"]


def test_replay_benchmark_on_a_pair_with_gpu_work(tmp_path: Path) -> None:
    name = ROOT / "fixtures" / "pairs" / "gpu_shaped_from_cpu"
    text = run(tmp_path, "replay_benchmark.py", f"{name}.et.json.gz", f"{name}.kineto.json.gz")
    rows = re.findall(r"^aten::mm +(\d+) +(\d+) +([\d.]+) +([\d.]+) +([\d.]+) ", text, re.MULTILINE)
    assert rows and all(0 < float(middle) < float(total) and float(gpu) > 100 for _, _, middle, total, gpu in rows)


def feed_astra_sim(traces: Path, output: Path, simulator: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "ASTRA_SIM": simulator}
    command = ["sh", str(ROOT / "examples" / "feed_astra_sim.sh"), str(traces), str(output)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)


def test_ranks_are_linked_gated_converted_checked_and_simulated(tmp_path: Path) -> None:
    replace(JOBS["ddp"], ranks=2).write(tmp_path / "traces")
    simulator = RUNNER.with_name("AstraSim_Analytical_Congestion_Unaware")
    has_simulator = os.access(RUNNER, os.X_OK)
    done = feed_astra_sim(tmp_path / "traces", tmp_path / "new" / "out", str(simulator) if has_simulator else "")
    assert done.returncode == 0 and done.stdout.startswith("passed: 0 errors, 0 warnings: 2 ranks, "), done.stderr
    assert {"job.0.et", "job.1.et"} <= {path.name for path in (tmp_path / "new" / "out").iterdir()}
    for path in (tmp_path / "new" / "out" / "reports").iterdir():
        report = read_json(path)
        assert report["status"] == "linked" and all(gate["passed"] for gate in report["gates"].values())
    rows = re.findall(r"^(\d) +(\d+) of (\d+) +([\d.]+) ", done.stdout, re.MULTILINE)
    assert [rank for rank, *_ in rows] == (["0", "1"] if has_simulator else [])
    assert all(run == nodes != "0" and float(time) > 0 for _, run, nodes, time in rows)
    assert has_simulator or "set ASTRA_SIM" in done.stdout


def test_a_rank_below_the_gates_ends_the_script(tmp_path: Path) -> None:
    replace(JOBS["ddp"], ranks=2).write(tmp_path / "cut")
    kineto = tmp_path / "cut" / "rank1.kineto.json"
    kineto.write_bytes(kineto.read_bytes()[:20_000])
    done = feed_astra_sim(tmp_path / "cut", tmp_path / "out")
    assert done.returncode == 3 and "less than --min-match 0.99" in done.stderr
    report = read_json(tmp_path / "out" / "reports" / "rank1.json")
    assert report["exit_code"] == 3 and any("cut off at byte" in text for text in report["warnings"])
    assert not list((tmp_path / "out").glob("job*"))


def test_the_code_of_the_tour_runs_and_leaves_no_files(tmp_path: Path) -> None:
    cells = [cell for cell in read_json(ROOT / "examples" / "tour.ipynb")["cells"] if "outputs" in cell]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells)
    code = "\n\n".join("".join(cell["source"]) for cell in cells)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=tmp_path, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert "540 unverified" in done.stdout.decode()
    assert "tour.0.et" in done.stdout.decode() and not list(tmp_path.iterdir())
