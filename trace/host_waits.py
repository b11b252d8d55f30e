"""Use names and end times to find runtime calls that block their thread until the device has finished."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .columns import IntColumn, matching

DEVICE_SYNCHRONIZE = re.compile(r"(?:Device|Ctx|Context)Synchronize")
SYNCHRONIZE = re.compile(r"(?:Device|Ctx|Context|Stream|Event)Synchronize")
EVENT_SYNCHRONIZE = re.compile(r"EventSynchronize")
EVENT_RECORD = re.compile(r"EventRecord(?!ed)")
COPY = re.compile(r"[Mm]emcpy")
STREAM_WAIT = re.compile(r"StreamWaitEvent")
ROUNDING_NS = 1000  # Files written before 2024 have times in whole µs.
MAX_SKEW_NS = 20_000  # Maximum difference between host and device clocks (8.1 µs was measured on MI300X).
LONG_PAUSE_NS = 200_000  # In a shorter pause, a thread does its own work and does not wait for another thread.
_ASYNC = re.compile(r"Async")
_HOST_COPY = re.compile(r"Pageable|HostToDevice|DeviceToHost")
_READBACK = re.compile(r"DtoH|DeviceToHost")
_Codes = npt.NDArray[np.integer]
_Flags = npt.NDArray[np.bool_]


def named(names: Sequence[str], code: _Codes, pattern: re.Pattern[str]) -> _Flags:
    return matching(code, names, pattern.search)


def blocking_copies(
    names: Sequence[str], copy: _Codes, call: _Codes, late_ns: IntColumn, tolerance_ns: int = ROUNDING_NS
) -> _Flags:
    """Return a mask of the memcpys that blocked the calling thread. A memcpy blocks if it is synchronous or uses
    pageable memory ("Asynchronous Concurrent Execution" in the CUDA C Programming Guide), and if its call returned no
    earlier than `tolerance_ns` before the copy ended."""
    waits = named(names, copy, _HOST_COPY) | ~named(names, call, _ASYNC)
    return waits & named(names, call, COPY) & (late_ns <= tolerance_ns)


def synchronous_readback(names: Sequence[str], copy: _Codes, call: _Codes) -> _Flags:
    """Return a mask of the GPU events that are synchronous memcpys to the host. The calls return after the copies."""
    by_copy_call = named(names, call, COPY) & ~named(names, call, _ASYNC)
    return by_copy_call & named(names, copy, _READBACK)
