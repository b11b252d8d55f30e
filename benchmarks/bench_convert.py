"""Measure the speed and memory of the converters on a large ET+ file. The baseline only serializes the same messages.

    python benchmarks/bench_convert.py [--nodes N]

The benchmark repeats the pair `resnet103` next to the repository (or a fixture if it is missing) until the ET+ file has
a total of N nodes and runtime calls (default: one million). Each figure comes from a separate process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_link import peak_megabytes

ROOT = Path(__file__).parents[1]
REAL = ROOT.parent / "shared" / "traces" / "gpu-pairs" / "resnet103"
FIXTURE = ROOT / "fixtures" / "pairs" / "gpu_shaped_from_cpu"
NODES = 1_000_000
TASKS = {
    "link": "link the pair and write ET+",
    "read": "read the ET+ alone",
    "chakra": "--to chakra",
    "serialize": "only SerializeToString of the .et messages",
    "fold": "--to astra-sim",
    "graphml": "--to graphml",
    "chrome": "--to chrome",
    "check": "check of the .et",
    "back": ".et --to etplus",
}


def prepare(nodes: str, folder: str) -> dict[str, Any]:
    from etplus.linker import link
    from repeat_pair import repeat_pair

    prefix = REAL if Path(f"{REAL}.et.json.gz").exists() else FIXTURE
    pair = Path(f"{prefix}.et.json.gz"), Path(f"{prefix}.kineto.json.gz")
    times = -(-int(nodes) // len(link(*pair)))
    output = Path(folder) / "plus.json"
    link(*repeat_pair(*pair, times, Path(folder)), jobs=os.cpu_count() or 1).write(output)
    return {"pair": prefix.name, "times": times, "megabytes": output.stat().st_size / 1e6}


def perform(task: str, folder: str) -> dict[str, Any]:
    from etplus.converters.conversion import convert
    from etplus.converters.preflight import check
    from etplus.schemas.chakra.stream import read_chakra
    from etplus.schemas.etplus.read_etplus import read_etplus

    plus, et = Path(folder) / "plus.json", Path(folder) / "plus.0.et"
    pair = Path(folder) / "et.json", Path(folder) / "kineto.json"
    messages = list(read_chakra(et)[1]) if task == "serialize" else []
    work: dict[str, Callable[[], int]] = {
        "link": lambda: linked(pair, Path(folder) / "linked.json"),
        "read": lambda: len(read_etplus(plus)),
        "chakra": lambda: convert(plus, et).nodes,
        "serialize": lambda: len([message.SerializeToString() for message in messages]),
        "fold": lambda: one_rank(plus, Path(folder) / "fold.0.et"),
        "graphml": lambda: convert(plus, Path(folder) / "graph.graphml").nodes,
        "check": lambda: check(et).nodes,
        "chrome": lambda: convert(plus, Path(folder) / "chrome.json", to="chrome").nodes,
        "back": lambda: convert(et, Path(folder) / "back.json", to="etplus").nodes,
    }
    start = time.process_time()
    nodes = work[task]()
    seconds = time.process_time() - start
    return {"seconds": seconds, "nodes": nodes, "megabytes": peak_megabytes()}


def one_rank(plus: Path, output: Path) -> int:
    """Convert one rank as `convert` does for every rank in a job."""
    from etplus.converters.astra_sim import for_simulator, write_astra_sim
    from etplus.converters.collectives import agree, survey
    from etplus.schemas.etplus.read_etplus import read_etplus

    trace = read_etplus(plus)
    comms = for_simulator(agree([survey(trace, 0)])).ranks[0]
    return write_astra_sim(trace, output, comms).nodes


def linked(pair: tuple[Path, Path], output: Path) -> int:
    """Link the pair and write the ET+. Return the total number of nodes and runtime calls."""
    from etplus.linker import link

    trace = link(*pair)
    trace.write(output)
    return len(trace)


def in_child(*arguments: object) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--nodes",
        type=int,
        default=NODES,
        help="total number of nodes and runtime calls in the ET+ (default: %(default)s)",
    )
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        task, *more = arguments.child
        print(json.dumps(prepare(*more) if task == "prepare" else perform(task, *more)), flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        made = in_child("prepare", arguments.nodes, folder)
        print(f"{made['pair']} {made['times']} times: ET+ of {made['megabytes']:.0f} MB")
        print(f"{'':47}{'CPU s':>7}{'nodes':>10}{'nodes/s':>9}{'MB':>7}{'/ link':>8}")
        took_by_task = {}
        for task, meaning in TASKS.items():
            took = took_by_task[task] = in_child(task, folder)
            speed = took["nodes"] / took["seconds"]
            ratio = took["seconds"] / took_by_task["link"]["seconds"]
            figures = f"{took['seconds']:7.2f}{took['nodes']:10,}{speed:9,.0f}{took['megabytes']:7.0f}{ratio:8.2f}"
            print(f"{meaning:47}{figures}", flush=True)
        read, chakra, plain = (took_by_task[task] for task in ("read", "chakra", "serialize"))
        longer, more = chakra["seconds"] / plain["seconds"], chakra["megabytes"] - read["megabytes"]
        print(f"--to chakra, including reading, takes {longer:.1f}× the time of serialization")
        print(f"and {more:.0f} MB more memory than reading; holding all messages takes {plain['megabytes']:.0f} MB")


if __name__ == "__main__":
    main()
