"""Score predictions for typical programs at other sizes: derived shapes, and times at sizes between the fitted ones.

    python benchmarks/programs.py OUT
    python benchmarks/predict_programs.py OUT

The time of a step is the sum of its parts. Each part is the median over the recorded steps, because other processes on
the machine hardly affect these medians.

Shapes: for every two recordings of a program that differ in a single size, the benchmark derives shapes from the first
recording. The benchmark counts the calls that have the same shapes in the second recording. Times: the benchmark fits a
model on recordings at two batch sizes. The model predicts a batch size between them from each of the two recordings.
The prediction must be between the times at the two sizes, or its 80% interval must overlap this range.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from compare_shapes import compared
from etplus.planning.costs.end_to_end import predict
from etplus.planning.costs.fitting import FittedModel, fit
from etplus.planning.reshape.reshape import reshaped
from etplus.planning.reshape.shape_change import ShapeChange, SizeChange, batch_change
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.trace.errors import UsageError
from etplus.trace.trace import Trace

DIMENSIONS = ("batch", "seq", "hidden")
BETWEEN = ((4, 8, 16), (16, 32, 64))
"""Each entry has a small batch size to fit, a batch size to predict, and a large batch size to fit."""
Sizes = tuple[int, ...]


def sizes_of(path: Path) -> tuple[str, Sizes]:
    """Parse a file name into the program and its sizes (in the order of DIMENSIONS)."""
    program, _, rest = path.name.partition("__")
    return program, tuple(map(int, re.findall(r"\d+", rest.partition(".")[0])))


def shapes(program: str, recordings: Mapping[Sizes, Trace]) -> None:
    """Compare the derived shapes of a program with its recorded shapes. Print the counts."""
    counts, wrong = defaultdict[str, Counter[str]](Counter), Counter[str]()
    for (old, one), (new, other) in permutations(recordings.items(), 2):
        differing = [at for at in range(len(DIMENSIONS)) if old[at] != new[at]]
        if len(differing) != 1 or differing[0] == 2:  # A different width means a different model.
            continue
        (at,) = differing
        try:
            done = reshaped(one, ShapeChange((SizeChange(DIMENSIONS[at], new[at]),)))
        except UsageError as error:
            counts[DIMENSIONS[at]]["refused"] += len(one.calls)
            print(f"  {error}")
            continue
        count, names = compared(done, other)
        counts[DIMENSIONS[at]] += count
        wrong += names
    for dimension, count in counts.items():
        text = "  ".join(f"{name} {count[name]}" for name in ("right", "listed", "wrong", "refused", "no counterpart"))
        print(f"  {program:14}{dimension:8}{text}  {dict(wrong.most_common(3)) or ''}")


def fitted(recordings: Sequence[Trace]) -> FittedModel:
    """Return a model that predicts sums of medians. Whole steps take longer than such sums, but the model ignores
    that."""
    model = fit(recordings, keep_outliers=True)
    return msgspec.structs.replace(model, lags=msgspec.structs.replace(model.lags, host_ratio=1.0, device_ratio=1.0))


class Step(NamedTuple):
    """Time of a step in ms, and the limits of the interval that `predict` reports."""

    ms: float
    low: float
    high: float


def step(recording: Trace, model: FittedModel, batch: int | None = None) -> Step:
    """Return the time of a step in a recording. If `batch` is set, predict the time for this batch size."""
    shape = None if batch is None else batch_change(batch)
    one = predict(recording, model, shape=shape, keep_outliers=True, force=True, host="model")
    return Step(*(ns / one.iterations / 1e6 for ns in (one.predicted_ns, one.low_ns, one.high_ns)))


def times(program: str, recordings: Mapping[int, Trace]) -> Iterator[tuple[float, str]]:
    """Print predictions for sizes between two fitted sizes. For each prediction, yield the ratio to the measured time,
    and a verdict."""
    alone = {batch: step(one, fitted([one])).ms for batch, one in recordings.items()}
    for low, middle, high in BETWEEN:
        if not recordings.keys() >= {low, middle, high}:
            continue
        model = fitted([recordings[low], recordings[high]])
        for source in (low, high):
            one, ends = step(recordings[source], model, middle), sorted((alone[low], alone[high]))
            off = max(ends[0] / one.ms, one.ms / ends[1]) - 1
            reaches = one.low <= ends[1] and ends[0] <= one.high
            verdict = "between" if off <= 0 else "interval reaches between" if reaches else "OUTSIDE"
            fit_on = f"{low:>4}:{alone[low]:<6.2f}{high:>4}:{alone[high]:<6.2f}"
            error = f"{alone[middle]:<6.2f} from {source:>3}: {one.ms:<6.2f} {one.ms / alone[middle] - 1:+7.1%}"
            text = "" if off <= 0 else f"  {off:.1%} off, {verdict}"
            print(f"  {program:14}{fit_on} -> {middle:>4}:{error}{text}")
            yield one.ms / alone[middle], verdict


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help="score only programs with this string in their names")
    parser.add_argument("--no-times", action="store_true", help="compare only shapes")
    parser.add_argument("--no-shapes", action="store_true", help="compare only times")
    arguments = parser.parse_args()
    programs = defaultdict[str, dict[Sizes, Path]](dict)
    for path in sorted(arguments.out.glob(f"*{arguments.only}*__*.json.gz" if arguments.only else "*__*.json.gz")):
        program, sizes = sizes_of(path)
        programs[program][sizes] = path
    found = list[tuple[float, str]]()
    for program, paths in programs.items():
        recordings = {sizes: read_etplus(path) for sizes, path in paths.items()}
        if not arguments.no_shapes:
            shapes(program, recordings)
        if not arguments.no_times:
            usual = Counter(sizes[1:] for sizes in recordings).most_common(1)[0][0]
            found += times(program, {size[0]: one for size, one in recordings.items() if size[1:] == usual})
    if found:
        errors = np.maximum(np.abs(np.array([ratio for ratio, _ in found]) - 1), 1e-3)
        print(f"  {len(found)} times: geomean {np.exp(np.log(errors).mean()):.1%}, median {np.median(errors):.1%}")
        verdicts = Counter(verdict for _, verdict in found)
        off = ", ".join(f"{verdicts[name]} {name}" for name in ("between", "interval reaches between", "OUTSIDE"))
        print(f"  compared with the two fitted times: {off}")


if __name__ == "__main__":
    main()
