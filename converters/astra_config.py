"""What ASTRA-sim takes beside a set: network, system, memory and the line that runs it.

Bandwidths of its network files are in 2^30 bytes a second and link, latencies in ns a link. The analytical backend
without congestion gives collectives what `Network` does; see `AstraLinks`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

from ..replaying.network import Algorithm, Network
from ..schemas.chakra.et_def_pb2 import CollectiveCommType as Type
from ..schemas.text.files import open_output
from .astra_links import AstraLinks

DEFAULT = Network(25.0, 5000.0)
"""Where none is given: one NIC of 200 Gbit/s a rank."""
_IMPLEMENTATIONS: Mapping[Algorithm, str] = {
    "ring": "ring", "direct": "direct", "halving-doubling": "halvingDoubling"
}  # fmt: skip
_KINDS = {
    "all-reduce": Type.ALL_REDUCE, "all-gather": Type.ALL_GATHER, "reduce-scatter": Type.REDUCE_SCATTER,
    "all-to-all": Type.ALL_TO_ALL,
}  # fmt: skip
_BINARY = "AstraSim_Analytical_Congestion_Unaware"


def write_astra_config(
    prefix: str, network: Network, links: AstraLinks, *, groups: bool
) -> tuple[list[str], list[str]]:
    """Write `<prefix>.network.yml`, `.system.json`, `.memory.json` and `.run.sh`.

    Args:
        links: see `astra_links`. groups: whether the set has process groups.

    Returns:
        the files, and notes on what they cannot say of the network.
    """
    columns: list[tuple[str, int, str, str]] = []
    for of in links.dimensions:
        bandwidth, latency = of.bandwidth * 1e9 / 2**30, of.latency_ns
        if of.algorithm == "direct":
            bandwidth /= max(of.ranks - 1, 1)
        switch = of.algorithm == "halving-doubling"  # two links from rank to rank
        topology, latency = ("Switch", latency / 2) if switch else ("FullyConnected", latency)
        columns.append((topology, of.ranks, f"{bandwidth:.9g}", f"{latency:.9g}"))
    lists = (f"[ {', '.join(map(str, column))} ]" for column in zip(*columns, strict=True))
    keys = ("topology", "npus_count", "bandwidth", "latency")
    system = {
        "scheduling-policy": "LIFO", "endpoint-delay": 0, "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
        **{
            f"{name}-implementation": [_IMPLEMENTATIONS[of] for of in links.algorithms(kind)]
            for name, kind in _KINDS.items()
        },
        "collective-optimization": "baseline" if len(links.dimensions) == 1 else "localBWAware",
        "local-mem-bw": 100000, "boost-mode": 0, "replay-only": 0, "roofline-enabled": 0, "peak-perf": 100,
    }  # fmt: skip
    texts = {
        "network.yml": f"# {network}\n" + "".join(f"{key}: {found}\n" for key, found in zip(keys, lists, strict=True)),
        "system.json": json.dumps(system, indent=1) + "\n",
        "memory.json": json.dumps({"memory-type": "NO_MEMORY_EXPANSION"}) + "\n",
        "run.sh": _run_line(prefix, groups=groups),
    }
    for suffix, text in texts.items():
        with open_output(f"{prefix}.{suffix}") as file:
            file.write(text.encode())
    notes = [f"ASTRA-sim's network is {network}"]
    if links.unsaid:
        notes.append(f"ASTRA-sim cannot express {', '.join(links.unsaid)}")
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
