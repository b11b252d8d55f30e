"""Score end-to-end predictions on a CPU sweep. Hold out batch sizes of known models, whole models, or whole families.

    python benchmarks/predict_cpu.py OUT          # sweep_cpu.py recorded OUT

The benchmark handles each number of threads separately. The benchmark holds out one of the inner batch sizes, then a
fifth of the models, then one family. It predicts the held-out recordings with a model that was fitted on all others.
The benchmark prints the errors of these predictions and, for comparison, of the mean over the fitted traces.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from etplus.planning.costs.end_to_end import calibrated, predict
from etplus.planning.costs.fitting import fit
from etplus.planning.learned.graph_baselines import score
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.trace.trace import Trace

INNER = (8, 16, 32, 64)


def parts(name: str) -> tuple[str, int, int]:
    """Return the model, batch size and number of threads that a file name contains."""
    model, _, rest = name.partition("__")
    batch, _, threads = rest.partition("_")
    return model, int(batch[1:]), int(threads[1:])


def held_out(known: Sequence[Trace], held: Sequence[Trace], found: dict[str, list[tuple[float, float]]]) -> None:
    """Fit a model on the recordings `known`, and predict the recordings `held`. Append (predicted ns, measured ns) to
    the lists in `found`."""
    model = calibrated(fit(known), known)
    for document in held:
        one = predict(document, model, changed=True, host="model", force=True)
        found["prediction"].append((one.predicted_ns, one.measured_ns))
        found["mean of the fit"].append((sum(model.makespans_ns) / len(known), one.measured_ns))


def report(title: str, found: dict[str, list[tuple[float, float]]]) -> None:
    print(title)
    for name, pairs in found.items():
        predicted, measured = np.array(pairs).T
        one = score(predicted, measured)
        print(f"  {name:26}{one.count:>5}  geomean {one.geomean:6.1%}  median {one.median:6.1%}  mean {one.mape:7.1%}"
              f"  total {one.bias:+7.1%}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    folder: Path = parser.parse_args().out / "etplus"
    documents = {path.name.partition(".")[0]: read_etplus(path) for path in sorted(folder.glob("*.json.gz"))}
    shapes: dict[str, list[tuple[float, float]]] = defaultdict(list)
    models: dict[str, list[tuple[float, float]]] = defaultdict(list)
    families: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for threads in sorted({parts(name)[2] for name in documents}):
        mine = {name: one for name, one in documents.items() if parts(name)[2] == threads}
        for batch in INNER:
            held = [one for name, one in mine.items() if parts(name)[1] == batch]
            held_out([one for name, one in mine.items() if parts(name)[1] != batch], held, shapes)
        every = sorted({parts(name)[0] for name in mine})
        for fold in range(5):
            out = set(every[fold::5])
            held = [one for name, one in mine.items() if parts(name)[0] in out]
            held_out([one for name, one in mine.items() if parts(name)[0] not in out], held, models)
        for family in sorted({name.partition("_")[0] for name in every}):
            held = [one for name, one in mine.items() if name.startswith(f"{family}_")]
            held_out([one for name, one in mine.items() if not name.startswith(f"{family}_")], held, families[family])
    report(f"held-out batch sizes {INNER} of known models", shapes)
    report("held-out models, five folds", models)
    for family, found in families.items():
        report(f"held-out family {family}", found)
    joined: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for found in families.values():
        for name, pairs in found.items():
            joined[name] += pairs
    report("held-out families, all", joined)


if __name__ == "__main__":
    main()
