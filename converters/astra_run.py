"""Run a converted set in ASTRA-sim and compare each rank's simulated time with the replay and the recording.

The simulator exits with status 0 even after a deadlock. Therefore, a rank has completed only if the simulator reports
that the rank finished and that all of its nodes ran.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..schemas.chakra.attributes import values_of
from ..schemas.chakra.comm_groups import Groups, read_groups, write_groups
from ..schemas.chakra.stream import read_chakra
from ..schemas.text.transaction import transaction
from ..timeline.network_description import Network
from ..timeline.network_file import parse_network
from ..trace.errors import UsageError
from .astra_config import write_astra_config
from .astra_links import astra_links
from .preflight_findings import PreflightFindings
from .preflight_rank import RankFile, scan
from .preflight_run import rank_ends

# This environment variable contains the path of the simulator's analytical binary.
VARIABLE = "ASTRA_SIM"
_FINISHED = re.compile(r"sys\[(\d+)\] finished, (\d+) cycles")
_NODES = re.compile(r"^TLSUM (\d+) (\d+) (\d+) (\d+) (\d+)", re.MULTILINE)
_TIMEOUT_S = 3600


@dataclass(frozen=True)
class SimulatedRank:
    """Simulated, replayed and recorded time of a rank in ms (None if unknown). `ran` is the number of nodes run."""

    rank: int
    nodes: int
    ran: int | None
    simulated: float | None
    replayed: float | None
    recorded: float | None

    @property
    def is_complete(self) -> bool:
        return self.simulated is not None and self.ran in (None, self.nodes)


def run_set(files: Sequence[str], group_file: str | None, networks: Sequence[str]) -> dict[str, list[SimulatedRank]]:
    binary = os.environ.get(VARIABLE)
    if not binary:
        raise UsageError(
            f"--run needs the environment variable {VARIABLE}; set it to the path of "
            "AstraSim_Analytical_Congestion_Unaware, built from github.com/astra-sim/astra-sim"
        )
    described = {network: parse_network(network) for network in networks}
    groups = {} if group_file is None else read_groups(group_file)
    scans = [scan(RankFile(Path(file), rank), PreflightFindings("astra-sim", 0)) for rank, file in enumerate(files)]
    recorded = [_recorded_ns(file) for file in files]
    results = {}
    for name, network in described.items():
        output = _simulate(binary, files, groups, network)
        finished = {int(rank): int(ns) for rank, ns in _FINISHED.findall(output)}
        ran = {int(rank): int(done) for rank, _, _, done, _ in _NODES.findall(output)}
        # The simulator does not implement the communication library's algorithms, so it uses rings instead.
        ends = rank_ends(scans, groups, replace(network, library=None))
        replayed: Sequence[int | None] = ends or [None] * len(files)
        results[name] = [
            SimulatedRank(rank, scanned.nodes, ran.get(rank), *map(_ms, (finished.get(rank), replayed[rank], took)))
            for rank, (scanned, took) in enumerate(zip(scans, recorded, strict=True))
        ]
    return results


def _ms(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e6


def _simulate(binary: str, files: Sequence[str], groups: Groups, network: Network) -> str:
    with tempfile.TemporaryDirectory() as folder:
        for rank, file in enumerate(files):
            Path(folder, f"run.{rank}.et").symlink_to(os.path.realpath(file))
        with transaction(nested=True):
            write_groups(f"{folder}/run", groups, {number: str(number) for number in groups})
            write_astra_config(f"{folder}/run", network, astra_links(network, len(files)), groups=bool(groups))
        environment = {**os.environ, VARIABLE: os.path.abspath(binary), "ASTRA_TL": f"{folder}/times.tsv"}  # noqa: PTH100
        try:
            done = subprocess.run(
                ["sh", f"{folder}/run.run.sh"], capture_output=True, check=False, env=environment, timeout=_TIMEOUT_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"{binary}: cannot be run ({error}); check {VARIABLE}") from None
    output = (done.stdout + done.stderr).decode("utf-8", "replace")
    if done.returncode and not _FINISHED.search(output):
        raise UsageError(f"{binary}: failed with status {done.returncode} ({output.strip()[-200:]}); check {VARIABLE}")
    return output


def _recorded_ns(file: str) -> int | None:
    begins, ends = list[int](), list[int]()
    for node in read_chakra(file)[1]:
        values = values_of(node.attr)
        if "start_ns" in values:
            begins.append(values["start_ns"])
            ends.append(values["start_ns"] + values.get("inclusive_ns", values.get("duration_ns", 0)))
    return max(ends) - min(begins) if begins else None
