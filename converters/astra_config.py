"""Write the network, system, memory and script files that ASTRA-sim needs. Bandwidths are in 2^30 bytes per second."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from ..schemas.chakra.et_def_pb2 import CollectiveCommType as Type
from ..schemas.text.files import open_output
from ..timeline.collective_times import Algorithm
from ..timeline.network_description import Network
from ..timeline.network_file import parse_network
from ..trace.errors import UNREADABLE, UsageError
from .astra_links import AstraLinks

# The default network has one NIC of 200 Gbit/s per rank.
DEFAULT = Network(25.0, 5000.0)
# If the delay is 0, ASTRA-sim aborts when a collective starts at time 0. Its own examples use 10.
ENDPOINT_DELAY_NS = 1
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
    """Write `<prefix>.network.yml`, `.system.json`, `.memory.json` and `.run.sh`. Return file names and notes."""
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
    columns: list[tuple[str, int, str, str]] = []
    for span in links.dimensions:
        bandwidth, latency = span.bandwidth * 1e9 / 2**30, span.latency_ns
        if span.algorithm == "direct":
            bandwidth /= max(span.ranks - 1, 1)
        topology = "Ring" if span.hops else "FullyConnected"
        if span.algorithm == "halving-doubling":  # On a switch, data crosses two links.
            topology, latency = "Switch", latency / 2
        columns.append((topology, span.ranks, f"{bandwidth:.9g}", f"{latency:.9g}"))
    lists = (f"[ {', '.join(map(str, column))} ]" for column in zip(*columns, strict=True))
    keys = ("topology", "npus_count", "bandwidth", "latency")
    system = {
        "scheduling-policy": "LIFO",
        "endpoint-delay": ENDPOINT_DELAY_NS,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
        **{
            f"{name}-implementation": [_IMPLEMENTATIONS[algorithm] for algorithm in links.algorithms(kind)]
            for name, kind in _KINDS.items()
        },
        "collective-optimization": "baseline" if len(links.dimensions) == 1 else "localBWAware",
        **{"local-mem-bw": 100000, "boost-mode": 0, "replay-only": 0, "roofline-enabled": 0, "peak-perf": 100},
    }
    return {
        "network.yml": f"# {network}\n"
        + "".join(f"{key}: {values}\n" for key, values in zip(keys, lists, strict=True)),
        "system.json": json.dumps(system, indent=1) + "\n",
    }


def _run_line(prefix: str, *, groups: bool) -> str:
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
  echo "$simulator: not found; set ASTRA_SIM to the path of the ASTRA-sim program {_BINARY}," \\
    "built from https://github.com/astra-sim/astra-sim (./build/astra_analytical/build.sh)" >&2
  exit 2
fi
"$simulator" \\
  {f" {chr(92)}{chr(10)}  ".join(files)}
"""


_LIST = re.compile(r"^(\w+): *\[([^\]]*)\] *$", re.MULTILINE)
_KNOWN = re.compile(r"(one)?(ring|direct\d*|halvingDoubling)|doubleBinaryTree", re.IGNORECASE | re.ASCII)


def network_files_of(prefix: str) -> tuple[Path, Path] | None:
    network, system = Path(f"{prefix}.network.yml"), Path(f"{prefix}.system.json")
    return (network, system) if network.is_file() and system.is_file() else None


def described_network(prefix: str) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError, UsageError):
        first = Path(f"{prefix}.network.yml").read_text("utf-8").partition("\n")[0].removeprefix("# ")
        parse_network(first)
        return first
    return str(DEFAULT)


def endpoint_delay_of(system: Path) -> float:
    with contextlib.suppress(*UNREADABLE, AttributeError, TypeError, ValueError):
        return float(msgspec.json.decode(system.read_bytes()).get("endpoint-delay", 10))
    return 10.0


def flaws_of_files(files: tuple[Path, Path], ranks: int) -> Iterator[str]:
    """Yield the problems in two network files that would stop ASTRA-sim early if it simulated this number of ranks."""
    lists = dimensions_of(files[0].read_text(errors="replace"))
    counts = [int(text) if text.isdecimal() else 0 for text in lists.get("npus_count", [])]
    name = files[0].name
    if not counts or len({len(lists.get(key, [])) for key in ("topology", "npus_count", "bandwidth", "latency")}) > 1:
        yield f"{name}: topology, npus_count, bandwidth and latency must be lists of equal length"
    elif prod(counts) != ranks:
        yield f"{name}: npus_count is {' times '.join(map(str, counts))}, but the set has {ranks:,} ranks"
    try:
        system: Any = msgspec.json.decode(files[1].read_bytes())
        algorithms = {key: value for key, value in system.items() if key.endswith("-implementation")}
    except (*UNREADABLE, AttributeError):
        yield f"{files[1].name}: not a JSON object"
        return
    for key, value in algorithms.items():
        if not isinstance(value, list) or not all(isinstance(name, str) and _KNOWN.fullmatch(name) for name in value):
            yield f"{files[1].name}: {key} is {value!r}"
        elif counts and len(value) > len(counts):
            yield f"{files[1].name}: {key} has {len(value)} algorithms for {len(counts)} dimensions"
        elif any("alving" in name and count & (count - 1) for name, count in zip(value, counts, strict=False)):
            yield f"{files[1].name}: {key} is halvingDoubling, but the dimension's ranks are not a power of two"


def same_files(files: tuple[Path, Path], network: Network, links: AstraLinks) -> bool:
    texts = _network_files(network, links)
    try:
        system = msgspec.json.decode(files[1].read_bytes())
    except UNREADABLE:
        return False
    lists = dimensions_of(files[0].read_text(errors="replace"))
    return lists == dimensions_of(texts["network.yml"]) and system == json.loads(texts["system.json"])


def dimensions_of(text: str) -> dict[str, list[str]]:
    return {key: [word.strip() for word in values.split(",")] for key, values in _LIST.findall(text)}
