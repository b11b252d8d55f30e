"""The utilization model: the time of a GPU event from its FLOPs, its bytes, and the efficiency of similar kernels.

    time = start + max(C (1 + e^u), M (1 + e^v)),   efficiencies 1/(1 + e^u) and 1/(1 + e^v)

C is FLOPs / peak rate and M is bytes / bandwidth (`bound_of`). Log start, u and v are sums of learned weights, with one
weight per label of the event: kind and family of the kernel, operator, dtype, vendor, and three numbers from the device
and the grid. So the time grows with FLOPs and bytes and is never below the lower bound. As the size grows, the
achieved share of the peak rate rises from 0 to the efficiency. The model combines NeuSight's utilization (Lee et al.,
ASPLOS 2025) with the start-up time of Hockney's r∞, n½ model (1982). If neither FLOPs nor bytes are known,

    time = start + N e^w,

where N is the time that the launched threads need to move 16 bytes each at full bandwidth. If the grid is unknown, the
time is just the start, learned from the kernel's name and family. The results of all three laws are multiplied by mean
time / median time. If the bytes are only known to be in a range (experts), M uses its middle, and the bound its start.
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
from .task import MeasuredTask, Task, bound_of, device_of

# Terms of the laws. The name of each label starts with the name of its term.
START, COMPUTE, MEMORY, THREADS = "start", "compute", "memory", "threads"
# Initial start-up times in ns: for known work (True), for unknown work, and for collectives (ranks must synchronize).
_START_NS, _COLLECTIVE_START_NS = {True: 2000.0, False: 4000.0}, 20_000.0
# Initial values of u, v and w: 55% of the peak rate, 65% of the bandwidth, and 16 bytes per thread.
_USUAL = {COMPUTE: -0.2, MEMORY: -0.6, THREADS: 0.0}
# Dtypes that use no tensor cores start at 75% of the peak rate, because slower arithmetic waits less for its operands.
_SCALAR_USUAL, _SCALAR_TYPES = -1.1, frozenset({"float32", "float64"})
_BYTES_PER_THREAD = 16
_USUAL_DEVICE = 100, 2e12  # An unknown device is assumed to have this many multiprocessors and bytes per second.
# Assumed bytes per second of copies between host and device, copies from pageable memory, and collectives.
# Device records do not contain these rates. Learned weights correct them.
_HOST_LINK, _PAGEABLE, _NETWORK = 25e9, 8e9, 100e9
_PRODUCTS = frozenset({"GEMM", "Convolution", "Attention"})
# These limits keep the exponentials finite: the range of log(start-up time in ns), and the maximum of u, v and w.
LOG_START, MOST_LOSS = (log(300), 25.0), 12.0
_TEMPLATE = re.compile(r"[<(]")
_ARCHITECTURE = re.compile(r"^(?:cudnn_|infer_|train_)*(?:maxwell|volta|turing|ampere|hopper|sm\d+)_")
_SIZES = re.compile(r"_(?:MT)?\d+x\d+|_\d|_t?b?f\d+|_tilesize")
# Names of kernels from TorchInductor and Tensile (rocBLAS, hipBLASLt) start with these prefixes.
# The names continue with fused operators (TorchInductor), or with layouts, dtypes and tiles (Tensile).
_GENERATED = re.compile(r"triton_[a-z]+|Cijk")


@cache
def kernel_family(kernel: str) -> str:
    """Return a kernel's name without namespaces, template arguments and parameters.

    Architecture, dtypes and tile sizes are removed from library names. The name of a generated kernel is reduced to its
    generator.

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
    """Return the last part of a mangled name (Itanium C++ ABI), such as "rmsnorm" for "_ZN5aiter7rmsnormIfEvv"."""
    at, name = len("_ZN"), kernel
    while length := re.match(r"\d{1,4}", kernel[at:]):
        at += len(length[0]) + int(length[0])
        name = kernel[at - int(length[0]) : at]
    return name


def kind_of(task: Task) -> str:
    """Return the kind of a GPU event (`GPU_KINDS`). Each type of collective or host-device copy has its own kind."""
    if task.collective:
        return f"collective {task.collective}"
    if "HtoD" in task.kernel or "DtoH" in task.kernel:
        return "pageable copy" if "ageable" in task.kernel else "host copy"
    return _kind(task.kernel, task.category)


@cache
def _kind(kernel: str, category: str) -> str:
    return GPU_KINDS[gpu_kind(kernel, category, is_comm=False)]


def wire_factor(collective: str, ranks: int | None) -> float:
    """Return the share of a buffer that crosses the slowest link (`bus_factor`).

    The share is 1 if it is unknown, and for a scatter, because the root sends to one rank after another.
    """
    name = collective.lower().replace("-", "_")
    if not ranks or ranks < 2 or ("scatter" in name and "reduce" not in name):
        return 1.0
    return bus_factor(name, ranks) or 1.0


class EventWork(msgspec.Struct, frozen=True):
    known: bool  # True if FLOPs or bytes are known
    bound: float  # lower bound in ns; 0 if FLOPs and bytes are unknown
    usual: dict[str, float]  # maps each term to its initial value: log(start in ns), u, v or w
    amounts: dict[str, float]  # maps COMPUTE and MEMORY, or only THREADS, to the time in ns at the peak rate
    labels: dict[str, float]  # maps each feature that has learned weights to its value
    kernel: str  # name of the kernel

    @property
    def size(self) -> float:
        return max(self.amounts.values())


def work_of(task: Task, devices: Mapping[str, Device]) -> EventWork:
    device, bound = device_of(task, devices), bound_of(task, devices)
    many, bandwidth = _USUAL_DEVICE
    if device is not None:
        many, bandwidth = device.multiprocessors or many, device.bytes_per_second
    labels = _labels(task, device, many, bandwidth)
    usual = _USUAL | {START: log(_COLLECTIVE_START_NS if task.collective else _START_NS[bound is not None])}
    usual |= {COMPUTE: _SCALAR_USUAL} if task.dtype in _SCALAR_TYPES else {}
    if bound is None:
        threads = task.blocks * task.block_threads * _BYTES_PER_THREAD / bandwidth * 1e9
        return EventWork(False, 0.0, usual, {THREADS: threads}, labels, task.kernel)
    through = _through(task)
    memory = max(bound.memory, (task.bytes or 0) * 1e9 / through) if through else bound.memory * task.byte_factor
    amounts = {COMPUTE: bound.compute, MEMORY: memory}
    return EventWork(True, bound.ns, usual, amounts, labels, task.kernel)


def _through(task: Task) -> float | None:
    """Return the link rate of a copy or collective in bytes per second; None for work that uses no link."""
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
        "vendor": "AMD" if re.match(r"MI\d|AMD|gfx|Radeon", task.device) else "NVIDIA",
        "device": task.device,
    }
    labels = {f"{group} {value}": 1.0 for group, value in named.items() if value}
    labels["all"] = 1.0
    labels["bandwidth of a multiprocessor"] = log(bandwidth / many / 2e10)
    labels["multiprocessors"] = log(many / _USUAL_DEVICE[0])
    labels["multiprocessors without a block"] = max(log(many / task.blocks), 0.0) / 2 if task.blocks else 0.0
    return labels


class Law(msgspec.Struct, frozen=True):
    """Learned weights of one law: for events with FLOPs or bytes, with only a grid, or with only a name."""

    weights: dict[str, dict[str, float]]  # maps each term to its labels' learned weights; a missing label has weight 0
    kernels: dict[str, float]  # maps kernel names to log(measured time / time predicted without this correction)
    # Mean of measured time / time predicted without this factor.
    # A regression on logs predicts medians, but sums depend on means (Duan, "Smearing estimate", 1983).
    smearing: float = 1.0

    __repr__ = brief

    def terms(self, work: EventWork) -> dict[str, float]:
        """Map each term to its value in ns, before the factors for the kernel name and smearing are applied."""
        sums = {term: work.usual[term] + _sum(weights, work.labels) for term, weights in self.weights.items()}
        found = {START: exp(min(max(sums[START], LOG_START[0]), LOG_START[1]))}
        for term, amount in work.amounts.items():
            found[term] = amount * (exp(min(sums[term], MOST_LOSS)) + work.known)
        return found

    def nanoseconds(self, work: EventWork) -> float:
        terms = self.terms(work)
        ns = terms.pop(START) + max(terms.values())
        return max(ns * exp(self.kernels.get(work.kernel, 0.0)) * self.smearing, work.bound)


def _sum(weights: Mapping[str, float], labels: Mapping[str, float]) -> float:
    return sum(weights.get(label, 0.0) * value for label, value in labels.items())


class Utilization(msgspec.Struct, frozen=True):
    known: Law  # law for events with known FLOPs or bytes
    unknown: Law  # law for events with a known grid but unknown FLOPs and bytes
    named: Law | None = None  # law for all other events; if None (files from older versions), `unknown` is used

    __repr__ = brief

    def law(self, work: EventWork) -> Law:
        if work.known:
            return self.known
        return self.unknown if work.size or self.named is None else self.named

    def nanoseconds(self, task: Task, devices: Mapping[str, Device]) -> float:
        work = work_of(task, devices)
        return self.law(work).nanoseconds(work)


Floats = npt.NDArray[np.float64]

# Ridge penalties by [work is known][term][group of labels]; "" is the group of numeric features.
# A penalty of 3 acts like 3 events that pull the weight to 0. A term has no weights for groups that are not listed.
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
_NUMBERS = ("bandwidth of a multiprocessor", "multiprocessors", "multiprocessors without a block")
_HUBER = 0.5  # Log residuals above this are penalized linearly instead of quadratically.
_NAME_PENALTY, _MOST_RESIDUAL = 1.5, 1.5
_ROUNDS, _LONGEST_STEP, _SETTLED = 25, 1.5, 0.01


def fit_utilization(measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> Utilization:
    """Fit the three laws on GPU events with positive times.

    An event is also used to fit the laws that need less data than it has; those laws ignore its additional data.
    """
    log_ns = np.log([max(event.ns, 1.0) for event in measured])
    sized = [event.task for event in measured]
    launched = [msgspec.structs.replace(task, main=False) for task in sized]
    named = [task.unlaunched for task in launched]

    def law(tasks: Sequence[Task], serves: Callable[[EventWork], bool], known: bool = False) -> Law:
        works = [work_of(task, devices) for task in tasks]
        rows = [i for i, work in enumerate(works) if serves(work)]
        return _fit_law([works[i] for i in rows], log_ns[rows], known)

    return Utilization(
        law(sized, lambda work: work.known, known=True),
        law(launched, lambda work: work.size > 0),
        law(named, lambda _: True),
    )


class _Term:
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
    terms = {term: _Term(term, works, penalties) for term, penalties in _PENALTIES[known].items()}
    penalty = np.concatenate([np.array(term.penalty) for term in terms.values()])
    ends = np.cumsum([len(term.penalty) for term in terms.values()])[:-1]
    weights = np.zeros(len(penalty))
    residual = np.zeros(len(works))
    for _ in range(_ROUNDS):
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
    named: dict[str, list[float]] = {}
    for work, value in zip(works, residual.tolist(), strict=True):
        named.setdefault(work.kernel, []).append(value)
    kernels = {name: round(sum(of) / (len(of) + _NAME_PENALTY), 4) for name, of in named.items()}  # shrunk to 0
    residual -= [kernels[work.kernel] for work in works]
    learned = {
        name: {label: round(float(of[at]), 4) for label, at in term.labels.items() if of[at]}
        for (name, term), of in zip(terms.items(), split, strict=True)
    }
    return Law(learned, kernels, round(float(np.exp(residual).mean()), 4) if works else 1.0)


def _predict(terms: Mapping[str, _Term], weights: Sequence[Floats], known: bool) -> tuple[Floats, Floats]:
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
