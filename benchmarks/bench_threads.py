"""Measure `trace-link` and `etplus replay` on many threads and on one thread. Run it with `make bench`.

    python benchmarks/bench_threads.py [--runs N] [--shape THREADSxOPS ...]

Each figure is the best of several runs. The two traces in each pair have matching ids. The operators have long pauses
between them, so that the replay must find the thread that each operator waited for.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import orjson

SHAPES = ("2000x1", "128x100")
BAR = 3.0
PAUSE_US, LENGTH_US = 300, 200
START_NS = 1_700_000_000_000_000_000


def write_pair(threads: int, ops: int, folder: Path) -> tuple[Path, Path]:
    """Write the ET and the Kineto trace of a program with threads that run operators at different times."""
    events = []
    above = [(1, "process"), *((2 + thread, "thread") for thread in range(threads))]
    nodes: list[dict[str, Any]] = [
        {"id": number, "name": f"[pytorch|profiler|execution_trace|{kind}]", "ctrl_deps": 1, "attrs": []}
        for number, kind in above
    ]
    for op in range(ops):
        for thread in range(threads):
            rf_id = op * threads + thread + 1
            attrs = {"rf_id": rf_id, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": thread + 1, "fw_tid": 0}
            nodes.append({
                "id": threads + 1 + rf_id, "name": "aten::add", "ctrl_deps": 2 + thread,
                "attrs": [{"name": name, "type": "uint64", "value": value} for name, value in attrs.items()],
            })  # fmt: skip
            events.append({
                "ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 7, "tid": 1000 + thread, "dur": LENGTH_US,
                "ts": 1000 + op * (PAUSE_US + LENGTH_US) + thread % 97 * 3,
                "args": {"External id": rf_id, "Record function id": rf_id, "Ev Idx": rf_id - 1},
            })  # fmt: skip
    files = folder / f"{threads}x{ops}.et.json", folder / f"{threads}x{ops}.kineto.json"
    files[0].write_bytes(orjson.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 7, "nodes": nodes}))
    header = {"schemaVersion": 1, "baseTimeNanoseconds": START_NS, "displayTimeUnit": "ms"}
    files[1].write_bytes(orjson.dumps({**header, "traceEvents": events}))
    return files


def seconds(command: str, *arguments: str | Path) -> float:
    script = f"import sys; from etplus.cli.main import {command}; sys.exit({command}(sys.argv[1:]))"
    start = time.perf_counter()
    child = [sys.executable, "-c", script, *map(str, arguments)]
    subprocess.run(child, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def measure(shape: tuple[int, int], folder: Path, runs: int) -> dict[str, float]:
    et, kineto = write_pair(*shape, folder)
    plus = folder / "plus.json"
    commands = {
        "trace-link": ("trace_link", "--et-file", et, "--kineto-file", kineto, "--output", plus),
        "trace-link, no ET": ("trace_link", "--kineto-file", kineto, "--output", plus),
        "etplus replay": ("main", "replay", plus),
    }
    return {name: min(seconds(*command) for _ in range(runs)) for name, command in commands.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="number of runs; the best run is reported (default: 3)")
    parser.add_argument(
        "--shape", action="append", metavar="THREADSxOPS", help=f"shape of a trace (default: {' and '.join(SHAPES)})"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for shape in arguments.shape or SHAPES:
            threads, ops = map(int, shape.split("x"))
            many, one = (
                measure(of, Path(folder), arguments.runs) for of in ((threads, ops), (1, threads * ops))
            )  # fmt: skip
            print(f"{threads:,} threads x {ops:,} ops against {threads * ops:,} ops on one thread")
            for name, taken in many.items():
                ratio = taken / one[name]
                verdict = f"(bar {BAR}: {'met' if ratio <= BAR else 'MISSED'})"
                print(f"  {name:18}{taken:8.2f} s{one[name]:8.2f} s   ratio {ratio:.2f} {verdict}", flush=True)


if __name__ == "__main__":
    main()
