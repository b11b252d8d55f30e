"""Add FLOPs, bytes and counters to a trace file, but change no other bytes of the file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np
import orjson

from ..schemas.etplus.record_store import FileRecords
from ..schemas.kineto.event_form import counter_name, with_arguments
from ..schemas.redaction import known_header
from ..schemas.text.files import Source, open_output
from ..schemas.text.files import load as load_bytes
from ..schemas.text.gc_control import gc_disabled
from ..schemas.text.records import parse_records
from ..schemas.text.transaction import transaction
from ..trace.columns import IntColumn
from ..trace.errors import UNREADABLE, TraceFormatError
from ..trace.index import ColumnOf, GpuIndex
from ..trace.outer import outer
from ..trace.trace import Trace
from .chrome import counter_events, counters_of, program_of
from .open import parse_trace

if TYPE_CHECKING:
    from ..analysis.counters import Counter
    from ..analysis.devices import Device

# `augment` adds these arguments to GPU events: FLOPs, GB (10⁹ bytes), and percentages of the device's peaks.
ARGUMENTS = ("kernel_flop", "kernel_num_gb", "achieved_flops_percent", "achieved_bandwidth_percent")

_DECIMALS = 6
_WHOLE = "record it again; all other commands read the undamaged part"


@dataclass(frozen=True)
class Augmented:
    """Counts of the written GPU events (total, with FLOPs, with bytes) and counter values, and the input's `damage`."""

    events: int
    with_flops: int
    with_bytes: int
    damage: tuple[str, ...] = ()
    counters: int = 0


@transaction()
@gc_disabled()
def augment(
    source: Source,
    path: str | os.PathLike[str],
    own_devices: tuple[Device, ...] = (),
    *,
    part: Callable[[Trace], Trace] | None = None,
    progress: bool = False,
) -> Augmented:
    """Copy a Kineto trace or an ET+ file. Add the arguments in `ARGUMENTS` to its GPU events if their values are known.

    In a Kineto trace, also add the counters from `analysis.counters` after the last event. Unknown header keys are
    dropped. All other bytes stay the same. If the file is augmented a second time, nothing changes.

    Args:
        path: the output file. The output is gzipped if its name ends in ".gz".
        part: selects the part of the trace to augment (see `part_of`).

    Raises:
        TraceFormatError: `source` is neither a Kineto trace nor ET+, or is broken.
        UsageError: the output would replace the input.
    """
    blob = known_header(load_bytes(source, progress=progress))
    whole = parse_trace(blob, progress=progress)
    gpu = whole.gpu.take(whole.gpu.source >= 0)  # Only GPU events that are nodes have a source.
    trace = whole.with_tables(replace(whole.tables, gpu=gpu))
    shown = None if part is None else part(whole)
    added: list[bytes] = []
    if isinstance(trace.texts, FileRecords):
        start, end = trace.texts.start, trace.texts.end
        body, behind = (int(start.min()), int(end.max())), int(end.max())
        place: ColumnOf[GpuIndex, np.int64] = gpu.source
    else:
        if trace.damage:
            raise TraceFormatError(blob.name, "", f"is broken and cannot be augmented: {trace.damage[0]}", _WHOLE)
        try:
            _, events, _ = parse_records(blob.data, "traceEvents")
        except UNREADABLE as error:
            raise TraceFormatError(blob.name, "", f"cannot be read ({error})", "record it again") from None
        start, end, counted = events.start, events.end, list(counters_of(trace if shown is None else shown))
        added = _counter_texts(trace, counted)
        body, behind = (int(start[0]), int(end[_last_recorded(events.texts, counted)])), int(end[-1])
        place = trace.nodes.kineto_event[gpu.source]
    start, end, values = start[place], end[place], _values(trace, own_devices)
    if shown is not None:
        chosen = np.isin(trace.nodes.id[gpu.source], shown.nodes.id[shown.gpu.source[shown.gpu.source >= 0]])
        start, end, values = start[chosen], end[chosen], list(compress(values, chosen.tolist()))
    with open_output(path) as out:
        out.write(blob.data[: body[0]])
        for piece in _pieces(blob.data, start, end, values, *body):
            out.write(piece)
        for text in added:
            out.write(b",\n" + text)
        out.write(blob.data[behind:])
    with_flops, with_bytes = (sum(name in value for value in values) for name in ARGUMENTS[:2])
    return Augmented(len(values), with_flops, with_bytes, trace.damage, len(added))


def _counter_texts(trace: Trace, counters: list[Counter]) -> list[bytes]:
    program = program_of(trace)
    return [
        orjson.dumps(event)
        for counter in counters
        for event in counter_events(counter, program if counter.device < 0 else counter.device, 0)
    ]


def _last_recorded(texts: list[bytes], counters: list[Counter]) -> int:
    """Return the index of the last event in the file before any counters that an earlier `augment` appended."""
    ours = {counter.title(counter.device) for counter in counters}
    for position in range(len(texts) - 1, 0, -1):
        if counter_name(texts[position]) not in ours:
            return position
    return 0


def _values(trace: Trace, own_devices: tuple[Device, ...]) -> list[dict[str, float]]:
    peaks, gpu = outer("analysis.kernel_peaks"), trace.gpu
    work, devices = outer("analysis.event_work").work_of_events(trace), peaks.find_devices(trace, own_devices)
    passed = peaks.from_memory(trace, work.bytes, devices)
    result = []
    columns = (work.flops, work.bytes, work.dtype, gpu.dur, gpu.device, passed)
    for flops, size, dtype, dur, number, judged in zip(*(column.tolist() for column in columns), strict=True):
        values: dict[str, float] = {}
        device = devices.get(number)
        peak = device.peak_flops(work.dtypes[dtype]) if device is not None else None
        if flops >= 0:
            values[ARGUMENTS[0]] = flops
        if size >= 0:
            values[ARGUMENTS[1]] = size / 1e9
        if flops >= 0 and peak and dur:
            values[ARGUMENTS[2]] = round(100e9 * flops / dur / peak, _DECIMALS)
        if judged and device is not None and dur:
            values[ARGUMENTS[3]] = round(100e9 * size / dur / device.bytes_per_second, _DECIMALS)
        result.append(values)
    return result


def _pieces(
    data: bytes, start: IntColumn, end: IntColumn, values: list[dict[str, float]], offset: int, last: int
) -> Iterator[bytes]:
    for event in start.argsort().tolist():
        begin, stop = int(start[event]), int(end[event])
        yield data[offset:begin]
        yield with_arguments(data[begin:stop], values[event], ARGUMENTS)
        offset = stop
    yield data[offset:last]
