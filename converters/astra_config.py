"""Files that ASTRA-sim takes with a set: network, system, memory and the line that runs it.

Bandwidths are in 2^30 bytes a second and link, latencies in ns a link.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from ..schemas.chakra.et_def_pb2 import CollectiveCommType as Type
from ..schemas.text.files import open_output
from ..timeline.network import Algorithm, Network, parse_network
from ..trace.errors import UNREADABLE, UsageError
from .astra_links import AstraLinks

DEFAULT = Network(25.0, 5000.0)
"""Where none is given: one NIC of 200 Gbit/s a rank."""
ENDPOINT_DELAY_NS = 1
"""ASTRA-sim aborts on a collective at time 0 if this is 0; its own examples have 10."""
_IMPLEMENTATIONS: Mapping[Algorithm, str] = {"ring": "ring", "direct": "direct", "halving-doubling": "halvingDoubling"}
_KINDS = {
    "all-reduce": Type.ALL_REDUCE,
    "all-gather": Type.ALL_GATHER,
    "reduce-scatter": Type.REDUCE_SCATTER,
    "all-to-all": Type.ALL_TO_ALL,
}
_BINARY = "AstraSim_Analytical_Congestion_Unaware"


def write_astra_config(
    prefix: str, network: Network, links: AstraLinks, *, groups: bool
) -> tuple[list[str], list[str]]:
    """Write `<prefix>.network.yml`, `.system.json`, `.memory.json` and `.run.sh`; return the files and notes."""
    texts = {
        **_network_files(network, links),
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


def _network_files(network: Network, links: AstraLinks) -> dict[str, str]:
    """The texts of `network.yml` and `system.json`."""
    columns: list[tuple[str, int, str, str]] = []
    for of in links.dimensions:
        bandwidth, latency = of.bandwidth * 1e9 / 2**30, of.latency_ns
        if of.algorithm == "direct":
            bandwidth /= max(of.ranks - 1, 1)
        topology = "Ring" if of.hops else "FullyConnected"
        if of.algorithm == "halving-doubling":  # two links from rank to rank
            topology, latency = "Switch", latency / 2
        columns.append((topology, of.ranks, f"{bandwidth:.9g}", f"{latency:.9g}"))
    lists = (f"[ {', '.join(map(str, column))} ]" for column in zip(*columns, strict=True))
    keys = ("topology", "npus_count", "bandwidth", "latency")
    system = {
        "scheduling-policy": "LIFO", "endpoint-delay": ENDPOINT_DELAY_NS, "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
        **{
            f"{name}-implementation": [_IMPLEMENTATIONS[of] for of in links.algorithms(kind)]
            for name, kind in _KINDS.items()
        },
        "collective-optimization": "baseline" if len(links.dimensions) == 1 else "localBWAware",
        "local-mem-bw": 100000, "boost-mode": 0, "replay-only": 0, "roofline-enabled": 0, "peak-perf": 100,
    }  # fmt: skip
    return {
        "network.yml": f"# {network}\n" + "".join(f"{key}: {found}\n" for key, found in zip(keys, lists, strict=True)),
        "system.json": json.dumps(system, indent=1) + "\n",
    }


def _run_line(prefix: str, *, groups: bool) -> str:
    """Return a script that runs the set in its folder; $ASTRA_SIM is the simulator."""
    name = shlex.quote(prefix.rpartition("/")[2])
    files = [
        f"--workload-configuration={name}",
        f"--comm-group-configuration={f'{name}.comm_groups.json' if groups else 'empty'}",
        f"--system-configuration={name}.system.json",
        f"--remote-memory-configuration={name}.memory.json",
        f"--network-configuration={name}.network.yml",
    ]
    return f"""#!/bin/sh
cd "$(dirname "$0")" || exit 2
simulator=${{ASTRA_SIM:-{_BINARY}}}
if ! command -v "$simulator" >/dev/null; then
  echo "$simulator: not found; set ASTRA_SIM to ASTRA-sim's program {_BINARY}," \\
    "which is built from https://github.com/astra-sim/astra-sim (./build/astra_analytical/build.sh)" >&2
  exit 2
fi
"$simulator" \\
  {f" {chr(92)}{chr(10)}  ".join(files)}
"""


_LIST = re.compile(r"^(\w+): *\[([^\]]*)\] *$", re.MULTILINE)
_KNOWN = re.compile(r"(one)?(ring|direct\d*|halvingDoubling)|doubleBinaryTree", re.IGNORECASE | re.ASCII)


def network_files_of(prefix: str) -> tuple[Path, Path] | None:
    """The network and system files beside a set, if both are there."""
    network, system = Path(f"{prefix}.network.yml"), Path(f"{prefix}.system.json")
    return (network, system) if network.is_file() and system.is_file() else None


def described_network(prefix: str) -> str:
    """Return the network of a set as its network file's first line says, else the default."""
    with contextlib.suppress(OSError, UnicodeDecodeError, UsageError):
        first = Path(f"{prefix}.network.yml").read_text("utf-8").partition("\n")[0].removeprefix("# ")
        parse_network(first)
        return first
    return str(DEFAULT)


def endpoint_delay_of(system: Path) -> float:
    """The endpoint delay in a system file, ns; ASTRA-sim's own 10 if it does not say."""
    with contextlib.suppress(*UNREADABLE, AttributeError, TypeError, ValueError):
        return float(msgspec.json.decode(system.read_bytes()).get("endpoint-delay", 10))
    return 10.0


def flaws_of_files(files: tuple[Path, Path], ranks: int) -> Iterator[str]:
    """Yield what keeps ASTRA-sim from running a set of so many ranks to the end, as observed."""
    found = dimensions_of(files[0].read_text(errors="replace"))
    counts = [int(text) if text.isdecimal() else 0 for text in found.get("npus_count", [])]
    name = files[0].name
    if not counts or len({len(found.get(key, [])) for key in ("topology", "npus_count", "bandwidth", "latency")}) > 1:
        yield f"{name}: topology, npus_count, bandwidth and latency are not lists of one length"
    elif prod(counts) != ranks:
        yield f"{name}: npus_count is {' times '.join(map(str, counts))}, and the set has {ranks:,} ranks"
    try:
        system: Any = msgspec.json.decode(files[1].read_bytes())
        algorithms = {key: of for key, of in system.items() if key.endswith("-implementation")}
    except (*UNREADABLE, AttributeError):
        yield f"{files[1].name}: no JSON object"
        return
    for key, of in algorithms.items():
        if not isinstance(of, list) or not all(isinstance(one, str) and _KNOWN.fullmatch(one) for one in of):
            yield f"{files[1].name}: {key} is {of!r}"
        elif counts and len(of) > len(counts):
            yield f"{files[1].name}: {key} has {len(of)} algorithms for {len(counts)} dimensions"
        elif any("alving" in one and count & (count - 1) for one, count in zip(of, counts, strict=False)):
            yield f"{files[1].name}: {key} is halvingDoubling in a dimension whose ranks are not a power of two"


def same_files(files: tuple[Path, Path], network: Network, links: AstraLinks) -> bool:
    """Whether these files are those of `write_astra_config` for a network, comments aside."""
    texts = _network_files(network, links)
    try:
        system = msgspec.json.decode(files[1].read_bytes())
    except UNREADABLE:
        return False
    lists = dimensions_of(files[0].read_text(errors="replace"))
    return lists == dimensions_of(texts["network.yml"]) and system == json.loads(texts["system.json"])


def unknown_groups(network: Network, members: Collection[tuple[int, ...]], names: Collection[str]) -> Iterator[str]:
    """The process groups that a network describes and a set does not have, by name or ranks."""
    for of in network.groups:
        if of.name not in names if of.name else of.ranks not in members:
            yield of.name or f"of ranks {', '.join(map(str, of.ranks))}"


def dimensions_of(text: str) -> dict[str, list[str]]:
    """The lists of a network file, by name."""
    return {key: [word.strip() for word in values.split(",")] for key, values in _LIST.findall(text)}
