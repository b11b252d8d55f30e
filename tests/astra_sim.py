"""The real ASTRA-sim, run over converted sets: `tools/astra-sim` beside the repository, skipped where it is not."""

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from support import SHARED

RUNNER = SHARED / "tools" / "astra-sim" / "run_astra.sh"
_ROW = re.compile(r"^\d+\t(\d+)\t(\d+)\t(\d+)\t(\S+)\t(\S+)\t(\S+)$", re.MULTILINE)
_BYTES_OF_A_GB = 2**30
"""Of ASTRA-sim's; those of etplus are 10^9 bytes."""


class RankRun(NamedTuple):
    """What became of one rank: nodes in its file, issued, finished; whether it said that it finished; its last end."""

    nodes: int
    issued: int
    finished: int
    done: bool
    last_end_ns: int


class SetRun(NamedTuple):
    """What became of a set.

    Attributes:
        status: 0 every node of every rank ran, 1 some did not, 2 it failed or ran out of time. (ASTRA-sim's own exit
            status says nothing: it is 0 for a deadlock.)
    """

    status: int
    ranks: list[RankRun]
    text: str

    @property
    def complete(self) -> bool:
        """Whether every rank ran to its last node."""
        whole = [rank.done and rank.nodes == rank.finished > 0 for rank in self.ranks]
        return self.status == 0 and bool(whole) and all(whole)

    @property
    def makespan_ns(self) -> int:
        """When the last node ended."""
        return max(rank.last_end_ns for rank in self.ranks)


def need_runner() -> None:
    """Skip the test where ASTRA-sim is not at hand."""
    if not os.access(RUNNER, os.X_OK):
        pytest.skip(f"no {RUNNER}: ASTRA-sim is not at hand")


def run_astra(
    prefix: Path, ranks: int, gbps: float = 25.0, latency_ns: float = 5000.0, *, timeout_s: int = 60, **more: str
) -> SetRun:
    """Run a set on links of so many GB/s (10^9 bytes a second); `more` are environment variables of the runner."""
    need_runner()
    words = [str(RUNNER), str(prefix), str(ranks), str(gbps * 1e9 / _BYTES_OF_A_GB), str(latency_ns)]
    environment = {**os.environ, "T": str(timeout_s), "EP": "1", **more}
    done = subprocess.run(words, capture_output=True, check=False, text=True, env=environment)
    rows = [
        RankRun(int(nodes), int(issued), int(finished), cycles != "-", int(float(last)))
        for nodes, issued, finished, cycles, _, last in _ROW.findall(done.stdout)
    ]
    assert len(rows) == ranks, done.stdout + done.stderr
    return SetRun(done.returncode, rows, done.stderr)


def run_config(prefix: Path) -> list[int]:
    """Run a set by the script that `convert` writes beside it; the last end of each rank, ns."""
    run, rows = _by_script(prefix)
    assert run.returncode == 0 and rows and all(nodes == done for nodes, done, _ in rows), run.stderr
    return [last for *_, last in rows]


def config_runs(prefix: Path, ranks: int) -> bool:
    """Whether that script runs so many ranks to their last nodes."""
    need_runner()
    run, rows = _by_script(prefix)
    return run.returncode == 0 and len(rows) == ranks and all(nodes == done for nodes, done, _ in rows)


def _by_script(prefix: Path) -> tuple[subprocess.CompletedProcess[str], list[tuple[int, int, int]]]:
    """The run, and of each rank its nodes, how many of these were done, and the last end, ns."""
    simulator = str(RUNNER.with_name("AstraSim_Analytical_Congestion_Unaware"))
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "ASTRA_SIM": simulator, "ASTRA_TL": f"{folder}/times.tsv"}
        script = f"{prefix}.run.sh"
        run = subprocess.run(["sh", script], capture_output=True, check=False, text=True, env=environment, timeout=120)
    rows = re.findall(r"^TLSUM \d+ (\d+) \d+ (\d+) (\d+)", run.stderr, re.MULTILINE)
    return run, [(int(nodes), int(done), int(last)) for nodes, done, last in rows]
