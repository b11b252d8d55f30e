"""A Kineto trace alone as a `Trace`: callers from the nesting of times, launches from correlations."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from ..schemas.columns import IntColumn, positions
from ..schemas.comm_kernels import collective_of, is_comm_kernel, kernel_comm
from ..schemas.damage import damage_of
from ..schemas.dtypes import itemsize
from ..schemas.etplus_document import Comm
from ..schemas.kineto import COPY_CATEGORIES, CPU_CATEGORIES, PYTHON_CATEGORY, EventTable, KinetoTrace
from ..schemas.kineto_calls import CpuCalls, cpu_calls, innermost_open
from ..schemas.launches import find_launches
from ..schemas.records import UNREADABLE
from .flops import wants_values
from .signatures import Signatures
from .trace import ANNOTATION, MODULE, OP, Calls, GpuEvents, RuntimeCalls, Trace, reasons

__all__ = ["NO_GPU", "comm_of", "device_properties", "from_kineto", "size_of_copy"]

_NO_SHAPES = "the trace has no shapes (record_shapes was off): no FLOPs, no bytes of kernels"
NO_GPU = "the trace has no GPU events"
"""A note, where there are none."""


def from_kineto(kineto: KinetoTrace) -> Trace:
    """The columns of a Kineto trace, with module paths if it was recorded with_stack and read with `modules=True`."""
    events = kineto.events
    calls = cpu_calls(kineto, CPU_CATEGORIES | {PYTHON_CATEGORY})
    launches = find_launches(kineto, calls)
    runtime_row = np.flatnonzero(events.runtime_mask())
    runtime_row = runtime_row[np.argsort(events.ts[runtime_row], kind="stable")]
    table = Signatures()
    call_columns = _calls(events, calls, table)
    gpu = _gpu_events(events, launches.row, launches.op, positions(runtime_row, launches.launcher))
    distributed = kineto.header_value("distributedInfo")
    info = distributed if isinstance(distributed, dict) else {}
    rank = info.get("rank")
    notes = [] if len(gpu) else [NO_GPU]
    if len(gpu) and not table.values:
        notes.append(_NO_SHAPES)
    return Trace(
        file=kineto.file, names=events.names, categories=events.categories, signatures=table.values,
        calls=call_columns, runtime=_runtime_calls(events, calls, runtime_row, launches.launcher), gpu=gpu,
        properties=device_properties(kineto.header_value("deviceProperties"), gpu.device),
        rank=rank if type(rank) is int else None, base_time_ns=kineto.base_time_ns, coverage={}, notes=tuple(notes),
        damage=damage_of(kineto), distributed_info=info,
    )  # fmt: skip


_ALIKE = ("name", "numSms", "computeMajor", "computeMinor")


def device_properties(listed: Any, device: IntColumn) -> dict[int, dict[str, Any]]:
    """What is known of each device number that GPU events have.

    AMD's numbers are not those of `deviceProperties`: where all that are listed are alike, it holds for any number.
    """
    records = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    by_id = {one.get("id"): one for one in records}
    alike = len({tuple(str(one.get(key)) for key in _ALIKE) for one in records}) == 1
    found = {}
    for number in np.unique(device).tolist():
        if number in by_id or alike:
            found[number] = by_id.get(number, records[0])
    return found


def _calls(events: EventTable, calls: CpuCalls, table: Signatures) -> Calls:
    codes = {name: code for code, name in enumerate(events.categories)}
    category = events.category[calls.row]
    kind = np.full(len(calls), ANNOTATION, np.int8)
    kind[category == codes.get("cpu_op", -1)] = OP
    kind[category == codes.get(PYTHON_CATEGORY, -1)] = MODULE
    ops = np.flatnonzero(kind == OP)
    wants = [wants_values(name) for name in events.names]
    wanted = [wants[code] for code in calls.name[ops].tolist()]
    signature = np.full(len(calls), -1, np.int32)
    signature[ops] = table.from_kineto(events.args_of(calls.row[ops]), wanted)
    return Calls(
        calls.name.astype(np.int32), kind, calls.parent, calls.thread, calls.ts, calls.end, signature,
        events.index[calls.row],
    )  # fmt: skip


def _runtime_calls(events: EventTable, calls: CpuCalls, rows: IntColumn, launcher: IntColumn) -> RuntimeCalls:
    thread = events.thread[rows].astype(np.int64)
    call = innermost_open(calls, thread, events.ts[rows], events.end[rows])
    return RuntimeCalls(
        events.name[rows], thread, events.ts[rows], events.end[rows], call, np.isin(rows, launcher), events.index[rows]
    )


def _gpu_events(events: EventTable, rows: IntColumn, call: IntColumn, runtime: IntColumn) -> GpuEvents:
    sizes, comm = np.full(len(rows), -1, np.int64), {}
    communicates = np.array([is_comm_kernel(name) for name in events.names], np.bool_)[events.name[rows]]
    copies = events.mask(COPY_CATEGORIES)[rows] & ~communicates
    told = np.flatnonzero(communicates | copies)
    for position, args in zip(told.tolist(), events.args_of(rows[told]), strict=True):
        if communicates[position]:
            comm[position] = comm_of(args, events.names[events.name[rows[position]]])
        else:
            sizes[position] = size_of_copy(args)
    return GpuEvents(
        events.name[rows], events.category[rows], events.ts[rows], np.maximum(events.dur[rows], 0),
        events.device[rows], events.stream[rows], call, runtime, reasons(call, runtime), sizes, comm,
        events.index[rows],
    )  # fmt: skip


def size_of_copy(args: bytes) -> int:
    """The `bytes` of a copy or memset, −1 if its args do not tell."""
    try:
        size = (msgspec.json.decode(args) or {}).get("bytes")
    except UNREADABLE:
        return -1
    return size if type(size) is int and 0 <= size < 2**62 else -1


def comm_of(args: bytes, kernel: str) -> Comm:
    """What a communication kernel communicates, from its `args` and, for the collective, its name."""
    try:
        told = kernel_comm(args)
    except UNREADABLE:
        told = {}
    size, elements = itemsize(told.get("dtype")), told.get("in_nelems") or told.get("out_nelems")
    told["collective"] = told.get("collective") or collective_of(kernel)
    return Comm(**told, bytes=size * elements if size and elements is not None else None)
