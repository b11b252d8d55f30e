"""Measure the cost of `etplus record`. Compare step times before, in and after the window with step times in runs
without the recorder.

    python benchmarks/bench_record.py                    # takes minutes
    python benchmarks/bench_record.py --rounds 5 --only train

The programs come from tests/programs_to_record.py. Steps of these programs take less than a millisecond, so that the
cost per step and per operator is visible. All times are CPU times, summed over the threads of the process. Each figure
is the median over all runs of the median step time in a run. `start` and `end` are the one-time extra costs of the
steps at the start and end of the window. "×" is the ratio to the same steps without the recorder. "+ µs" is the
difference.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from programs_to_record import TRAIN  # noqa: E402

PROGRAMS = {"train": "train", "inference": "inference", "compiled": "compiled"}
WARM, FIRST, LAST, STEPS = 40, 240, 249, 520
# Number of steps on each side of a window edge that are attributed to the start or end of the window.
EDGE = 3

_CLOCK = """
import atexit, json, sys, time, torch
times, randn = [], torch.randn
def clocked(*sizes, **options):  # Each step of the program begins with this operator.
    times.append(time.process_time_ns())
    return randn(*sizes, **options)
torch.randn = clocked
atexit.register(lambda: json.dump(times, open(TIMES, "w")))
"""


def step_times(python: str, kind: str, *, recorded: bool) -> list[int]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = folder / "program.py"
        program.write_text(f"TIMES = {str(folder / 'times.json')!r}\n{_CLOCK}\n{TRAIN}")
        words = [python, str(program), kind, str(STEPS), "1", "-1"]
        if recorded:
            window = f"{FIRST}-{LAST}"
            words = [
                sys.executable,
                "-m",
                "etplus",
                "record",
                "--steps",
                window,
                "-o",
                str(folder / "out"),
                "--",
                *words,
            ]
        done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        if done.returncode:
            raise SystemExit(
                f"{kind}: {done.stderr.strip().splitlines()[-1]}; use --python to choose a Python that has PyTorch"
            )
        if recorded and not (folder / "out" / "rank-0.kineto.json.gz").exists():
            raise SystemExit(f"{kind}: etplus record wrote no trace")
        times: list[int] = json.loads((folder / "times.json").read_text())
    return [later - earlier for earlier, later in pairwise(times)]


def phases(times: list[int]) -> dict[str, float]:
    """Return the median step time before, in and after the window, and the extra time at its start and end, all in
    ns."""
    parts = {
        "before": times[WARM : FIRST - EDGE], "in": times[FIRST + EDGE : LAST - EDGE], "after": times[LAST + WARM :],
    }  # fmt: skip
    found: dict[str, float] = {name: median(part) for name, part in parts.items()}
    start, end = times[FIRST - EDGE : FIRST + EDGE], times[LAST - EDGE : LAST + EDGE]
    return found | {"start": sum(start) - EDGE * (found["before"] + found["in"]),
                    "end": sum(end) - EDGE * (found["in"] + found["after"])}  # fmt: skip


def compare(python: str, kind: str, rounds: int) -> dict[str, tuple[float, float]]:
    """Return the median time in ns of each phase, for runs without and with the recorder. Runs with and without the
    recorder alternate."""
    runs: list[list[dict[str, float]]] = [[], []]
    for _ in range(rounds):
        for recorded in (False, True):
            runs[recorded].append(phases(step_times(python, kind, recorded=recorded)))
    return {name: (median(run[name] for run in runs[0]), median(run[name] for run in runs[1])) for name in runs[0][0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=PROGRAMS, nargs="+", default=list(PROGRAMS))
    options = parser.parse_args()
    print("program       step µs    before + µs        in   + µs     after + µs  start ms  end ms")
    for name in options.only:
        found = compare(options.python, PROGRAMS[name], options.rounds)
        parts = [
            f"{with_ / without:9.3f}× {(with_ - without) / 1e3:5,.0f}"
            for without, with_ in (found[phase] for phase in ("before", "in", "after"))
        ]
        edges = [(found[edge][1] - found[edge][0]) / 1e6 for edge in ("start", "end")]
        print(f"{name:12}{found['before'][0] / 1e3:9,.1f}{''.join(parts)}{edges[0]:10,.1f}{edges[1]:8,.1f}", flush=True)


if __name__ == "__main__":
    main()
