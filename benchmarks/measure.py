"""How far operators that are called on this machine are from their recording, and predictions that use them.

    python benchmarks/measure.py ratio TRACE…                        # ET+ files: executed over recorded, pooled
    python benchmarks/measure.py batch SMALL.json.gz LARGE.json.gz   # predict the larger batch from the smaller one
    python benchmarks/measure.py repro TRACE… --count 100            # scripts of operators by chance, run by themselves

Needs PyTorch. One thread; a machine with other work on it shows in all of it.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import etplus
import numpy as np
from etplus.predictor.end_to_end import predict
from etplus.predictor.measure.calls import RecordedCall
from etplus.predictor.measure.reader import recorded_calls
from etplus.predictor.measure.script import op_script
from etplus.predictor.measure.timing import Options, measure
from etplus.predictor.reshape import reshaped
from etplus.predictor.shape_change import batch_change
from predict_programs import fitted, step

ONE_THREAD = Options(threads=1)


def ratio(files: Sequence[str]) -> None:
    """Executed shares and executed over recorded times, for each trace and pooled."""
    pooled = list[float]()
    for file in files:
        found = measure(etplus.load(file), options=ONE_THREAD)
        here = found.ratios()
        pooled += here
        middle = f"ratio {np.median(here):.2f}" if here else ""
        print(
            f"{Path(file).name:40} executed {found.executed:.1%}  calls over 50 us {len(here):4}  {middle}", flush=True
        )
    print(f"pooled: median {np.median(pooled):.2f} of {len(pooled)} calls" if pooled else "no calls of over 50 us")


def batch(small: str, large: str) -> None:
    """The step at the larger batch, predicted from the smaller one with and without what was executed.

    Steps are sums of the medians of their parts on both sides, as in predict_programs.py.
    """
    size = re.search(r"__b(\d+)", large)
    if size is None:
        raise SystemExit(f"{large}: its name has no batch size, such as __b32")
    before, after, change = etplus.load(small), etplus.load(large), batch_change(int(size[1]))
    model = fitted([before])
    measured = measure(before, reshaped=[reshaped(before, change).trace], options=ONE_THREAD)
    truth = step(after, fitted([after])).ms
    for name, known in (("without", None), ("with", measured)):
        done = predict(before, model, shape=change, measured=known, keep_outliers=True, force=True)
        error = done.predicted_ns / done.iterations / 1e6 / truth - 1
        sources = ", ".join(f"{share:.0%} {source}" for source, share in done.sources.items())
        print(f"{Path(small).name:32} {name:8} {error:+7.1%}  {sources}", flush=True)


def repro(files: Sequence[str], count: int) -> None:
    """How many scripts of operators by chance end well, in a Python that sees nothing of this package."""
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
"""Runs scripts one after the other; PyTorch is imported once."""


def main() -> None:
    """Choose and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("ratio", "batch", "repro"))
    parser.add_argument("files", nargs="+")
    parser.add_argument("--count", type=int, default=100)
    arguments = parser.parse_args()
    if arguments.what == "ratio":
        ratio(arguments.files)
    elif arguments.what == "batch":
        batch(*arguments.files)
    else:
        repro(arguments.files, arguments.count)


if __name__ == "__main__":
    main()
