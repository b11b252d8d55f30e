"""The utilisation model: a GPU event's time from what it must compute and move, and how well kernels like it use peaks.

    time = start + max(C (1 + e^u), M (1 + e^v)),   efficiencies 1/(1 + e^u) and 1/(1 + e^v)

C is FLOPs over the peak, M bytes over the bandwidth (`bound_of`); log start, u and v are sums of weights, one for each
label of the event: kind, family and name of the kernel, operator, element type, vendor, and three numbers of device and
grid. So the time grows with FLOPs and bytes, is never below the bound, and the share of the peak that is reached grows
from 0 with size towards the efficiency: NeuSight's utilisation (Lee et al., ASPLOS 2025) with the start-up time of
Hockney's r∞, n½ model (1982) as its law of size. Where neither FLOPs nor bytes are known,

    time = start + N e^w,

N being the threads launched, at 16 bytes each and the bandwidth; without a grid it is the start alone: what kernels of
that name and family take. All three are multiplied by what such events take on average over their median. Where only
bounds of the bytes are known (experts), M is of the middle, and the prediction not below the least.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import exp, log

import msgspec
import numpy as np
import numpy.typing as npt

from ...analysis.devices import Device
from ...schemas.comm_types import bus_factor
from ...trace.brief import brief
from ...trace.kernel_kinds import GPU_KINDS, gpu_kind
from .bound import bound_of, device_of
from .measured_tasks import MeasuredTask
from .task import Task

START, COMPUTE, MEMORY, THREADS = "start", "compute", "memory", "threads"
"""The terms of the law; the names of labels begin with them."""
_START_NS, _COLLECTIVE_START_NS = {True: 2000.0, False: 4000.0}, 20_000.0
"""Start-up time before anything is learned, where the work is known and where it is not; of a collective, whose ranks
must meet."""
_USUAL = {COMPUTE: -0.2, MEMORY: -0.6, THREADS: 0.0}
"""u, v and w before anything is learned: 55% of the peak, 65% of the bandwidth, 16 bytes a thread."""
_SCALAR_USUAL, _SCALAR_TYPES = -1.1, frozenset({"float32", "float64"})
"""u of element types that tensor cores do not compute: 75% of the peak. The fewer operations a second, the easier it is
to bring their operands in time."""
_BYTES_PER_THREAD = 16
_USUAL_DEVICE = 100, 2e12
"""Multiprocessors and bandwidth of a device that is not known."""
_HOST_LINK, _PAGEABLE, _NETWORK = 25e9, 8e9, 100e9
"""Bytes per second of copies from and to the host, of those from pageable memory, and of collectives, which no record
says; what is learned of them makes up for what is wrong in these."""
_PRODUCTS = frozenset({"GEMM", "Convolution", "Attention"})
LOG_START, MOST_LOSS = (log(300), 25.0), 12.0
"""Least and greatest log of a start-up time in ns; greatest u, v and w."""
_TEMPLATE = re.compile(r"[<(]")
_ARCHITECTURE = re.compile(r"^(?:cudnn_|infer_|train_)*(?:maxwell|volta|turing|ampere|hopper|sm\d+)_")
_SIZES = re.compile(r"_(?:MT)?\d+x\d+|_\d|_t?b?f\d+|_tilesize")
_GENERATED = re.compile(r"triton_[a-z]+|Cijk")
"""What TorchInductor and Tensile (of rocBLAS and hipBLASLt) call kernels; what follows says what is fused, or which
layouts, types and tiles."""


@cache
def kernel_family(kernel: str) -> str:
    """A kernel's name without namespaces, template arguments and parameters; of a library's, without architecture,
    element types and tile sizes; of a generated one, what generates it.

    Example:
        >>> kernel_family("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor>(int)")
        'vectorized_elementwise_kernel'
        >>> kernel_family("volta_sgemm_128x64_nn"), kernel_family("triton_poi_fused_add_cos_sin_0")
        ('sgemm', 'triton_poi')
    """
    generated = _GENERATED.match(kernel)
    if generated:
        return generated[0]
    if kernel.startswith("_ZN"):
        return _unmangled(kernel)
    plain = kernel.removeprefix("void ").replace("(anonymous namespace)", "anonymous")
    name = _TEMPLATE.split(plain)[0]
    return name.rpartition("::")[2] if "::" in name else _SIZES.split(_ARCHITECTURE.sub("", name))[0]


def _unmangled(kernel: str) -> str:
    """The last part of a nested name of the Itanium C++ ABI: "_ZN5aiter7rmsnormIfEvv" is aiter::rmsnorm<float>."""
    at, name = len("_ZN"), kernel
    while length := re.match(r"\d{1,4}", kernel[at:]):
        at += len(length[0]) + int(length[0])
        name = kernel[at - int(length[0]) : at]
    return name


def kind_of(task: Task) -> str:
    """One of `GPU_KINDS`; of copies between host and device, and of each collective, a kind of their own."""
    if task.collective:
        return f"collective {task.collective}"
    if "HtoD" in task.kernel or "DtoH" in task.kernel:
        return "pageable copy" if "ageable" in task.kernel else "host copy"
    return _kind(task.kernel, task.category)


@cache
def _kind(kernel: str, category: str) -> str:
    return GPU_KINDS[gpu_kind(kernel, category, is_comm=False)]


def wire_factor(collective: str, ranks: int | None) -> float:
    """Share of a buffer that passes the slowest link (`bus_factor`); 1 if unknown, and of a scatter, whose root sends
    to one rank after the other."""
    name = collective.lower().replace("-", "_")
    if not ranks or ranks < 2 or ("scatter" in name and "reduce" not in name):
        return 1.0
    return bus_factor(name, ranks) or 1.0


class EventWork(msgspec.Struct, frozen=True):
    """A GPU event as the law sees it.

    Attributes:
        known: FLOPs or bytes are known. bound: ns, 0 if not.
        usual: by term, log start in ns and u, v, w before anything is learned.
        amounts: time at the peak by term (COMPUTE and MEMORY, or THREADS), ns.
        labels: features that weights are learned for, with their values. kernel: the name.
    """

    known: bool
    bound: float
    usual: dict[str, float]
    amounts: dict[str, float]
    labels: dict[str, float]
    kernel: str

    @property
    def size(self) -> float:
        """ns, the greatest of the amounts."""
        return max(self.amounts.values())


def work_of(task: Task, devices: Mapping[str, Device]) -> EventWork:
    """The event as the law sees it; `devices` are records by name."""
    device, bound = device_of(task, devices), bound_of(task, devices)
    many, bandwidth = _USUAL_DEVICE
    if device is not None:
        many, bandwidth = device.multiprocessors or many, device.bytes_per_second
    labels, usual = _labels(task, device, many, bandwidth), _usual(task, bound is not None)
    if bound is None:
        threads = task.blocks * task.block_threads * _BYTES_PER_THREAD / bandwidth * 1e9
        return EventWork(False, 0.0, usual, {THREADS: threads}, labels, task.kernel)
    through = _through(task)
    memory = max(bound.memory, (task.bytes or 0) * 1e9 / through) if through else bound.memory * task.byte_factor
    amounts = {COMPUTE: bound.compute, MEMORY: memory}
    return EventWork(True, bound.ns, usual, amounts, labels, task.kernel)


def _usual(task: Task, known: bool) -> dict[str, float]:
    start = _COLLECTIVE_START_NS if task.collective else _START_NS[known]
    return _USUAL | {START: log(start)} | ({COMPUTE: _SCALAR_USUAL} if task.dtype in _SCALAR_TYPES else {})


def _through(task: Task) -> float | None:
    """Bytes per second of what a copy or collective passes other than the device's memory."""
    if task.collective:
        return _NETWORK / wire_factor(task.collective, task.group_size)
    return {"pageable copy": _PAGEABLE, "host copy": _HOST_LINK}.get(kind_of(task))


def _labels(task: Task, device: Device | None, many: int, bandwidth: float) -> dict[str, float]:
    kind = kind_of(task)
    named = {
        "kind": kind,
        "family": kernel_family(task.kernel),
        "op": task.op.rpartition("::")[2].strip("_"),
        "dtype": task.dtype + " product" * (kind in _PRODUCTS),
        "vendor": _vendor(task.device),
        "device": task.device,
    }
    labels = {f"{group} {value}": 1.0 for group, value in named.items() if value}
    labels["all"] = 1.0
    labels["bandwidth of a multiprocessor"] = log(bandwidth / many / 2e10)
    labels["multiprocessors"] = log(many / _USUAL_DEVICE[0])
    labels["multiprocessors without a block"] = max(log(many / task.blocks), 0.0) / 2 if task.blocks else 0.0
    return labels


def _vendor(device: str) -> str:
    return "AMD" if re.match(r"MI\d|AMD|gfx|Radeon", device) else "NVIDIA"


class Law(msgspec.Struct, frozen=True):
    """The learned law of events whose work is known, or of those whose work is not.

    Attributes:
        weights: by term and label; missing labels count 0.
        kernels: by kernel name, log of the ratio of its events' times and the rest of the law.
        smearing: mean of measured over predicted times without it, because a regression of logs finds medians and sums
            follow means (Duan, "Smearing estimate", 1983).
    """

    weights: dict[str, dict[str, float]]
    kernels: dict[str, float]
    smearing: float = 1.0

    __repr__ = brief

    def terms(self, work: EventWork) -> dict[str, float]:
        """Start in ns, and the time of each amount in ns, before the factors of the kernel's name and of smearing."""
        sums = {term: work.usual[term] + _sum(weights, work.labels) for term, weights in self.weights.items()}
        found = {START: exp(min(max(sums[START], LOG_START[0]), LOG_START[1]))}
        for term, amount in work.amounts.items():
            found[term] = amount * (exp(min(sums[term], MOST_LOSS)) + work.known)
        return found

    def nanoseconds(self, work: EventWork) -> float:
        """The time of an event, not below its bound."""
        terms = self.terms(work)
        ns = terms.pop(START) + max(terms.values())
        return max(ns * exp(self.kernels.get(work.kernel, 0.0)) * self.smearing, work.bound)


def _sum(weights: Mapping[str, float], labels: Mapping[str, float]) -> float:
    return sum(weights.get(label, 0.0) * value for label, value in labels.items())


class Utilisation(msgspec.Struct, frozen=True):
    """The fitted model; JSON-ready.

    Attributes:
        known: law of events with FLOPs or bytes. unknown: law of events with a grid. named: law of events with only a
            name; None in old files, whose `unknown` holds for them.
    """

    known: Law
    unknown: Law
    named: Law | None = None

    __repr__ = brief

    def law(self, work: EventWork) -> Law:
        """The one that holds for an event."""
        if work.known:
            return self.known
        return self.unknown if work.size or self.named is None else self.named

    def nanoseconds(self, task: Task, devices: Mapping[str, Device]) -> float:
        """Predicted time of a GPU event."""
        work = work_of(task, devices)
        return self.law(work).nanoseconds(work)


Floats = npt.NDArray[np.float64]

_PENALTIES: dict[bool, dict[str, dict[str, float]]] = {
    True: {
        START: {"all": 0.3, "kind": 5, "family": 10, "vendor": 10},
        COMPUTE: {"all": 1, "kind": 3, "dtype": 3, "": 3},
        MEMORY: {"all": 1, "kind": 3, "family": 2, "op": 4, "": 3},
    },
    False: {
        START: {"all": 0.1, "kind": 1, "family": 1, "op": 3, "device": 3},
        THREADS: {"all": 0.3, "kind": 1.5, "family": 2, "": 3},
    },
}
"""By whether the work is known, term and group of labels ("" are numbers), how strongly a weight is drawn to 0: as by
that many events that show no difference. Groups that are not listed have no weights in the term."""
_NUMBERS = ("bandwidth of a multiprocessor", "multiprocessors", "multiprocessors without a block")
_HUBER = 0.5
"""Log residuals above this count in proportion, not squared."""
_NAME_PENALTY, _MOST_RESIDUAL = 1.5, 1.5
_ROUNDS, _LONGEST_STEP, _SETTLED = 25, 1.5, 0.01


def fit_utilisation(measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> Utilisation:
    """Fit the three laws on GPU events with positive times.

    Events of which more is known also count for the other laws, as if it were not known.
    """
    log_ns = np.log([max(event.ns, 1.0) for event in measured])
    sized = [event.task for event in measured]
    launched = [msgspec.structs.replace(task, main=False) for task in sized]
    named = [task.unlaunched for task in launched]

    def law(tasks: Sequence[Task], serves: Callable[[EventWork], bool], known: bool = False) -> Law:
        works = [work_of(task, devices) for task in tasks]
        rows = [i for i, work in enumerate(works) if serves(work)]
        return _fit_law([works[i] for i in rows], log_ns[rows], known)

    return Utilisation(
        law(sized, lambda work: work.known, known=True),
        law(launched, lambda work: work.size > 0),
        law(named, lambda _: True),
    )


class _Term:
    """The columns of one linear sum: labels, their penalties, and the values of each event."""

    def __init__(self, term: str, works: Sequence[EventWork], penalties: Mapping[str, float]) -> None:
        self.labels: dict[str, int] = {}
        self.penalty: list[float] = []
        cells: list[tuple[int, int, float]] = []
        for row, work in enumerate(works):
            for label, value in work.labels.items():
                penalty = penalties.get("" if label in _NUMBERS else label.partition(" ")[0])
                if penalty is not None:
                    if label not in self.labels:
                        self.labels[label] = len(self.penalty)
                        self.penalty.append(penalty)
                    cells.append((row, self.labels[label], value))
        self.rows: Floats = np.zeros((len(works), len(self.labels)))
        at = np.array(cells, np.float64).reshape(-1, 3)
        self.rows[at[:, 0].astype(np.int64), at[:, 1].astype(np.int64)] = at[:, 2]
        self.amount = np.array([work.amounts.get(term, 0.0) for work in works])
        self.usual = np.array([work.usual[term] for work in works])


def _fit_law(works: Sequence[EventWork], log_ns: Floats, known: bool) -> Law:
    """Gauss-Newton steps with weights by residual (Huber, 1964), towards weights of 0."""
    terms = {term: _Term(term, works, penalties) for term, penalties in _PENALTIES[known].items()}
    penalty = np.concatenate([np.array(term.penalty) for term in terms.values()])
    ends = np.cumsum([len(term.penalty) for term in terms.values()])[:-1]
    weights = np.zeros(len(penalty))
    residual = np.zeros(len(works))
    for _ in range(_ROUNDS if len(works) else 0):
        log_time, slopes = _predict(terms, np.split(weights, ends), known)
        residual = log_ns - log_time
        counts = np.minimum(1.0, _HUBER / np.maximum(np.abs(residual), 1e-9))
        weighted = slopes * counts[:, None]
        step = np.linalg.solve(slopes.T @ weighted + np.diag(penalty), weighted.T @ residual - penalty * weights)
        longest = float(np.abs(step).max(initial=0.0))
        weights += step * min(1.0, _LONGEST_STEP / max(longest, 1e-9))
        if longest < _SETTLED:
            break
    split = np.split(weights, ends)
    residual = np.clip(log_ns - _predict(terms, split, known)[0], -_MOST_RESIDUAL, _MOST_RESIDUAL)
    kernels = _by_kernel(works, residual)
    residual -= [kernels[work.kernel] for work in works]
    learned = {
        name: {label: round(float(of[at]), 4) for label, at in term.labels.items() if of[at]}
        for (name, term), of in zip(terms.items(), split, strict=True)
    }
    return Law(learned, kernels, round(float(np.exp(residual).mean()), 4) if works else 1.0)


def _predict(terms: Mapping[str, _Term], weights: Sequence[Floats], known: bool) -> tuple[Floats, Floats]:
    """Log times, and their slopes by weight (events, weights)."""
    sums = [term.usual + term.rows @ of for term, of in zip(terms.values(), weights, strict=True)]
    start = np.exp(np.clip(sums[0], *LOG_START))
    names, work = list(terms)[1:], [np.exp(np.minimum(of, MOST_LOSS)) for of in sums[1:]]
    times = [terms[name].amount * (loss + known) for name, loss in zip(names, work, strict=True)]
    longest = np.argmax(times, axis=0)
    total_ns = start + np.max(times, axis=0)
    slopes = [terms[START].rows * (start / total_ns)[:, None]]
    for at, (name, loss) in enumerate(zip(names, work, strict=True)):
        share = np.where(longest == at, terms[name].amount * loss / total_ns, 0.0)
        slopes.append(terms[name].rows * share[:, None])
    return np.log(total_ns), np.concatenate(slopes, axis=1)


def _by_kernel(works: Sequence[EventWork], residual: Floats) -> dict[str, float]:
    """Of each kernel's name the mean residual, drawn to 0 where there are few events."""
    found: dict[str, list[float]] = {}
    for work, value in zip(works, residual.tolist(), strict=True):
        found.setdefault(work.kernel, []).append(value)
    return {name: round(sum(of) / (len(of) + _NAME_PENALTY), 4) for name, of in found.items()}
