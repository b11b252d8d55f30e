"""Compare the time and memory to link a pair with loading its files in orjson. Run it with `make bench`.

Each figure is the best of several runs, each in a separate process. The inputs are the pair `resnet103` next to the
repository and a pair that repeats it ten times. If resnet103 is missing, the benchmark repeats a fixture until it
reaches a similar size.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
REAL = ROOT.parent / "shared" / "traces" / "gpu-pairs" / "resnet103"
FIXTURE, FIXTURE_TIMES = ROOT / "fixtures" / "pairs" / "gpu_shaped_from_cpu", 25
MORE = 10
BAR_TIME, BAR_GROWTH = 0.5, 1.3
WIDTH = 80

TASKS = {
    "load": "orjson.loads of both files",
    "load_gc_off": "orjson.loads, garbage collector off",
    "link": "etplus: read, link, write",
    "command": "the trace-link command",
}


@dataclass(frozen=True)
class Figure:
    """Cost of a task: its time in seconds, and the peak resident size of its process in MB."""

    seconds: float
    megabytes: float


def prepare(et: str, kineto: str, times: str, folder: str) -> dict[str, Any]:
    from etplus.schemas.execution_trace.read_et import read_execution_trace
    from etplus.schemas.kineto.read_kineto import read_kineto
    from repeat_pair import repeat_pair

    pair = repeat_pair(Path(et), Path(kineto), int(times), Path(folder))
    nodes, events = len(read_execution_trace(pair[0])), read_kineto(pair[1]).event_count
    sizes = [f"{path.stat().st_size / 1e6:.1f} MB" for path in pair]
    line = f"ET {sizes[0]}, {nodes:,} nodes; Kineto {sizes[1]}, {events:,} events"
    return {"pair": [*map(str, pair)], "line": line, "count": nodes + events}


def perform(task: str, et: str, kineto: str, output: str) -> dict[str, float]:
    import orjson
    from etplus.cli.main import trace_link
    from etplus.linker import link

    cores = os.cpu_count() or 1

    def load() -> list[Any]:
        return [orjson.loads(Path(path).read_bytes()) for path in (et, kineto)]

    work: dict[str, Callable[[], Any]] = {
        "load": load,
        "load_gc_off": load,
        "link": lambda: link(et, kineto, jobs=cores).write(output, jobs=cores),
        "command": lambda: trace_link(["--et-file", et, "--kineto-file", kineto, "--output", output]),
    }
    if task == "load_gc_off":
        gc.disable()
    start = time.perf_counter()
    kept = work[task]()  # Keep the result alive until the clock stops.
    seconds = time.perf_counter() - start
    del kept
    return {"seconds": seconds, "megabytes": peak_megabytes()}


def peak_megabytes(who: int = resource.RUSAGE_SELF) -> float:
    """Return the peak resident size in MB of this process, or of its largest child process that has ended."""
    return resource.getrusage(who).ru_maxrss / (1024 if sys.platform == "linux" else 1024**2)


def in_child(task: str, *arguments: object) -> tuple[dict[str, Any], float]:
    command = [sys.executable, __file__, "--child", task, *map(str, arguments)]
    start = time.perf_counter()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(done.stdout.splitlines()[-1]), time.perf_counter() - start


def measure(pair: list[str], output: Path, runs: int) -> dict[str, Figure]:
    taken: dict[str, list[Figure]] = {task: [] for task in TASKS}
    for task in list(TASKS) * runs:
        measured, whole = in_child(task, *pair, output)
        taken[task].append(Figure(whole if task == "command" else measured["seconds"], measured["megabytes"]))
    return {t: Figure(min(f.seconds for f in fs), min(f.megabytes for f in fs)) for t, fs in taken.items()}


def table(figures: dict[str, list[Figure]], scales: list[str]) -> list[str]:
    """Return a table with the time, the time relative to orjson, and the peak memory for all tasks and sizes."""
    lines = [f"{'':35}" + "".join(f"{scale:>22}" for scale in scales)]
    lines.append(f"{'':35}" + f"{'s':>8}{'ratio':>6}{'MB':>8}" * len(scales))
    for task, meaning in TASKS.items():
        cells = ""
        for figure, base in zip(figures[task], figures["load"], strict=True):
            cells += f"{figure.seconds:8.3f}{figure.seconds / base.seconds:6.2f}{figure.megabytes:8.0f}"
        lines.append(f"{meaning:35}{cells}")
    return lines


def verdicts(figures: dict[str, list[Figure]], counts: list[int], scales: list[str]) -> list[str]:
    """Return one line per comparison. If the comparison has a threshold, the line shows whether it is met."""
    lines = []
    for at, scale in enumerate(scales):
        link = figures["link"][at]
        for task, state in (("load", "on"), ("load_gc_off", "off")):
            time_ratio, memory = link.seconds / figures[task][at].seconds, link.megabytes / figures[task][at].megabytes
            line = f"link / orjson, collector {state}, {scale}: time {time_ratio:.2f}, memory {memory:.2f}"
            lines.append(line + (met(time_ratio, BAR_TIME) if task == "load" else ""))
    each = [figure.seconds / count for figure, count in zip(figures["link"], counts, strict=True)]
    growth = each[-1] / each[0]
    line = f"time per event: {1e6 * each[0]:.2f} µs, at {scales[-1]} {1e6 * each[-1]:.2f} µs: {growth:.2f}"
    return [*lines, line + met(growth, BAR_GROWTH)]


def met(value: float, bar: float) -> str:
    return f" (bar {bar}: {'met' if value <= bar else 'MISSED'})"


def default_pair() -> tuple[Path, int]:
    return (REAL, 1) if Path(f"{REAL}.et.json.gz").exists() else (FIXTURE, FIXTURE_TIMES)


def main() -> None:
    import history

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="number of runs; the best run is reported (default: 3)")
    parser.add_argument(
        "--more",
        type=int,
        default=MORE,
        help="size of the second pair as a multiple of the first (default: %(default)s)",
    )
    parser.add_argument("--pair", type=Path, help="link PAIR.et.json.gz and PAIR.kineto.json.gz instead")
    parser.add_argument("--times", type=int, default=1, help="how many times to repeat the --pair input (default: 1)")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        task, *more = arguments.child
        print(json.dumps(prepare(*more) if task == "prepare" else perform(task, *more)), flush=True)
        return
    prefix, times = arguments.pair, arguments.times
    if prefix is None:
        prefix, times = default_pair()
    print(f"{prefix.name}{f' {times} times' if times > 1 else ''}; best of {arguments.runs} runs, one process each")
    with tempfile.TemporaryDirectory() as folder:
        pairs = []
        for scale in (1, arguments.more):
            made = f"{prefix}.et.json.gz", f"{prefix}.kineto.json.gz", times * scale, Path(folder) / str(scale)
            pairs.append(in_child("prepare", *made)[0])
            print(f"{scale:>3}x  {pairs[-1]['line']}"[:WIDTH], flush=True)
        output = Path(folder) / "plus.json"
        measured = [measure(p["pair"], output, arguments.runs) for p in pairs]
        ratios = history.measure(history.lay_out(pairs[-1]["pair"], Path(folder)), arguments.runs)
    figures = {task: [one[task] for one in measured] for task in TASKS}
    scales = ["1x", f"{arguments.more}x"]
    print("\n".join(["", *table(figures, scales), "", *verdicts(figures, [p["count"] for p in pairs], scales)]))
    print("\n".join(["", *history.lines(history.read_history(), ratios)]))


if __name__ == "__main__":
    main()
