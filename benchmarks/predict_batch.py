"""Score predictions of times and shapes at another batch size on a CPU sweep.

    python benchmarks/predict_batch.py OUT        # sweep_cpu.py recorded OUT

For each number of threads, the benchmark fits a model on all batch sizes except one in the middle. The model then
predicts this size from recordings at the smallest size, and from recordings at the largest size. The benchmark also
fits a model on small batch sizes and predicts a larger one. For comparison, the benchmark prints two simple
predictions: the recorded time, unchanged and scaled by the batch size. Finally, for all pairs of batch sizes, the
benchmark compares derived with recorded shapes, call by call.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path

from compare_shapes import compared
from etplus.planning.costs.edge_latencies import iterations_of
from etplus.planning.costs.end_to_end import calibrated, predict
from etplus.planning.costs.fitting import fit, measured_ns
from etplus.planning.reshape.reshape import reshaped
from etplus.planning.reshape.shape_change import batch_change
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.trace.trace import Trace
from predict_cpu import INNER, parts, report

BATCHES, OUTER = (4, 8, 16, 32, 64, 128), (4, 128)
BEYOND = (((8,), 8, 32), ((4, 8, 16, 32), 32, 128))

Pairs = dict[str, list[tuple[float, float]]]


def from_others(
    mine: Mapping[str, Trace], fitted: Sequence[int], sources: Sequence[int], batch: int, found: Pairs
) -> None:
    """Predict the times at a batch size from recordings at other sizes. Append (predicted ns, measured ns) to the lists
    in `found`."""
    known = [one for name, one in mine.items() if parts(name)[1] in fitted]
    model = calibrated(fit(known), known)
    for name, held in mine.items():
        structure, size, threads = parts(name)
        for other in sources if size == batch else ():
            one = predict(
                mine[f"{structure}__b{other}_t{threads}"], model, shape=batch_change(batch), host="model", force=True
            )
            measured = measured_ns(held, iterations_of(held, None, keep_outliers=True))
            found[f"from batch {other}"].append((one.predicted_ns, measured))
            found[f"time at batch {other}"].append((one.measured_ns, measured))
            found[f"time at batch {other}, in proportion"].append((one.measured_ns * batch / other, measured))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    folder: Path = parser.parse_args().out / "etplus"
    documents = {path.name.partition(".")[0]: read_etplus(path) for path in sorted(folder.glob("*.json.gz"))}
    inner: Pairs = defaultdict(list)
    beyond: dict[str, Pairs] = defaultdict(lambda: defaultdict(list))
    for threads in sorted({parts(name)[2] for name in documents}):
        mine = {name: one for name, one in documents.items() if parts(name)[2] == threads}
        for batch in INNER:
            from_others(mine, [one for one in BATCHES if one != batch], OUTER, batch, inner)
        for fitted, source, batch in BEYOND:
            from_others(mine, fitted, [source], batch, beyond[f"fitted on {fitted}, batch {batch}"])
    report(f"held-out batch sizes {INNER}, predicted from other batch sizes", inner)
    for title, found in beyond.items():
        report(title, found)
    families: dict[str, Counter[str]] = defaultdict(Counter)
    for (name, one), (other, after) in permutations(documents.items(), 2):
        if parts(name)[::2] == parts(other)[::2]:
            done = reshaped(one, batch_change(parts(other)[1]))
            families[name.partition("_")[0]] += compared(done, after)[0]
    print("calls with re-derived shapes, summed over all pairs of batch sizes")
    for family, counts in families.items():
        print(f"  {family:14}{'  '.join(f'{name} {count}' for name, count in sorted(counts.items()))}")


if __name__ == "__main__":
    main()
