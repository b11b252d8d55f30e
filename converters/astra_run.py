"""Run a converted set in ASTRA-sim and compare each rank's time with the replay and the recording.

The simulator's exit status says nothing: it is 0 if ranks wait for each other for ever. A rank is done if the simulator
says that it finished and, if the binary counts nodes (`ASTRA_TL`), if all of them ran.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..replaying.network import Network, parse_network
from ..schemas.chakra.attributes import values_of
from ..schemas.chakra.comm_groups import Groups, find_groups, read_groups, write_groups
from ..schemas.chakra.stream import read_chakra
from ..schemas.text.transaction import transaction
from ..trace.errors import UsageError
from .astra_config import write_astra_config
from .astra_links import astra_links
from .preflight_findings import PreflightFindings
from .preflight_rank import RankFile, scan
from .preflight_run import rank_ends

VARIABLE = "ASTRA_SIM"
"""Environment variable with the path of the simulator's analytical binary."""
_FINISHED = re.compile(r"sys\[(\d+)\] finished, (\d+) cycles")
_NODES = re.compile(r"^TLSUM (\d+) (\d+) (\d+) (\d+) (\d+)", re.MULTILINE)
_TIMEOUT_S = 3600


@dataclass(frozen=True)
class SimulatedRank:
    """One rank's times in ms; None for what is not known.

    Attributes:
        nodes: in its file. ran: how many came to an end.
        simulated: when the rank finished; None if it did not.
        replayed: when the rank ends in a replay of the set on the same network.
        recorded: from the first start to the last end that its nodes had when they were recorded.
    """

    rank: int
    nodes: int
    ran: int | None
    simulated: float | None
    replayed: float | None
    recorded: float | None

    @property
    def is_complete(self) -> bool:
        """Whether every node ran, as far as the simulator says."""
        return self.simulated is not None and self.ran in (None, self.nodes)


def run_set(files: Sequence[str], prefix: str, network: str) -> list[SimulatedRank]:
    """Simulate a set on a network, described as for `parse_network`.

    Args:
        files: the set's files by rank.

    Raises:
        UsageError: no simulator, or it cannot be started.
    """
    binary = os.environ.get(VARIABLE)
    if not binary:
        problem = (
            "set it to the path of AstraSim_Analytical_Congestion_Unaware, built from github.com/astra-sim/astra-sim"
        )
        raise UsageError(f"--run needs the environment variable {VARIABLE}; {problem}")
    path, described = find_groups(prefix), parse_network(network)
    groups = {} if path is None else read_groups(path)
    output = _simulate(binary, files, groups, described)
    finished = {int(rank): int(ns) for rank, ns in _FINISHED.findall(output)}
    ran = {int(rank): int(done) for rank, _, _, done, _ in _NODES.findall(output)}
    replayed = _replayed(files, groups, described)
    found = []
    for rank, file in enumerate(files):
        nodes, recorded = _recorded(file)
        simulated = finished.get(rank)
        found.append(
            SimulatedRank(rank, nodes, ran.get(rank), None if simulated is None else simulated / 1e6,
                          None if replayed is None else replayed[rank] / 1e6, recorded)
        )  # fmt: skip
    return found


def _simulate(binary: str, files: Sequence[str], groups: Groups, network: Network) -> str:
    """What the simulator prints of a set, in a folder of its own: the set's own network files stay."""
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


def _replayed(files: Sequence[str], groups: Groups, network: Network) -> list[int] | None:
    """When each rank ends if nodes are issued as the simulator does it, on what it can express of the network: rings
    instead of a library."""
    scans = [scan(RankFile(Path(file), rank), PreflightFindings("astra-sim", 0)) for rank, file in enumerate(files)]
    return rank_ends(scans, groups, replace(network, library=None))


def _recorded(file: str) -> tuple[int, float | None]:
    """How many nodes a file has, and how long the recording of its nodes took, ms."""
    count, begins, ends = 0, list[int](), list[int]()
    for node in read_chakra(file)[1]:
        count += 1
        values = values_of(node.attr)
        if "start_ns" in values:
            begins.append(values["start_ns"])
            ends.append(values["start_ns"] + values.get("inclusive_ns", values.get("duration_ns", 0)))
    return count, (max(ends) - min(begins)) / 1e6 if begins else None
