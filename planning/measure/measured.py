"""Times of a trace's operators on this machine: the file format, and the prediction of other traces' calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ...schemas.text.files import Source, open_output, read_struct
from ...trace.brief import brief
from ...trace.conventions import MAX_NS
from ...trace.errors import TraceFormatError
from ...trace.index import Row
from ...trace.trace import Trace
from .recorded_calls import RecordedCall, recorded_calls

VERSION = 1
_NEAR_NS, _AS_NEAR, _MOST_COUNTED = 1000, 0.25, 1000
_LONG_NS = 50_000  # Calls that take less time than this are not compared with their recorded times.
_LEAST_TO_FIT, _REWEIGHTED = 12, 30
_REMEDY = "make it with `etplus measure`"


class Conditions(msgspec.Struct, frozen=True):
    device: str
    threads: int
    torch: str

    __repr__ = brief


class Timing(msgspec.Struct, frozen=True, omit_defaults=True):
    key: str  # hash of operator, shapes, strides, dtypes and numeric arguments (`RecordedCall.key`)
    op: str  # qualified name of the operator
    shapes: str  # shapes of the tensors, such as "4x8 8x2"
    dtypes: str  # dtypes of the tensors, such as "float32"
    ns: float  # median time over `runs` calls, including callees
    iqr_ns: float  # interquartile range over `runs` calls
    runs: int
    # Self time in ns. None if a callee was not executed, or if the operator calls additional operators on this machine.
    own_ns: float | None = None
    count: int = 0  # number of calls in the traces
    # Median times in the traces (GPU times if the call was measured on a GPU).
    # None if the shapes were not recorded, or if the recording used a GPU and the measurement did not (or vice versa).
    recorded_ns: float | None = None
    recorded_own_ns: float | None = None
    callees: int = 0  # number of direct callees in the recording
    own_tensors: int = 0  # number of the call's input and output tensors

    __repr__ = brief


class NotExecuted(msgspec.Struct, frozen=True):
    """The calls of one operator that were not executed: why, how many, and their share of all operator self time."""

    op: str
    reason: str
    count: int
    share: float

    __repr__ = brief


class Recorder(NamedTuple):
    """Models recorded self times: executed self time × slowdown, plus overhead in ns per call, callee and tensor.

    Operators are slower in a program, because their data are not in the caches, and because machines differ.
    """

    slowdown: float
    call_ns: float
    callee_ns: float
    tensor_ns: float

    @staticmethod
    def of(timings: Sequence[Timing]) -> Recorder:
        """Fit non-negative coefficients to the self times of all calls by least absolute deviations.

        The method is iteratively reweighted least squares. Errors are relative, so that long operators do not dominate.
        """
        known = [timing for timing in timings if timing.own_ns is not None and timing.recorded_own_ns]
        if len(known) < _LEAST_TO_FIT:
            return Recorder(1.0, 0.0, 0.0, 0.0)
        recorded = np.array([timing.recorded_own_ns for timing in known], float)
        per = np.array([(timing.own_ns, 1, timing.callees, timing.own_tensors) for timing in known], float)
        scale = weight = 1 / recorded
        found = np.zeros(4)
        for _ in range(_REWEIGHTED):
            found = _not_negative(per * scale[:, None], recorded * scale)
            missed = np.abs(recorded - per @ found) * weight
            scale = weight / np.sqrt(np.maximum(missed, 1e-3))
        return Recorder(*found.tolist())

    def added(self, callees: int, tensors: int) -> float:
        return self.call_ns + self.callee_ns * callees + self.tensor_ns * tensors


def _not_negative(left: npt.NDArray[np.float64], right: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Solve a non-negative least-squares problem by repeatedly setting the most negative unknown to 0."""
    kept = list(range(left.shape[1]))
    found = np.zeros(left.shape[1])
    while kept:
        part = np.linalg.lstsq(left[:, kept], right, rcond=None)[0]
        if (part >= 0).all():
            found[kept] = part
            return found
        kept.pop(int(part.argmin()))
    return found


class Measured(msgspec.Struct, frozen=True, dict=True):
    """Times of distinct operator calls on one machine."""

    version: int
    files: tuple[str, ...]
    conditions: Conditions
    timings: tuple[Timing, ...]  # executed calls, sorted by total time in the traces, longest first
    not_executed: tuple[NotExecuted, ...]  # skipped calls, grouped by operator and reason, largest share first
    executed: float  # share of the total operator self time that is covered by executed calls and their callees
    outside: float  # share of the total self time that the autograd engine, Python and annotations take

    __repr__ = brief

    @cached_property
    def by_key(self) -> Mapping[str, Timing]:
        return {timing.key: timing for timing in self.timings}

    @cached_property
    def recorder(self) -> Recorder:
        return Recorder.of(self.timings)

    def own_ns(self, key: str) -> float | None:
        """Return the self time of a call as it would be recorded, in ns; None if the call was not executed.

        The result is the time on this machine × slowdown + recording overhead. The overhead is the median over recorded
        calls of the operator that have a similar self time and number of tensors. For more callees and tensors, it
        grows with the square root of `Recorder.added`, because their code and data are already in the caches.
        """
        found = self.by_key.get(key)
        if found is None or found.own_ns is None:
            return None
        own, slowdown = found.own_ns, self.recorder.slowdown
        added = self.recorder.added(found.callees, found.own_tensors)
        known = self._recorded.get(found.op)
        if known is not None:
            here, recorded, tensors, usual = known
            far = np.abs(np.log((here + _NEAR_NS) / (own + _NEAR_NS)))
            far += np.abs(np.log((tensors + 1) / (found.own_tensors + 1)))
            near = far <= far.min() + _AS_NEAR
            growth = np.sqrt(np.where(usual > 0, added / np.maximum(usual, 1), 1.0))
            added = float(np.median((np.maximum(recorded - slowdown * here, 0.0) * growth)[near]))
        return slowdown * own + added

    @cached_property
    def _recorded(self) -> Mapping[str, npt.NDArray[np.float64]]:
        """Maps operators to arrays (4, calls): executed self time, recorded self time, number of tensors, and overhead.

        Times are in ns, and each call is repeated according to its count.
        """
        found: dict[str, list[tuple[float, float, float, float]]] = {}
        for timing in self.timings:
            if timing.own_ns is not None and timing.recorded_own_ns is not None:
                added = self.recorder.added(timing.callees, timing.own_tensors)
                row = timing.own_ns, timing.recorded_own_ns, float(timing.own_tensors), added
                found.setdefault(timing.op, []).extend([row] * min(timing.count, _MOST_COUNTED))
        return {op: np.array(calls).T for op, calls in found.items()}

    def ratios(self, *, least_ns: float = _LONG_NS) -> list[float]:
        """Return executed / recorded self time for each call of at least `least_ns`, after subtracting the overhead.

        Calls are skipped if over half of their recorded time is overhead.
        """
        return [
            timing.own_ns / (timing.recorded_own_ns - added)
            for timing in self.timings
            if timing.own_ns is not None
            and timing.recorded_own_ns
            and timing.own_ns >= least_ns
            and (added := self.recorder.added(timing.callees, timing.own_tensors)) <= timing.recorded_own_ns / 2
        ]


def write_measured(measured: Measured, path: str) -> None:
    """Write the measured times as JSON, gzipped if the name ends in ".gz"."""
    with open_output(path) as out:
        out.write(msgspec.json.format(msgspec.json.encode(measured), indent=1) + b"\n")


def read_measured(source: Source) -> Measured:
    """Read measured times written by `write_measured`."""
    found, name = read_struct(source, Measured, "invalid measured times", _REMEDY)
    if found.version != VERSION:
        raise TraceFormatError(name, "version", f"{found.version}, expected {VERSION}", "measure again")
    for at, timing in enumerate(found.timings):
        times = (timing.ns, timing.iqr_ns, timing.own_ns or 0, timing.recorded_ns or 0)
        if not all(0 <= value < MAX_NS for value in (*times, timing.callees, timing.own_tensors)):
            raise TraceFormatError(name, f"timings[{at}]", "invalid time or count", _REMEDY)
    return msgspec.structs.replace(found, files=tuple(Path(name).name for name in found.files))


EXECUTED = "executed"  # name of the source of times that were measured on this machine
RECORDED = "recorded"  # name of the source of times that are kept from the trace
_FROM_TRACES, _UNKNOWN = {"same place", "measured"}, "unknown"


def own_times(trace: Trace, measured: Measured | None) -> dict[Row, float]:
    """Map rows of executed operators to their self times in ns, which include the recording overhead."""
    if measured is None:
        return {}
    known = dict[str, float | None]()
    found = {}
    for call, recorded in recorded_calls(trace):
        if isinstance(recorded, RecordedCall):
            key = recorded.key
            if key not in known:
                known[key] = measured.own_ns(key)
            own = known[key]
            if own is not None:
                found[trace.calls.source[call]] = own
    return found


def shares_of_sources(times: Iterable[tuple[str, float]]) -> Mapping[str, float]:
    """Map each source of times (measured here, from traces, modeled, as recorded) to its share of the total time."""
    found = defaultdict[str, float](float, {"measured here": 0.0, "from traces": 0.0, "modeled": 0.0})
    of = {EXECUTED: "measured here", RECORDED: "as recorded", _UNKNOWN: "as recorded"} | dict.fromkeys(
        _FROM_TRACES, "from traces"
    )
    for how, ns in times:
        found[of.get(how, "modeled")] += ns
    whole = sum(found.values())
    return {name: ns / whole if whole else 0.0 for name, ns in found.items()}
