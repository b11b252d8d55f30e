"""Cost models and end-to-end prediction on the real GPU traces beside the repository (`../shared/traces`).

    python benchmarks/predict_gpu.py

Cross-validated errors of all models over every GPU event, grouped by operator and shapes; DLRM fitted on ranks 0 and 1
and predicted for 2 and 3; 40 iterations of a linear model fitted on 0 to 19 and predicted for 30 to 39.
"""

from __future__ import annotations

from pathlib import Path

from etplus.analysis.devices import known_devices
from etplus.analysis.etplus_trace import from_etplus
from etplus.analysis.reading import read_trace
from etplus.analysis.trace import Trace
from etplus.cli.fit import crossval_lines
from etplus.linker import link
from etplus.predictor.calibration import calibrated
from etplus.predictor.costs.crossval import cross_validate
from etplus.predictor.costs.measured import Measured, gpu_tasks, medians
from etplus.predictor.costs.task import Task
from etplus.predictor.end_to_end import Engine, Prediction, predict, predict_ranks
from etplus.predictor.fitting import fit
from etplus.schemas.etplus_document import EtPlusDocument
from etplus.schemas.etplus_reader import read_etplus

TRACES = Path(__file__).parents[2] / "shared" / "traces"
ENGINES: tuple[Engine, ...] = ("replay", "overheads")


def linked(name: str, *, alone: bool = False) -> EtPlusDocument:
    """A GPU pair, or its Kineto trace alone."""
    et, kineto = (TRACES / "gpu-pairs" / f"{name}.{kind}.json.gz" for kind in ("et", "kineto"))
    return read_etplus(b"".join(link(None if alone else et, kineto).document.chunks()))


def measured_events(documents: list[EtPlusDocument]) -> list[Measured]:
    """Distinct GPU events of the documents and of the Kineto traces without an ET."""
    traces: list[Trace] = [from_etplus(document) for document in documents]
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


def main() -> None:
    """Print everything."""
    ranks = [linked(f"dlrm.rank{rank}") for rank in range(4)]
    documents = [*ranks, *(linked(name) for name in ("linear", "resnet103", "simple_add"))]
    devices = {device.name: device for device in known_devices()}
    print("\n".join(crossval_lines("GPU events", cross_validate(measured_events(documents), devices))))
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
