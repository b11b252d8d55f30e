"""Measure the time and memory to link multi-gigabyte traces with one and two processes. Run it with `make bench`.

    python benchmarks/bench_big.py [--runs N] [--most MILLIONS] [--only recorded|repeated|growth]

`recorded` is a pair of about 1 GB, recorded with PyTorch by the script `record.py --set big` next to the repository. If
no pair can be recorded, the benchmark repeats the pair resnet103 (or a fixture) up to the same size. `repeated` is
resnet103, repeated until the Kineto trace reaches 900 MB. `growth` is resnet103, repeated to several sizes between 0.1
million and `--most` million events.

Each figure is the best of several alternating runs, each in a separate process. `orjson` is the cost of loading both
files, with the garbage collector off and on. `floor` is the cost of decoding both files into objects without fields and
writing the size of the output. Memory is the sum of the peak sizes of all processes. Pages that several processes share
are counted several times.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import GenericAlias
from typing import Any

from bench_link import FIXTURE, REAL, ROOT, Figure, met, peak_megabytes

RECORDER = ROOT.parent / "shared" / "tools" / "record.py"
RECORDED_MB, REPEATED_MB = 1000, 900
EVENTS_M = (0.1, 1.0)
JOBS = (1, 2)
BARS = {"recorded": (0.25, 0.30), "repeated": (0.40, 0.35)}
BAR_FLOOR, BAR_JOBS, BAR_GROWTH = 3.0, 1.5, 1.25


def perform(task: str, et: str, kineto: str, output: str) -> dict[str, float]:
    import orjson
    from etplus.linker import link

    if task.startswith("jobs"):  # Otherwise, the time would include freeing the old file.
        Path(output).unlink(missing_ok=True)
    start = time.perf_counter()
    kept: Any = None
    if task.startswith("jobs"):
        jobs = int(task.removeprefix("jobs"))
        link(et, kineto, jobs=jobs).write(output, jobs=jobs)
    elif task == "floor":
        _decode_and_write(et, kineto, Path(output))
    else:
        if task == "orjson off":
            gc.disable()
        kept = [orjson.loads(Path(path).read_bytes()) for path in (et, kineto)]
    seconds = time.perf_counter() - start
    del kept
    helpers = int(task.removeprefix("jobs")) - 1 if task.startswith("jobs") else 0
    megabytes = peak_megabytes() + helpers * peak_megabytes(resource.RUSAGE_CHILDREN)
    return {"seconds": seconds, "megabytes": megabytes}


def _decode_and_write(et: str, kineto: str, output: Path) -> None:
    import msgspec

    empty = msgspec.defstruct("Empty", [], gc=False)
    records = GenericAlias(list, (empty,))
    both = msgspec.defstruct("Both", [("nodes", records, []), ("traceEvents", records, [])])
    for path in (et, kineto):
        msgspec.json.decode(Path(path).read_bytes(), type=both)
    size, block = output.stat().st_size, bytes(1 << 20)
    with tempfile.TemporaryFile(dir=output.parent) as file:
        for at in range(0, size, len(block)):
            file.write(block[: size - at])


def in_child(*arguments: object) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def measure(tasks: list[str], pair: tuple[Path, Path], runs: int) -> dict[str, Figure]:
    output = pair[0].parent / "plus.json"
    taken: dict[str, list[Figure]] = {task: [] for task in tasks}
    for task in tasks * runs:
        taken[task].append(Figure(**in_child(task, *pair, output)))
    best = {t: Figure(min(f.seconds for f in fs), min(f.megabytes for f in fs)) for t, fs in taken.items()}
    for task, figure in best.items():
        print(f"  {task:<11}{figure.seconds:8.2f} s {figure.megabytes:8.0f} MB", flush=True)
    return best


def recorded_pair(folder: Path) -> tuple[Path, Path]:
    if RECORDER.exists() and importlib.util.find_spec("torch"):
        command = [sys.executable, str(RECORDER), "--set", "big", "--out", str(folder)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return folder / "big_tf.et.json", folder / "big_tf.kineto.json"
    return repeated(folder, megabytes=RECORDED_MB, both=True)


def repeated(folder: Path, *, megabytes: float = 0.0, events: float = 0.0, both: bool = False) -> tuple[Path, Path]:
    """Repeat resnet103 (or a fixture) until it has the requested Kineto size, total size, or number of events."""
    from etplus.schemas.kineto.read_kineto import read_kineto
    from etplus.schemas.text.files import load
    from repeat_pair import repeat_pair

    prefix = REAL if Path(f"{REAL}.et.json.gz").exists() else FIXTURE
    et, kineto = Path(f"{prefix}.et.json.gz"), Path(f"{prefix}.kineto.json.gz")
    if events:
        wanted, one = events, float(read_kineto(kineto).event_count)
    else:
        wanted, one = (
            megabytes * 1e6,
            float(sum(len(load(path).data) for path in ((et, kineto) if both else (kineto,)))),
        )
    return repeat_pair(et, kineto, max(round(wanted / one), 1), folder)


def compare(name: str, pair: tuple[Path, Path], runs: int) -> None:
    """Compare the cost of linking a pair with `orjson` and `floor`. Print the ratios and verdicts."""
    print(
        f"\n{name}: ET {pair[0].stat().st_size / 1e6:.0f} MB, Kineto {pair[1].stat().st_size / 1e6:.0f} MB", flush=True
    )
    figures = measure(["jobs1", "jobs2", "floor", "orjson off", "orjson on"], pair, runs)
    bar_time, bar_memory = BARS[name]
    for jobs in JOBS:
        link = figures[f"jobs{jobs}"]
        against = {task: link.seconds / figures[task].seconds for task in ("orjson off", "orjson on", "floor")}
        memory = link.megabytes / figures["orjson off"].megabytes
        print(f"{jobs} process{'es' if jobs > 1 else ''}: " + ", ".join(f"/ {t} {r:.2f}" for t, r in against.items()))
        if jobs == JOBS[-1]:
            print(f"  time {_met(against['orjson off'], bar_time)}, memory {_met(memory, bar_memory)}")
            if name == "recorded":
                print(f"  floor {_met(against['floor'], BAR_FLOOR)}")
    ratio = figures["jobs1"].seconds / figures["jobs2"].seconds
    print(f"1 process / 2: {ratio:.2f} (bar {BAR_JOBS}: {'met' if ratio >= BAR_JOBS else 'MISSED'})", flush=True)


def _met(value: float, bar: float) -> str:
    return f"{value:.2f}{met(value, bar)}"


def grow(folder: Path, sizes: list[float], runs: int) -> None:
    """Link pairs of several sizes, and print the time per event."""
    print("\ngrowth: seconds per million events, with two processes")
    each = []
    for size in sizes:
        with tempfile.TemporaryDirectory(dir=folder) as inner:
            pair = repeated(Path(inner), events=size * 1e6)
            print(f"{size:g} million events", flush=True)
            each.append(measure(["jobs2"], pair, runs if size < EVENTS_M[-1] * 2 else 1)["jobs2"].seconds / size)
    print(f"slowest / fastest of {', '.join(f'{e:.2f}' for e in each)} s per million events: ", end="")
    print(_met(max(each) / min(each), BAR_GROWTH))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2, help="number of runs; the best run is reported (default: 2)")
    parser.add_argument(
        "--most", type=float, default=3.0, help="size of the largest pair in millions of events (default: 3)"
    )
    parser.add_argument("--only", choices=("recorded", "repeated", "growth"), help="run only this part")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(perform(*arguments.child)), flush=True)
        return
    print(f"{os.cpu_count()} cores; best of {arguments.runs} runs, one process each")
    with tempfile.TemporaryDirectory() as folder:
        if arguments.only in (None, "recorded"):
            with tempfile.TemporaryDirectory(dir=folder) as inner:
                compare("recorded", recorded_pair(Path(inner)), arguments.runs)
        if arguments.only in (None, "repeated"):
            with tempfile.TemporaryDirectory(dir=folder) as inner:
                compare("repeated", repeated(Path(inner), megabytes=REPEATED_MB), arguments.runs)
        if arguments.only in (None, "growth"):
            grow(Path(folder), [*EVENTS_M, arguments.most], arguments.runs)


if __name__ == "__main__":
    main()
