"""Cost models and end-to-end prediction on the real GPU traces beside the repository (`../shared/traces`).

    python benchmarks/predict_gpu.py

Cross-validated errors of all models over every GPU event, grouped by operator and shapes; DLRM fitted on each pair of
its four ranks and predicted for the others, coupled and alone; 40 iterations of a linear model fitted on 0 to 19 and
predicted for 30 to 39.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from etplus.analysis.devices import known_devices
from etplus.cli.fit import crossval_lines
from etplus.converters.open import load as read_trace
from etplus.linker import link
from etplus.predictor.calibration import calibrated
from etplus.predictor.costs.crossval import cross_validate
from etplus.predictor.costs.measured import Measured, gpu_tasks, medians
from etplus.predictor.costs.task import Task
from etplus.predictor.end_to_end import Engine, Prediction, predict, predict_ranks
from etplus.predictor.fitting import fit
from etplus.schemas.etplus_reader import read_etplus
from etplus.trace.trace import Trace

TRACES = Path(__file__).parents[2] / "shared" / "traces"
ENGINES: tuple[Engine, ...] = ("replay", "overheads")


def linked(name: str, *, alone: bool = False) -> Trace:
    """A GPU pair, or its Kineto trace alone."""
    et, kineto = (TRACES / "gpu-pairs" / f"{name}.{kind}.json.gz" for kind in ("et", "kineto"))
    return read_etplus(b"".join(link(None if alone else et, kineto).chunks()))


def measured_events(documents: list[Trace]) -> list[Measured]:
    """Distinct GPU events of the documents and of the Kineto traces without an ET."""
    traces: list[Trace] = list(documents)
    traces += [read_trace(path) for path in sorted((TRACES / "gpu-kineto").glob("*.json.gz"))]
    tasks: list[Task] = []
    ns: list[float] = []
    for trace in traces:
        tasks += gpu_tasks(trace)
        ns += trace.gpu.dur.tolist()
    return medians(tasks, ns)


def show(what: str, engine: Engine, one: Prediction) -> None:
    """One line of errors."""
    against = one.baselines["mean of the traces fitted on"] / one.measured_ns - 1
    print(f"{what:34}{engine:10}{one.error:>+8.2%}   mean of the traces fitted on {against:>+8.2%}")


def ranks_held_out(ranks: list[Trace], known: tuple[int, ...], engine: Engine) -> str:
    """Errors of the other ranks with a model fitted on some, as a line of `HEAD`."""
    model = calibrated(fit([ranks[rank] for rank in known]), [ranks[rank] for rank in known])
    others = [rank for rank in range(len(ranks)) if rank not in known]
    errors = [predict_ranks([ranks[rank] for rank in others], model, engine=engine).error]
    errors += [predict_ranks(ranks, model, engine=engine).error]
    for rank in others:
        one = predict(ranks[rank], model, engine=engine)
        assert one.unhindered is not None
        errors += [one.error, one.unhindered[0] / one.unhindered[1] - 1]
    cells = "".join(f"{error:>+10.1%}" for error in errors)
    return f"{' '.join(map(str, known)):6}{' '.join(map(str, others)):8}{engine:10}{cells}"


HEAD = f"{'fitted':6}{' others':8}{'engine':10}" + "".join(
    f"{name:>10}" for name in ("coupled", "all four", "first", "no waits", "second", "no waits")
)


def main() -> None:
    """Print everything."""
    ranks = [linked(f"dlrm.rank{rank}") for rank in range(4)]
    documents = [*ranks, *(linked(name) for name in ("linear", "resnet103", "simple_add"))]
    devices = {device.name: device for device in known_devices()}
    print("\n".join(crossval_lines("GPU events", cross_validate(measured_events(documents), devices))))
    print("dlrm: errors of the two other ranks coupled, of all four coupled, of each other one alone with and without")
    print(f"what ranks wait for others\n{HEAD}")
    for known, engine in itertools.product(itertools.combinations(range(4), 2), ENGINES):
        print(ranks_held_out(ranks, known, engine))
    model = calibrated(fit(ranks[:2]), ranks[:2])
    whole = linked("linear", alone=True)
    steps = calibrated(fit([whole], iterations="0-19"), [whole], "0-19")
    for engine in ENGINES:
        show("dlrm, ranks 2 and 3 coupled", engine, predict_ranks(ranks[2:], model, engine=engine))
        for rank in (2, 3):
            show(f"dlrm, rank {rank} alone", engine, predict(ranks[rank], model, engine=engine))
        show("linear, iterations 30-39", engine, predict(whole, steps, engine=engine, iterations="30-39"))


if __name__ == "__main__":
    main()
