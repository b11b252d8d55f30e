"""Write what kernels compute and move, and counters, into the trace itself, the rest of the file untouched."""

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

ARGUMENTS = ("kernel_flop", "kernel_num_gb", "achieved_flops_percent", "achieved_bandwidth_percent")
"""What is written into the `args` of GPU events: FLOPs; 10⁹ bytes; shares of the device's peaks."""

_DECIMALS = 6
_WHOLE = "record it again; all other commands read what is left of it"


@dataclass(frozen=True)
class Augmented:
    """What was written: number of GPU events, of those with FLOPs and of those with bytes.

    Attributes:
        damage: what was wrong with the traces that an ET+ file was made of, in sentences.
        counters: values of counters; none in ET+, which has no place for them.
    """

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
    """Copy a Kineto trace or an ET+ file with `ARGUMENTS` in the `args` of GPU events where they are known.

    A Kineto trace also gets the counters of `analysis.counters`, behind its last event. Unknown header keys are
    dropped. Everything else keeps its bytes, and an augmented file stays as it is.

    Args:
        path: output, gzipped if it ends in ".gz".
        own_devices: as in `find_device`.
        part: gives the part of the trace whose events and counters are written, as `part_of` does; None for all.

    Raises:
        TraceFormatError: neither Kineto nor ET+, or a broken file. UsageError: the output is the input.
    """
    blob = known_header(load_bytes(source, progress=progress))
    whole = parse_trace(blob, progress=progress)
    gpu = whole.gpu.take(whole.gpu.source >= 0)  # the others are not nodes
    trace = whole.with_tables(replace(whole.tables, gpu=gpu))
    shown = None if part is None else part(whole)
    added: list[bytes] = []
    if isinstance(trace.texts, FileRecords):
        start, end = trace.texts.start, trace.texts.end
        body, rest = (int(start.min()), int(end.max())), int(end.max())
        at: ColumnOf[GpuIndex, np.int64] = gpu.source
    else:
        if trace.damage:
            raise TraceFormatError(blob.name, "", f"cannot be augmented, it is broken: {trace.damage[0]}", _WHOLE)
        try:
            _, found, _ = parse_records(blob.data, "traceEvents")
        except UNREADABLE as error:
            raise TraceFormatError(blob.name, "", f"cannot be read ({error})", "record it again") from None
        start, end, counted = found.start, found.end, list(counters_of(trace if shown is None else shown))
        added = _counter_texts(trace, counted)
        body, rest = (int(start[0]), int(end[_last_recorded(found.texts, counted)])), int(end[-1])
        at = trace.nodes.kineto_event[gpu.source]
    start, end, values = start[at], end[at], _values(trace, own_devices)
    if shown is not None:
        chosen = np.isin(trace.nodes.id[gpu.source], shown.nodes.id[shown.gpu.source[shown.gpu.source >= 0]])
        start, end, values = start[chosen], end[chosen], list(compress(values, chosen.tolist()))
    with open_output(path) as out:
        out.write(blob.data[: body[0]])
        for piece in _pieces(blob.data, start, end, values, *body):
            out.write(piece)
        for text in added:
            out.write(b",\n" + text)
        out.write(blob.data[rest:])
    return Augmented(
        len(values),
        sum(ARGUMENTS[0] in value for value in values),
        sum(ARGUMENTS[1] in value for value in values),
        trace.damage,
        len(added),
    )


def _counter_texts(trace: Trace, found: list[Counter]) -> list[bytes]:
    """The events of all counters, with the processes of the devices."""
    program = program_of(trace)
    return [
        orjson.dumps(event)
        for counter in found
        for event in counter_events(counter, program if counter.device < 0 else counter.device, 0)
    ]


def _last_recorded(texts: list[bytes], found: list[Counter]) -> int:
    """Position of the last event that is not a counter of ours, which an earlier run has added."""
    ours = {counter.title(counter.device) for counter in found}
    for position in range(len(texts) - 1, 0, -1):
        if counter_name(texts[position]) not in ours:
            return position
    return 0


def _values(trace: Trace, own_devices: tuple[Device, ...]) -> list[dict[str, float]]:
    """What to write into each GPU event."""
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
    data: bytes, start: IntColumn, end: IntColumn, values: list[dict[str, float]], at: int, last: int
) -> Iterator[bytes]:
    """The file's text between two offsets, with the texts of events exchanged."""
    for event in start.argsort().tolist():
        begin, stop = int(start[event]), int(end[event])
        yield data[at:begin]
        yield with_arguments(data[begin:stop], values[event], ARGUMENTS)
        at = stop
    yield data[at:last]
