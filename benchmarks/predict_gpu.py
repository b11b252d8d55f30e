"""Cost models and end-to-end prediction on the real GPU traces next to the repository (`../shared/traces`).

    python benchmarks/predict_gpu.py                # everything
    python benchmarks/predict_gpu.py MORE…          # traces or folders that are predicted from all of the shared ones

First what counts: every trace predicted by models fitted on the others, and by models fitted on other devices, with the
median error, the factor by which predictions are off (exp of the mean |log ratio|, less 1), the error of the total
and how many measured times are within the 80% interval; beside it the mean of the kernel's name, an untuned roofline,
and a regression over similar tasks. Then interpolation within the traces: errors
on groups of operator and shapes that were held out; DLRM fitted on each pair of its four ranks and predicted for the
others; 40 iterations of a linear model fitted on 0 to 19 and predicted for 30 to 39.
"""

from __future__ import annotations

import itertools
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from etplus.analysis.devices import Device, known_devices
from etplus.cli.predict_fit import crossval_lines
from etplus.converters.open import load as read_trace
from etplus.linker import link
from etplus.planning.costs import CostModel, Estimate, Task
from etplus.planning.costs.bound import bound_of, device_of, times_at_peak
from etplus.planning.costs.cost_model import FromMeasured
from etplus.planning.costs.crossval import KindMean, cross_validate
from etplus.planning.costs.end_to_end import Prediction, calibrated, predict, predict_ranks
from etplus.planning.costs.fitting import fit
from etplus.planning.costs.kernel_model import interval_group
from etplus.planning.costs.measured_tasks import MeasuredTask, gpu_tasks, medians, pooled
from etplus.planning.costs.prediction_intervals import Familiarity, fit_intervals
from etplus.planning.costs.rank_job import ENGINES, Engine
from etplus.planning.costs.registry import Costs
from etplus.planning.costs.similar import Similar
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.trace.trace import Trace

TRACES = Path(__file__).parents[2] / "shared" / "traces"
PAIRS = (*(f"dlrm.rank{rank}" for rank in range(4)), "linear", "resnet103", "simple_add")
ALONE = ("gpu-kineto", "python-stacks", "serving")
DEVICES = {device.name: device for device in known_devices()}
OURS = "this model"
OF_PEAK, OF_BANDWIDTH, FLOOR_NS = 0.5, 0.6, 2000.0
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def linked(name: str, *, alone: bool = False) -> Trace:
    """A GPU pair, or its Kineto trace alone."""
    et, kineto = (TRACES / "gpu-pairs" / f"{name}.{kind}.json.gz" for kind in ("et", "kineto"))
    return read_etplus(b"".join(link(None if alone else et, kineto).chunks()))


def events_of(trace: Trace) -> list[MeasuredTask]:
    """Distinct GPU events of a trace."""
    return [one for one in medians(gpu_tasks(trace), trace.gpu.dur.tolist()) if one.ns > 0]


def shared_traces() -> dict[str, Trace]:
    """The linked pairs and the Kineto traces without an ET."""
    alone = [path for folder in ALONE for path in sorted((TRACES / folder).glob("*.json.gz"))]
    return {name: linked(name) for name in PAIRS} | {
        path.name.removesuffix(".json.gz"): read_trace(path) for path in alone
    }


@dataclass(frozen=True)
class Held:
    trace: npt.NDArray[np.str_]
    count: Floats
    ns: Floats
    bound: Floats
    predicted: Mapping[str, Floats]
    low: Floats
    high: Floats


class NameMean(FromMeasured):
    """Geometric mean of the events of one kernel's name, else as `KindMean`."""

    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        logs: dict[str, list[float]] = {}
        for known in measured:
            logs.setdefault(known.task.kernel, []).append(np.log(max(known.ns, 1.0)))
        self._names = {name: float(np.exp(np.mean(of))) for name, of in logs.items()}
        self._kinds = KindMean(measured)

    def predict(self, task: Task) -> Estimate:
        """ns of any task."""
        known = self._names.get(task.kernel)
        return self._kinds.predict(task) if known is None else Estimate(known, "mean of its name")


class UntunedRoofline:
    """Half of the peak FLOP/s or 60% of the bandwidth, and 2 µs at least; nothing is fitted."""

    def __init__(self, devices: Mapping[str, Device]) -> None:
        self._devices = devices

    def predict(self, task: Task) -> Estimate:
        """ns of any task."""
        device = device_of(task, self._devices)
        if device is None or not task.main:
            return Estimate(FLOOR_NS, "floor")
        at_peak = times_at_peak(task, device)
        return Estimate(max(at_peak.compute / OF_PEAK, at_peak.memory / OF_BANDWIDTH, FLOOR_NS), "untuned roofline")


def models(given: Sequence[MeasuredTask]) -> dict[str, CostModel]:
    """This model and what it is compared with, fitted on some events."""
    return {
        OURS: Costs(given, DEVICES), "name mean": NameMean(given), "roofline": UntunedRoofline(DEVICES),
        "similar": Similar(given),
    }  # fmt: skip


def hold_out(events: Mapping[str, list[MeasuredTask]], fold_of: Callable[[str], str], only: Iterable[str] = ()) -> Held:
    rows: list[tuple[str, MeasuredTask, tuple[str, ...]]] = []
    predicted: dict[str, list[float]] = {}
    for fold in dict.fromkeys(map(fold_of, events)):
        given = pooled(one for name, of in events.items() if fold_of(name) != fold for one in of)
        held = [(name, one) for name, of in events.items() if fold_of(name) == fold for one in of]
        familiar = Familiarity(given, DEVICES)
        for model, made in models(given).items():
            tasks = [one.task for _, one in held]
            found = made.predict_all(tasks) if isinstance(made, Similar) else [made.predict(task) for task in tasks]
            predicted.setdefault(model, []).extend(max(one.ns, 1.0) if one else float("nan") for one in found)
            if model == OURS:
                groups = [interval_group(one.how if one else "", familiar.group(task))
                          for one, task in zip(found, tasks, strict=True)]  # fmt: skip
        rows += [(name, one, group) for (name, one), group in zip(held, groups, strict=True)]
    columns = {model: np.array(of) for model, of in predicted.items()}
    low, high = intervals(rows, columns[OURS], fold_of)
    wanted = set(only)
    keep = np.array([not wanted or fold_of(name) in wanted for name, _, _ in rows])
    bounds = [bound_of(one.task, DEVICES) for _, one, _ in rows]
    return Held(
        np.array([name for name, _, _ in rows])[keep], np.array([float(one.count) for _, one, _ in rows])[keep],
        np.array([one.ns for _, one, _ in rows])[keep],
        np.array([0.0 if bound is None else bound.ns for bound in bounds])[keep],
        {model: of[keep] for model, of in columns.items()}, low[keep], high[keep],
    )  # fmt: skip


def intervals(
    rows: Sequence[tuple[str, MeasuredTask, tuple[str, ...]]], predicted: Floats, fold_of: Callable[[str], str]
) -> tuple[Floats, Floats]:
    low, high = np.zeros(len(rows)), np.zeros(len(rows))
    ratios = np.log([one.ns for _, one, _ in rows]) - np.log(predicted)
    folds = np.array([fold_of(name) for name, _, _ in rows])
    jobs = [zlib.crc32(name.partition(".rank")[0].encode()) for name, _, _ in rows]
    for fold in dict.fromkeys(folds.tolist()):
        others = np.flatnonzero(folds != fold)
        made = fit_intervals([rows[i][2] for i in others], ratios[others].tolist(), [jobs[i] for i in others])
        for i in np.flatnonzero(folds == fold).tolist():
            spread = made.of(rows[i][2])
            low[i], high[i] = predicted[i] * min(spread.low, 1), predicted[i] * max(spread.high, 1)
    return low, high


def factor(predicted: Floats, ns: Floats) -> float:
    return float(np.exp(np.nanmean(np.abs(np.log(predicted / ns)))) - 1)


def show_held(title: str, held: Held, traces: Mapping[str, Trace]) -> None:
    print(f"\n{title}\n{'':24}{'known FLOPs or bytes':>27}{'all':>28}")
    heads = f"{'events':>9}{'median':>9}{'factor':>9} "
    print(f"{'pooled':24}{heads}{heads}{'within 80%':>11}")
    within = (held.low <= held.ns) & (held.ns <= held.high)
    for name, of in held.predicted.items():
        cells = ""
        for which in (held.bound > 0, np.ones(len(held.ns), bool)):
            error = np.abs(of[which] / held.ns[which] - 1)
            cells += f"{which.sum():>9}{np.nanmedian(error):>9.0%}{factor(of[which], held.ns[which]):>9.0%} "
        print(f"{name:24}{cells}{f'{within.mean():>11.0%}' if name == OURS else ''}")
    names = list(held.predicted)
    heads = "".join(f"{name:>11}" for name in names)
    print(f"\n{'factor by trace':24}{'events':>7}{heads}    total  within 80%")
    better, close, names_of_traces = 0, 0, list(dict.fromkeys(held.trace.tolist()))
    for trace in names_of_traces:
        mine = held.trace == trace
        factors = {name: factor(of[mine], held.ns[mine]) for name, of in held.predicted.items()}
        total = float((held.predicted[OURS] * held.count)[mine].sum() / traces[trace].gpu.dur.sum() - 1)
        better += factors[OURS] < min(factors["name mean"], factors["roofline"])
        close += abs(total) <= 0.25
        cells = "".join(f"{factors[name]:>11.0%}" for name in names)
        print(f"{trace:24}{mine.sum():>7}{cells}{total:>+9.0%}{within[mine].mean():>12.0%}")
    below = int((held.predicted[OURS] < held.bound * (1 - 1e-9)).sum())
    print(
        f"better than name mean and roofline in {better} of {len(names_of_traces)} traces; total within 25% in {close};"
    )
    print(f"{below} predictions below their bound")


def show(what: str, engine: Engine, one: Prediction) -> None:
    """One line of errors."""
    against = one.baselines["mean of the traces fitted on"] / one.measured_ns - 1
    print(f"{what:34}{engine:10}{one.error:>+8.2%}   mean of the traces fitted on {against:>+8.2%}")


def ranks_held_out(ranks: list[Trace], known: tuple[int, ...], engine: Engine) -> str:
    """Errors of the other ranks with a model fitted on some, as a line of `HEAD`."""
    model = calibrated(fit([ranks[rank] for rank in known]), [ranks[rank] for rank in known])
    others = [rank for rank in range(len(ranks)) if rank not in known]
    coupled = predict_ranks([ranks[rank] for rank in others], model, engine=engine, force=True)
    errors = [coupled.error, *(end / coupled.measured_ns - 1 for end in (coupled.low_ns, coupled.high_ns))]
    errors += [predict_ranks(ranks, model, engine=engine, force=True).error]
    for rank in others:
        one = predict(ranks[rank], model, engine=engine, force=True)
        assert one.without_waiting is not None
        errors += [one.error, one.without_waiting[0] / one.without_waiting[1] - 1]
    cells = "".join(f"{error:>+10.1%}" for error in errors)
    return f"{' '.join(map(str, known)):6}{' '.join(map(str, others)):8}{engine:10}{cells}"


HEAD = f"{'fitted':6}{' others':8}{'engine':10}" + "".join(
    f"{name:>10}" for name in ("coupled", "80% from", "to", "all four", "first", "no waits", "second", "no waits")
)


def show_more(events: Mapping[str, list[MeasuredTask]], files: Sequence[str]) -> None:
    """Errors on further traces, predicted from all shared ones."""
    paths = [path for file in files for path in (sorted(Path(file).iterdir()) if Path(file).is_dir() else [Path(file)])]
    for path in paths:
        trace = read_trace(path)
        one = hold_out({**events, path.name: events_of(trace)}, lambda trace: trace, only=[path.name])
        show_held(f"{path.name}: fitted on the shared traces", one, {path.name: trace})


def main(files: Sequence[str] = ()) -> None:
    """Print everything."""
    traces = shared_traces()
    events = {name: events_of(trace) for name, trace in traces.items()}
    if files:
        show_more(events, files)
        return
    device_of = {name: of[0].task.device.partition(" or ")[0] for name, of in events.items()}
    show_held("each trace from the others", hold_out(events, lambda name: name), traces)
    jobs = hold_out(events, lambda name: name.partition(".rank")[0])
    show_held("each job from the others (the ranks of DLRM together)", jobs, traces)
    show_held("each device from the others", hold_out(events, device_of.__getitem__), traces)
    found = cross_validate(pooled(one for of in events.values() for one in of), DEVICES)
    print("\n" + "\n".join(crossval_lines("GPU events", found)))
    ranks = [traces[f"dlrm.rank{rank}"] for rank in range(4)]
    print("dlrm: errors of the two other ranks coupled, of all four coupled, of each other one alone with and without")
    print(f"what ranks wait for others\n{HEAD}")
    for known, engine in itertools.product(itertools.combinations(range(4), 2), ENGINES):
        print(ranks_held_out(ranks, known, engine))
    model = calibrated(fit(ranks[:2]), ranks[:2])
    whole = linked("linear", alone=True)
    steps = calibrated(fit([whole], iterations="0-19"), [whole], "0-19")
    for engine in ENGINES:
        show("dlrm, ranks 2 and 3 coupled", engine, predict_ranks(ranks[2:], model, engine=engine, force=True))
        for rank in (2, 3):
            show(f"dlrm, rank {rank} alone", engine, predict(ranks[rank], model, engine=engine, force=True))
        show("linear, iterations 30-39", engine, predict(whole, steps, engine=engine, iterations="30-39", force=True))


if __name__ == "__main__":
    main(sys.argv[1:])
