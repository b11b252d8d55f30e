"""Use the linker as a library, without PyTorch, to collect the data that a replay benchmark needs.

    python examples/replay_benchmark.py [ET KINETO]

A replay benchmark runs the operators of an Execution Trace again and compares their times. For every operator and every
set of input shapes, this example prints the number of calls and the CPU and GPU time in the recorded run. Without
arguments, it uses a pair of traces that comes with the package.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import etplus.fixtures
from etplus import link

DEMO = Path(etplus.fixtures.__file__).parent / "demo"


@dataclass
class Measured:
    """All calls of one operator with the same input shapes. Times are in µs."""

    cpu: list[float] = field(default_factory=list)
    gpu: float = 0.0
    certain: int = 0


def measured_operators(nodes: list[dict[str, Any]]) -> dict[tuple[str, str], Measured]:
    """Map each operator and its input shapes to exclusive CPU and GPU times. Skip annotations and autograd nodes."""
    operators: dict[tuple[str, str], Measured] = defaultdict(Measured)
    key_of: dict[int, tuple[str, str]] = {}
    for node in nodes:
        attributes = {attribute["name"]: attribute["value"] for attribute in node.get("attrs", [])}
        if "link" in node and attributes["op_schema"]:
            key = key_of[node["id"]] = (node["name"], str(node["inputs"]["shapes"]))
            operators[key].cpu.append(node["exclusive_dur"])
            operators[key].certain += node["link"] == "certain"
    for node in nodes:
        if node.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") and node["ctrl_deps"] in key_of:
            operators[key_of[node["ctrl_deps"]]].gpu += node["dur"]
    return operators


def main(et: str, kineto: str) -> None:
    result = link(et, kineto)
    print(result.report.to_text(), end="\n\n")
    operators = measured_operators(result.to_dict()["nodes"])
    print(f"{'operator':<36} {'calls':>5} {'certain':>7} {'median µs':>10} {'sum µs':>10} {'GPU µs':>10}  shapes")
    by_time = sorted(operators.items(), key=lambda item: (-sum(item[1].cpu) - item[1].gpu, item[0]))
    for (name, shapes), times in by_time[:20]:
        print(
            f"{name:<36.36} {len(times.cpu):>5} {times.certain:>7} {median(times.cpu):>10.1f} "
            f"{sum(times.cpu):>10.1f} {times.gpu:>10.1f}  {shapes:.40}"
        )


if __name__ == "__main__":
    main(*(sys.argv[1:3] or [str(DEMO / f"train_cpu.{kind}.json.gz") for kind in ("et", "kineto")]))
