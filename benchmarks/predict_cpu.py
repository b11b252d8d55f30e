"""End-to-end prediction on a CPU sweep: held-out shapes of known models, and held-out models.

    python benchmarks/predict_cpu.py OUT          # what sweep_cpu.py recorded there

For each number of threads: fitted on all batch sizes but one of the inner ones, that one is predicted; and fitted on
all models but one, that one. Prints errors of both engines and of the mean of what was fitted on.

The held-out batch size is predicted once more from the recordings of the least and the greatest one (`--set batch`),
whose shapes are re-derived; beside stand the recorded time, as it is and in proportion. And the re-derived shapes of
all pairs of batch sizes are held against the recorded ones, call by call.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from itertools import permutations
from pathlib import Path

import numpy as np
from etplus.analysis.etplus_trace import from_etplus
from etplus.analysis.signatures import Signature
from etplus.analysis.trace import OP, Trace
from etplus.predictor.calibration import calibrated
from etplus.predictor.costs.crossval import score
from etplus.predictor.end_to_end import Engine, predict
from etplus.predictor.fitting import fit, measured_ns
from etplus.predictor.lags import iterations_of
from etplus.predictor.reshape import BatchChange, with_batch
from etplus.schemas.etplus_document import EtPlusDocument
from etplus.schemas.etplus_reader import read_etplus

INNER, OUTER = (8, 16, 32, 64), (4, 128)
ENGINES: tuple[Engine, ...] = ("replay", "overheads")


def parts(name: str) -> tuple[str, int, int]:
    """Model, batch and threads of a file's name."""
    model, _, rest = name.partition("__")
    batch, _, threads = rest.partition("_")
    return model, int(batch[1:]), int(threads[1:])


def held_out(
    known: Sequence[EtPlusDocument], held: Sequence[EtPlusDocument], found: dict[str, list[tuple[float, float]]]
) -> None:
    """Fit on some, predict others; adds predicted and measured ns by engine."""
    model = calibrated(fit(known), known)
    for document in held:
        for engine in ENGINES:
            one = predict(document, model, engine=engine, changed=True)
            found[engine].append((one.predicted_ns, one.measured_ns))
        found["mean of those fitted on"].append((sum(model.makespans_ns) / len(known), one.measured_ns))


def from_others(mine: Mapping[str, EtPlusDocument], batch: int, found: dict[str, list[tuple[float, float]]]) -> None:
    """Predict a batch size, on which nothing was fitted, from recordings of others."""
    known = [one for name, one in mine.items() if parts(name)[1] != batch]
    model = calibrated(fit(known), known)
    for name, held in mine.items():
        structure, size, threads = parts(name)
        for other in OUTER if size == batch else ():
            source = mine[f"{structure}__b{other}_t{threads}"]
            one, measured = (
                predict(source, model, batch=BatchChange(batch)),
                measured_ns(held, iterations_of(held, None)[0]),
            )
            found[f"from batch {other}"].append((one.predicted_ns, measured))
            found[f"time at batch {other}"].append((one.measured_ns, measured))
            found[f"time at batch {other}, in proportion"].append((one.measured_ns * batch / other, measured))


def compared(before: EtPlusDocument, after: EtPlusDocument, batch: int) -> Counter[str]:
    """Calls by whether their re-derived shapes are those recorded at the other batch size."""
    done, recorded = with_batch(before, BatchChange(batch)), from_etplus(after)
    calls = [[c for c in range(len(one.calls)) if one.calls.kind[c] == OP] for one in (done.trace, recorded)]
    names = [[one.names[one.calls.name[c]] for c in some]
             for one, some in zip((done.trace, recorded), calls, strict=True)]  # fmt: skip
    count = Counter[str]()
    for tag, a, b, c, d in SequenceMatcher(None, *names, autojunk=False).get_opcodes():
        if tag != "equal":
            count["no counterpart"] += b - a
        for one, other in zip(calls[0][a:b], calls[1][c:d], strict=True) if tag == "equal" else ():
            if done.unknown[one]:
                count["listed"] += 1
            else:
                count["right" if shapes(done.trace, one) == shapes(recorded, other) else "wrong"] += 1
    return count


def shapes(trace: Trace, call: int) -> object:
    """Shapes of what a call takes and returns."""
    one = trace.signature_of(call) or Signature(())
    return [[tensor.shape for tensor in argument.tensors] for argument in one.inputs], [
        tensor.shape for tensor in one.outputs or ()
    ]


def report(title: str, found: dict[str, list[tuple[float, float]]]) -> None:
    """Print errors."""
    print(title)
    for name, pairs in found.items():
        predicted, measured = np.array(pairs).T
        one = score(predicted, measured)
        print(f"  {name:34}{one.count:>5}  geomean {one.geomean:6.1%}  median {one.median:6.1%}  mean {one.mape:7.1%}"
              f"  total {one.bias:+7.1%}")  # fmt: skip


def main() -> None:
    """Predict everything twice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    folder: Path = parser.parse_args().out / "etplus"
    documents = {path.name.partition(".")[0]: read_etplus(path) for path in sorted(folder.glob("*.json.gz"))}
    sizes: dict[str, list[tuple[float, float]]] = defaultdict(list)
    others: dict[str, list[tuple[float, float]]] = defaultdict(list)
    families: dict[str, Counter[str]] = defaultdict(Counter)
    models: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for threads in sorted({parts(name)[2] for name in documents}):
        mine = {name: one for name, one in documents.items() if parts(name)[2] == threads}
        for batch in INNER:
            held = [one for name, one in mine.items() if parts(name)[1] == batch]
            held_out([one for name, one in mine.items() if parts(name)[1] != batch], held, sizes)
            from_others(mine, batch, others)
        every = sorted({parts(name)[0] for name in mine})
        for fold in range(5):
            out = set(every[fold::5])
            held = [one for name, one in mine.items() if parts(name)[0] in out]
            held_out([one for name, one in mine.items() if parts(name)[0] not in out], held, models)
    for (name, one), (other, after) in permutations(documents.items(), 2):
        if parts(name)[::2] == parts(other)[::2]:
            families[name.partition("_")[0]] += compared(one, after, parts(other)[1])
    report(f"held-out batch sizes {INNER} of known models", sizes)
    report("held-out models, five folds", models)
    report(f"held-out batch sizes {INNER}, from recordings of others", others)
    print("re-derived shapes, calls over all pairs of batch sizes")
    for family, counts in families.items():
        told = "  ".join(f"{name} {count}" for name, count in sorted(counts.items()))
        print(f"  {family:26}{told}")


if __name__ == "__main__":
    main()
