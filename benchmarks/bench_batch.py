"""Measure how long it takes to link a job of 32 ranks with one and with two workers. Run it with `make bench`.

    python benchmarks/bench_batch.py [--ranks N] [--times N] [--runs N]

The ranks are renumbered copies of the four dlrm ranks in the folder next to the repository (or of a fixture if they are
missing). Each figure is the best of several alternating runs of `etplus link FOLDER`. For comparison, the benchmark
also runs a simple loop, first in one process and then in two at the same time. The loop shows how much a second core
helps on this machine.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from repeat_pair import repeat_pair

ROOT = Path(__file__).parents[1]
REAL = ROOT.parent / "shared" / "traces" / "gpu-pairs"
FIXTURE = ROOT / "fixtures" / "pairs" / "gpu_shaped_from_cpu"
BAR = 1.7
WORKERS = (1, 2)
RANK = re.compile(rb'("rank"\s*:\s*)\d+(\s*,\s*"world_size"\s*:\s*)\d+')
BATCH = "import sys; from etplus.cli.main import main; sys.exit(main())"
LOOP = "n = 0\nfor i in range(5_000_000): n += i"


def write_job(folder: Path, ranks: int, times: int) -> float:
    """Write `rank-N.et.json` and `rank-N.kineto.json` for all ranks. Return the total size of these files in MB."""
    real = [REAL / f"dlrm.rank{rank}" for rank in range(4)]
    prefixes = real if Path(f"{real[0]}.et.json.gz").exists() else [FIXTURE]
    made = [
        repeat_pair(Path(f"{prefix}.et.json.gz"), Path(f"{prefix}.kineto.json.gz"), times, folder / f".{prefix.name}")
        for prefix in prefixes
    ]
    for rank in range(ranks):
        et, kineto = made[rank % len(made)]
        shutil.copyfile(et, folder / f"rank-{rank}.et.json")
        text = RANK.sub(rb"\g<1>%d\g<2>%d" % (rank, ranks), kineto.read_bytes(), count=1)
        (folder / f"rank-{rank}.kineto.json").write_bytes(text)
    return sum(path.stat().st_size for path in folder.glob("rank-*")) / 1e6


def seconds_of_batch(job: Path, workers: int) -> float:
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-c", BATCH, "link", str(job), "--output", out, "--jobs", str(workers)]
        start = time.perf_counter()
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        return time.perf_counter() - start


def speed_of_two() -> float:
    """Return the speedup of two parallel processes over a single process."""
    taken = []
    for count in WORKERS:
        start = time.perf_counter()
        running = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(count)]
        for process in running:
            process.wait()
        taken.append(time.perf_counter() - start)
    return 2 * taken[0] / taken[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=32, help="number of ranks in the job (default: 32)")
    parser.add_argument("--times", type=int, default=2, help="how many times to repeat each rank's trace (default: 2)")
    parser.add_argument("--runs", type=int, default=2, help="number of runs; the best run is reported (default: 2)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        megabytes = write_job(Path(folder), arguments.ranks, arguments.times)
        print(f"{arguments.ranks} ranks of {megabytes / arguments.ranks:.1f} MB, {os.cpu_count()} cores", flush=True)
        taken: dict[int, list[float]] = {workers: [] for workers in WORKERS}
        loops = []
        for _ in range(arguments.runs):
            for workers in WORKERS:
                taken[workers].append(seconds_of_batch(Path(folder), workers))
            loops.append(speed_of_two())
    one, two = (min(taken[workers]) for workers in WORKERS)
    for workers, seconds in ((1, one), (2, two)):
        print(
            f"{workers} worker{'s' if workers > 1 else ' '} {seconds:7.2f} s {arguments.ranks / seconds:7.1f} ranks/s"
        )
    ratio = one / two
    print(f"two simultaneous bare loops do {max(loops):.2f} times the work of a single loop")
    print(f"2 workers / 1 worker: {ratio:.2f} (bar {BAR}: {'met' if ratio >= BAR else 'MISSED'})")


if __name__ == "__main__":
    main()
