"""The detectors of the host."""

from __future__ import annotations

from .finding import Detector
from .host import LateFinish, LateStart, LaunchBound, PageableCopies, SynchronisingCalls
from .host_work import DataLoading, HostLoop, PythonOverhead

HOST: tuple[Detector, ...] = (
    LateStart(), LaunchBound(), SynchronisingCalls(), PageableCopies(), DataLoading(), HostLoop(), PythonOverhead(),
    LateFinish(),
)  # fmt: skip
