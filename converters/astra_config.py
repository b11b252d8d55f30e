"""What ASTRA-sim takes beside a set: network, system, memory and the line that runs it.

Bandwidths of its network files are in 2^30 bytes a second and link, latencies in ns a link. The analytical backend
without congestion gives collectives what `Network` does:

- ring: on `FullyConnected` with links of the rank's bandwidth, of which a collective uses one a rank: on the topology
  `Ring` messages, and groups of ranks that are not neighbours, would take the latency of each rank between. All-to-all
  passes through the ranks between all the same.
- direct: on `FullyConnected`, where a rank has a link to each other one, so that each has its part of the rank's
  bandwidth. That part is right for collectives of all ranks; smaller groups and messages take longer there.
- halving-doubling: on a `Switch`, which takes two links from rank to rank. Its all-to-all is that of a ring.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

from ..replaying.network import Network
from ..schemas.text.files import open_output

DEFAULT = Network(25.0, 5000.0)
"""Where none is given: one NIC of 200 Gbit/s a rank."""
_TOPOLOGIES: Mapping[str, tuple[str, str, str]] = {
    "ring": ("FullyConnected", "ring", "ring"),
    "direct": ("FullyConnected", "direct", "direct"),
    "halving-doubling": ("Switch", "halvingDoubling", "ring"),
}
"""By algorithm: topology, implementation of collectives, and of an all-to-all."""
_BINARY = "AstraSim_Analytical_Congestion_Unaware"


def write_astra_config(prefix: str, network: Network, ranks: int, *, groups: bool) -> tuple[list[str], list[str]]:
    """Write `<prefix>.network.yml`, `.system.json`, `.memory.json` and `.run.sh`.

    Args:
        ranks: of the set. groups: whether it has process groups.

    Returns:
        the files, and notes on what they cannot say of the network.
    """
    algorithm = "ring" if network.library is not None else network.algorithm
    topology, of_collectives, of_exchanges = _TOPOLOGIES[algorithm]
    bandwidth, latency = network.bandwidth * 1e9 / 2**30, network.latency_ns
    if algorithm == "direct":
        bandwidth /= max(ranks - 1, 1)
    elif topology == "Switch":
        latency /= 2
    system = {
        "scheduling-policy": "LIFO", "endpoint-delay": 0, "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
        **{f"{kind}-implementation": [of_collectives] for kind in ("all-reduce", "all-gather", "reduce-scatter")},
        "all-to-all-implementation": [of_exchanges], "collective-optimization": "baseline", "local-mem-bw": 100000,
        "boost-mode": 0, "replay-only": 0, "roofline-enabled": 0, "peak-perf": 100,
    }  # fmt: skip
    texts = {
        "network.yml": f"# {network}\ntopology: [ {topology} ]\nnpus_count: [ {ranks} ]\n"
        f"bandwidth: [ {bandwidth:.9g} ]\nlatency: [ {latency:.9g} ]\n",
        "system.json": json.dumps(system, indent=1) + "\n",
        "memory.json": json.dumps({"memory-type": "NO_MEMORY_EXPANSION"}) + "\n",
        "run.sh": _run_line(prefix, groups=groups),
    }
    for suffix, text in texts.items():
        with open_output(f"{prefix}.{suffix}") as file:
            file.write(text.encode())
    notes = [f"ASTRA-sim's network is {network}"]
    if network.library is not None:
        notes.append(f"ASTRA-sim has no algorithms of {network.library}: collectives run on rings there")
    return [f"{prefix}.{suffix}" for suffix in texts], notes


def _run_line(prefix: str, *, groups: bool) -> str:
    """A script that runs the set in its folder; $ASTRA_SIM is the simulator."""
    name = shlex.quote(prefix.rpartition("/")[2])
    files = [
        f"--workload-configuration={name}",
        f"--comm-group-configuration={f'{name}.comm_groups.json' if groups else 'empty'}",
        f"--system-configuration={name}.system.json",
        f"--remote-memory-configuration={name}.memory.json",
        f"--network-configuration={name}.network.yml",
    ]
    return '#!/bin/sh\ncd "$(dirname "$0")" && "${ASTRA_SIM:-' + _BINARY + '}" \\\n  ' + " \\\n  ".join(files) + "\n"
