"""Measure the speed and memory of the replay on a large graph. Compare the replay with networkx's longest path on a
graph that is a tenth of the size.

    python benchmarks/bench_replay.py [--nodes N]

The benchmark links the pair `resnet103` next to the repository (or a fixture if it is missing). The linked trace is
repeated in memory until it has a total of N nodes and runtime calls (default: one million). The times do not include
reading files. Each figure comes from a separate process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from bench_link import peak_megabytes
from etplus.linker import link
from etplus.timeline.constants import fit_constants
from etplus.timeline.critical import critical_path
from etplus.timeline.graph_building import build_graph
from etplus.timeline.graph_replay import replay
from etplus.trace.trace import Trace

ROOT = Path(__file__).parents[1]
REAL = ROOT.parent / "shared" / "traces" / "gpu-pairs" / "resnet103"
FIXTURE = ROOT / "fixtures" / "pairs" / "gpu_shaped_from_cpu"
NODES = 1_000_000
BAR_SECONDS, BAR_MEGABYTES = 10, 2000
_PAUSE_NS = 100_000
_SHIFTED = ("id", "parent", "inter_thread_dep", "correlation")
_TILED = (
    "kind", "structural", "name", "category", "dur", "exclusive", "rf_id", "fw_parent", "seq_id",
    "scope", "fw_tid", "thread", "link", "stream", "device", "kineto_event",
)  # fmt: skip


def repeated(once: Trace, nodes: int) -> Trace:
    """Return a trace that repeats the timeline of another trace. Each copy starts after the previous one ends."""
    count, times = len(once), -(-nodes // len(once))
    copy = np.repeat(np.arange(times), count)
    begin, end = once.span
    columns: dict[str, Any] = {name: np.tile(getattr(once, name), times) for name in _TILED}
    for name in _SHIFTED:
        value = np.tile(getattr(once, name), times)
        columns[name] = np.where(value > 0, value + copy * (int(getattr(once, name).max()) + 1), value)
    rows = np.tile(once.parent_row, times)
    ts = np.tile(once.ts, times)
    edges = np.tile(once.edges, (times, 1))
    edges[:, :2] += (np.repeat(np.arange(times), len(once.edges)) * count)[:, None]
    return replace(
        once, **columns, parent_row=np.where(rows >= 0, rows + copy * count, -1), edges=edges, sync_dep={}, comm={},
        ts=np.where(ts >= 0, ts + copy * (end - begin + _PAUSE_NS), -1),
    )  # fmt: skip


def perform(task: str, nodes: int) -> dict[str, Any]:
    prefix = REAL if Path(f"{REAL}.et.json.gz").exists() else FIXTURE
    once = link(f"{prefix}.et.json.gz", f"{prefix}.kineto.json.gz")
    document = repeated(once, nodes)
    if task == "nothing":
        return {"rows": len(document), "megabytes": peak_megabytes(), "pair": prefix.name}
    if task == "networkx":
        return _networkx(document)
    begin = time.perf_counter()
    graph = build_graph(document)
    built = time.perf_counter()
    constants = fit_constants(graph)
    fitted = time.perf_counter()
    result = replay(graph, constants)
    replayed = time.perf_counter()
    critical_path(result)
    walked = time.perf_counter()
    return {
        "rows": len(document), "points": len(graph), "edges": len(graph.edges), "megabytes": peak_megabytes(),
        "seconds": {"build the graph": built - begin, "fit the constants": fitted - built,
                    "replay": replayed - fitted, "critical path": walked - replayed},
        "makespan": result.makespan_ns,
    }  # fmt: skip


def _networkx(document: Trace) -> dict[str, Any]:
    """Compute the longest path with networkx. If several edges connect the same nodes, keep the edge with the largest
    lag."""
    import networkx

    graph = build_graph(document)
    result = replay(graph, fit_constants(graph))
    own = time.perf_counter()
    replay(graph, fit_constants(graph))
    own = time.perf_counter() - own
    edges = graph.edges
    order = np.argsort(result.lag, kind="stable")
    drawn = networkx.DiGraph()
    columns = (edges.source[order].tolist(), edges.target[order].tolist(), result.lag[order].tolist())
    drawn.add_weighted_edges_from(zip(*columns, strict=True))
    begin = time.perf_counter()
    length = networkx.dag_longest_path_length(drawn)
    theirs = time.perf_counter() - begin
    return {"rows": len(document), "own": own, "networkx": theirs, "same": bool(length == result.time.max())}


def in_child(task: str, nodes: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", task, "--nodes", str(nodes)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=NODES, metavar="N", help=f"number of nodes (default: {NODES:,})")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(perform(arguments.child, arguments.nodes)))
        return
    before, done = (in_child(task, arguments.nodes) for task in ("nothing", "replay"))
    print(f"replay of {before['pair']}, repeated: {done['rows']:,} nodes, {done['edges']:,} edges")
    for name, seconds in done["seconds"].items():
        print(f"  {name:20}{seconds:8.2f} s")
    total = sum(done["seconds"].values())
    print(f"  {'together':20}{total:8.2f} s   bar {BAR_SECONDS} s   {done['rows'] / total:,.0f} nodes/s")
    print(f"  {'peak memory':20}{done['megabytes']:8,.0f} MB  bar {BAR_MEGABYTES:,} MB  "
          f"(including {before['megabytes']:,.0f} MB for the document)")  # fmt: skip
    small = in_child("networkx", arguments.nodes // 10)
    ratio = small["networkx"] / small["own"]
    verdict = "equal path lengths" if small["same"] else "DIFFERENT PATH LENGTHS"
    print(f"networkx dag_longest_path_length on {small['rows']:,} nodes: {small['networkx']:.2f} s, "
          f"{ratio:.1f}× the\ntime of fitting and replaying; {verdict}")  # fmt: skip


if __name__ == "__main__":
    main()
