"""The detectors of the host."""

from __future__ import annotations

from .finding import Detector
from .host import LateFinish, LateStart, LaunchBound, PageableCopies, SynchronisingCalls
from .host_work import DataLoading, DoublePrecision, HostLoop, PythonOverhead, SmallOperators

HOST: tuple[Detector, ...] = (
    LateStart(), LaunchBound(), SynchronisingCalls(), PageableCopies(), DataLoading(), HostLoop(), SmallOperators(),
    DoublePrecision(), PythonOverhead(), LateFinish(),
)  # fmt: skip
