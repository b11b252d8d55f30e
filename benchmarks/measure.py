"""Compare the times of operators measured on this machine with recorded times, and score predictions that use them.

    python benchmarks/measure.py programs                            # predict a larger batch of each program
    python benchmarks/measure.py ratio TRACE…                        # ratio of executed to recorded times in ET+ files
    python benchmarks/measure.py batch SMALL.json.gz LARGE.json.gz   # predict the larger batch from the smaller one
    python benchmarks/measure.py repro TRACE… --count 100            # run scripts of random operators

Needs PyTorch. The script uses one thread. Other work on the machine distorts all results. The speed of a shared machine
varies from second to second. Therefore, `programs` alternates between recordings at the two batch sizes. Then it
measures operators, predicts each recording at the larger batch size from the recording before it, and prints median
errors.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import etplus
import numpy as np
import torch
from etplus.planning.costs.end_to_end import predict
from etplus.planning.measure.measured import Measured
from etplus.planning.measure.recorded_calls import RecordedCall, recorded_calls
from etplus.planning.measure.run_program import op_script
from etplus.planning.measure.timing import Options, measure
from etplus.planning.reshape.reshape import reshaped
from etplus.planning.reshape.shape_change import ShapeChange, batch_change
from etplus.trace.trace import Trace
from predict_programs import fitted, step
from programs import PROGRAMS, WAIT, WARM, Sizes, recorded

ONE_THREAD = Options(threads=1)
SMALL, LARGE = 8, 32
SEQUENCE, WIDTH, STEPS = 24, 64, 3
POOLED = 4


def ratio(files: Sequence[str]) -> None:
    """Print the share of the time that was executed, and the ratio of executed to recorded times, per trace and in
    total."""
    pooled = list[float]()
    for file in files:
        found = measure(etplus.load(file), options=ONE_THREAD)
        here = found.ratios()
        pooled += here
        middle = f"ratio {np.median(here):.2f}" if here else ""
        print(
            f"{Path(file).name:40} executed {found.executed:.1%}  calls over 50 us {len(here):4}  {middle}", flush=True
        )
    print(f"pooled: median {np.median(pooled):.2f} over {len(pooled)} calls" if pooled else "no call takes over 50 us")


def batch(small: str, large: str) -> None:
    """Predict the larger batch from the smaller one, with and without measured times."""
    size = re.search(r"__b(\d+)", large)
    if size is None:
        raise SystemExit(f"{large}: the file name has no batch size, such as __b32")
    before, after, change = etplus.load(small), etplus.load(large), batch_change(int(size[1]))
    measured = measure(before, reshaped=[reshaped(before, change).trace], options=ONE_THREAD)
    for name, known in (("without", None), ("with", measured)):
        error, sources = _error(before, after, change, known)
        shares = ", ".join(f"{share:.0%} {source}" for source, share in sources.items())
        print(f"{Path(small).name:32} {name:8} {error:+7.1%}  {shares}", flush=True)


def _error(
    small: Trace, large: Trace, change: ShapeChange, known: Measured | None
) -> tuple[float, Mapping[str, float]]:  # fmt: skip
    done = predict(small, fitted([small]), shape=change, measured=known, keep_outliers=True, force=True, host="model")
    return done.predicted_ns / done.iterations / 1e6 / step(large, fitted([large])).ms - 1, done.sources


def programs(only: str, rounds: int, pairs: int) -> None:
    """Predict each program at the larger batch size from the smaller one. Compare measured with recorded operator
    times."""
    torch.set_num_threads(1)
    pooled, errors = list[float](), list[tuple[float, float]]()
    for name in PROGRAMS:
        if only not in name:
            continue
        without, given, found = _program(name, rounds, pairs)
        ratios = found.ratios()
        middle = f"  ratio {np.median(ratios):.2f} of {len(ratios)}" if ratios else ""
        print(
            f"{name:12} without {without:+7.1%}  with {given:+7.1%}  executed {found.executed:.1%}{middle}", flush=True
        )
        pooled += ratios
        errors.append((abs(without), abs(given)))
    within = sum(given <= 0.1 for _, given in errors)
    better = sum(given < without for without, given in errors)
    print(f"{within} of {len(errors)} within 10%, {better} better with measured times than without")
    if pooled:
        print(f"executed / recorded time: median {np.median(pooled):.2f} over {len(pooled)} calls longer than 50 us")


def _program(name: str, rounds: int, pairs: int) -> tuple[float, float, Measured]:
    """Return the median error with recorded times, the median error with measured times, and the measured operators."""
    change, recordings = batch_change(LARGE), [_pair(name)]
    derived = reshaped(recordings[0][0], change).trace
    recordings += [_pair(name) for _ in range(rounds * pairs)]

    def measured(*traces: Trace, rounds: int) -> Measured:
        return measure(traces, reshaped=[derived], options=Options(threads=1, rounds=rounds))

    errors = [
        [_error(small, large, change, known)[0] for known in (None, measured(small, rounds=rounds))]
        for small, large in recordings
    ]
    both = measured(*(trace for pair in recordings[-POOLED:] for trace in pair), rounds=1)
    without, given = np.median(errors, axis=0)
    return without, given, both


def _pair(name: str) -> tuple[Trace, Trace]:
    """Record a program at both batch sizes, one directly after the other."""
    sizes = [Sizes(batch, SEQUENCE, WIDTH, WAIT + WARM + STEPS) for batch in (SMALL, LARGE)]
    small, large = (recorded(name, size, STEPS) for size in sizes)
    return small, large


def repro(files: Sequence[str], count: int) -> None:
    """Print how many operator scripts run successfully in a Python interpreter without etplus."""
    able = [
        (Path(file).name, one)
        for file in files
        for _, one in recorded_calls(etplus.load(file))
        if isinstance(one, RecordedCall)
    ]
    with tempfile.TemporaryDirectory() as folder:
        for number, (source, one) in enumerate(random.Random(0).sample(able, min(count, len(able)))):
            text = op_script(one, 0.0, source, "repro.py", device="cpu", threads=1)
            (Path(folder) / f"op{number}.py").write_text(text.replace("min_time=0.2", "min_time=0.005"))
        (Path(folder) / "all.py").write_text(RUN_ALL)
        subprocess.run([sys.executable, "-I", "all.py"], cwd=folder, check=True)


# This program runs all scripts one after another, so that PyTorch is imported only once.
RUN_ALL = """
import pathlib, runpy, sys
sys.modules["etplus"] = None
scripts, failed = sorted(pathlib.Path(".").glob("op*.py")), []
for script in scripts:
    try:
        runpy.run_path(str(script), run_name="__main__")
    except Exception as error:
        failed.append((script.read_text().partition("\\n")[0], error))
print(f"{len(scripts) - len(failed)} of {len(scripts)} scripts ran", *failed, sep="\\n")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("programs", "ratio", "batch", "repro"))
    parser.add_argument("files", nargs="*")
    parser.add_argument("--only", default="", help="run only programs with this string in their names")
    parser.add_argument("--rounds", type=int, default=4, help="how many times to measure the operators of a program")
    parser.add_argument(
        "--pairs", type=int, default=3, help="number of recordings per round, for each program and batch size"
    )
    parser.add_argument("--count", type=int, default=100)
    arguments = parser.parse_args()
    if arguments.what != "programs" and not arguments.files:
        parser.error(f"{arguments.what} needs traces")
    if arguments.what == "programs":
        programs(arguments.only, arguments.rounds, arguments.pairs)
    elif arguments.what == "ratio":
        ratio(arguments.files)
    elif arguments.what == "batch":
        batch(*arguments.files)
    else:
        repro(arguments.files, arguments.count)


if __name__ == "__main__":
    main()
