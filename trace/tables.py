"""The one form in which analysis sees a trace, whether ET+ or Kineto alone: columns of calls and of GPU events."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..schemas.etplus import UNATTACHED_REASONS
from .call_tree import Hierarchy, place_calls
from .columns import IntColumn
from .comm_kernels import is_comm_kernel
from .conventions import PROFILER_STEP
from .intervals import Span
from .tensors import Signature
from .trace import Comm

__all__ = ["ANNOTATION", "MODULE", "OP", "Calls", "GpuEvents", "RuntimeCalls", "Trace", "reasons"]

OP, ANNOTATION, MODULE = 0, 1, 2
"""Values of `Calls.kind`: operator; user annotation; Python call of a module's forward (traces recorded with_stack)."""

Codes = npt.NDArray[np.int32]

_NO_LAUNCHER = UNATTACHED_REASONS.index("no launcher in the trace")
_OUTSIDE_OPS = UNATTACHED_REASONS.index("launcher outside any op")
_NAMED_REGION = re.compile(r"## .* ##|## .*|nn\.Module: .*")


@dataclass(frozen=True)
class Calls:
    """CPU calls with a known time. A parent stands before its children.

    Attributes:
        name: int32 code into `Trace.names`.
        kind: int8, OP, ANNOTATION or MODULE.
        parent: int64, position of the innermost call around it, −1 for none.
        thread: int64, one number a thread.
        ts, end: int64 ns.
        signature: int32 code into `Trace.signatures`, −1 if nothing is recorded.
        source: int64, index in `traceEvents`, or row of the `EtPlusDocument`.
    """

    name: Codes
    kind: npt.NDArray[np.int8]
    parent: IntColumn
    thread: IntColumn
    ts: IntColumn
    end: IntColumn
    signature: Codes
    source: IntColumn

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True)
class RuntimeCalls:
    """Runtime and driver calls, in order of start.

    Attributes:
        name: int32 code into `Trace.names`.
        thread: int64, the same numbers as `Calls.thread`.
        ts, end: int64 ns.
        call: int64, position in `Calls` of the innermost call around it, −1 for none.
        launches: bool, it started at least one of the trace's GPU events.
        source: int64, as in `Calls`.
    """

    name: Codes
    thread: IntColumn
    ts: IntColumn
    end: IntColumn
    call: IntColumn
    launches: npt.NDArray[np.bool_]
    source: IntColumn

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True)
class GpuEvents:
    """Kernels, copies and memsets, in order of start.

    Attributes:
        name: int32 code into `Trace.names`.
        category: int32 code into `Trace.categories`.
        ts, dur: int64 ns; dur is not negative.
        device, stream: int64, −1 for none.
        call: int64, position in `Calls` of the call that launched it, −1 if unknown.
        runtime: int64, position in `RuntimeCalls` of the call that launched it, −1 if unknown.
        reason: int8, why no call is known to have launched it, index into `UNATTACHED_REASONS`; 0 where one is.
        bytes: int64, size of a copy or memset, −1 if not recorded.
        comm: by position, what a communication kernel communicates.
        source: int64, as in `Calls`; −1 for an event that is no row of the `EtPlusDocument`.
    """

    name: Codes
    category: Codes
    ts: IntColumn
    dur: IntColumn
    device: IntColumn
    stream: IntColumn
    call: IntColumn
    runtime: IntColumn
    reason: npt.NDArray[np.int8]
    bytes: IntColumn
    comm: dict[int, Comm]
    source: IntColumn

    def __len__(self) -> int:
        return len(self.name)

    @property
    def end(self) -> IntColumn:
        """int64 ns, ts + dur."""
        return self.ts + self.dur

    def take(self, rows: IntColumn) -> GpuEvents:
        """Those of some positions, in that order."""
        kept = {old: new for new, old in enumerate(rows.tolist())}
        columns = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "comm"}
        comm = {kept[old]: comm for old, comm in self.comm.items() if old in kept}
        return GpuEvents(comm=comm, **{name: column[rows] for name, column in columns.items()})


def reasons(call: IntColumn, runtime: IntColumn) -> npt.NDArray[np.int8]:
    """`GpuEvents.reason` where nothing else is known than the other two columns."""
    reason = np.where(runtime >= 0, _OUTSIDE_OPS, _NO_LAUNCHER)
    return np.where(call >= 0, 0, reason).astype(np.int8)


@dataclass(frozen=True)
class Trace:
    """A trace of one rank.

    Attributes:
        file: name for messages.
        names, categories, signatures: by code.
        properties: device number to what Kineto's `deviceProperties` say of it; only devices that ran something.
        rank: None where the trace does not tell.
        base_time_ns: what is added to times for wall-clock ns.
        coverage: what the linker reported, {} for Kineto alone.
        notes: what is missing from the trace and makes results poorer, in sentences.
        distributed_info: what Kineto records of the job, {} where it records nothing.
        damage: what is wrong with the file, or with those that were linked, in sentences.
    """

    file: str
    names: list[str]
    categories: list[str]
    signatures: list[Signature]
    calls: Calls
    runtime: RuntimeCalls
    gpu: GpuEvents
    properties: Mapping[int, Mapping[str, Any]]
    rank: int | None
    base_time_ns: int
    coverage: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()
    distributed_info: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def span(self) -> Span:
        """From the start of the first call or GPU event to the end of the last one, ns; (0, 0) in an empty trace."""
        starts = [part.ts.min() for part in (self.calls, self.runtime, self.gpu) if len(part)]
        ends = [part.end.max() for part in (self.calls, self.runtime, self.gpu) if len(part)]
        return Span(int(min(starts, default=0)), int(max(ends, default=0)))

    @property
    def digest(self) -> bytes:
        """A digest of when its calls and GPU events began and ended: that of another recording is another one."""
        found = hashlib.blake2b(str(self.base_time_ns).encode(), digest_size=16)
        for part in (self.calls, self.runtime, self.gpu):
            found.update(part.ts.tobytes() + part.end.tobytes())
        return found.digest()

    @cached_property
    def hierarchy(self) -> Hierarchy:
        """Of every call the module path and the operator that it counts to."""
        named = np.array([_NAMED_REGION.fullmatch(name) is not None for name in self.names], np.bool_)
        steps = np.array([PROFILER_STEP.fullmatch(name) is not None for name in self.names], np.bool_)
        calls = self.calls
        is_op = calls.kind == OP
        return place_calls(calls.parent, calls.name, is_op, ~is_op & named[calls.name], steps[calls.name])

    @cached_property
    def is_comm(self) -> npt.NDArray[np.bool_]:
        """Which GPU events are communication kernels."""
        named = np.array([is_comm_kernel(name) for name in self.names], np.bool_)
        communicating = named[self.gpu.name] if len(self.gpu) else np.zeros(0, np.bool_)
        communicating[list(self.gpu.comm)] = True
        return communicating

    def signature_of(self, call: int) -> Signature | None:
        """What a call was called with, None if that is not recorded."""
        code = int(self.calls.signature[call])
        return self.signatures[code] if code >= 0 else None

    def name_of(self, code: int) -> str:
        """A name by its code."""
        return self.names[code]
