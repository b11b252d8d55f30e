"""Findings about memory: driver allocations inside steps, and nearly full memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...trace.columns import IntColumn, matching
from ...trace.printable import shortened
from ...trace.trace import Trace
from ..device_memory import DeviceMemory
from .case import OfWorstRank, RankOfCase
from .finding import CONFIRMED, PREDICTED, Candidate, Evidence, Intervention
from .proofs import place_of, quoted, sql

# These calls reserve or release driver memory.
# All these calls except `cudaMallocAsync` wait for the device or take the driver lock.
_ALLOCATES = re.compile(
    r"(?:cuda|hip)(?:Malloc|Free)(?:Host|Managed|Pitch)?|(?:cuda|hip)Host(?:Alloc|Malloc|Free|Register|Unregister)"
    r"|cu(?:MemAlloc|MemFree|MemCreate|MemMap|MemUnmap|MemRelease|MemHostAlloc)\w*"
)
# Minimum host time of these calls, as a share of the makespan. Device idle time is not included.
_LEAST_HOST = 0.005
_NEARLY_FULL = 0.9  # if this share of the memory is reserved, allocators free and retry, and fragmentation matters
# Minimum share of reserved memory that is unused at the peak. Rounding to 2 and 20 MB leaves up to 10% unused.
_FRAGMENTED = 0.2
# Minimum share of the peak that was allocated during the trace. Serving engines reserve their cache at startup instead.
_LEAST_OWN = 0.1
_MB = 1e6


class AllocatorCalls(OfWorstRank):
    """The allocator requests or returns driver memory while the device is working. These calls wait for the device.

    To estimate the gain, the replay removes these calls.
    """

    id = "allocator-calls"

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        case, rank = of.case, of.number
        trace = case.traces[rank]
        runtime = trace.runtime
        if not len(trace.gpu):
            return
        allocates = matching(runtime.name, trace.names, _ALLOCATES.fullmatch)
        found = np.flatnonzero(allocates & _while_working(trace, runtime.ts))
        ns = int((runtime.end - runtime.ts)[found].sum())
        if not len(found) or ns < _LEAST_HOST * case.makespan_ns:
            return
        names = Counter(trace.names[code] for code in runtime.name[found].tolist())
        of_names = np.isin(runtime.name, runtime.name[found])
        query = f"select sum(duration_ns) from runtime where name in ({', '.join(map(quoted, sorted(names)))})"
        text = ", ".join(f"{name} × {count:,}" for name, count in names.most_common(4))
        rows = runtime.source[found]
        taken, command = int((runtime.end - runtime.ts)[of_names].sum()), sql(case.shell(rank), query)
        candidate = Candidate(
            self.id,
            f"the allocator calls the driver {len(found):,} times while the device has work: {text},"
            f" {ns / 1e6:,.2f} ms",
            place_of(trace, rows),
            (Evidence(f"{text}; the time includes calls before the first kernel", taken, "ns", command),),
            ns,
            CONFIRMED,
            "warm up with the largest shapes before the measured steps; if sizes change in every step, use "
            "PYTORCH_ALLOC_CONF=expandable_segments:True or padding; do not call torch.cuda.empty_cache(); keep pinned "
            "buffers",
            "the steps contain no cudaMalloc, cudaFree or cudaHostAlloc",
        )
        change = Intervention(f"remove op:{trace.names[runtime.name[found[0]]]}", rows)
        yield of.candidate(candidate, (change,), 0.7, 1.1)


def _while_working(trace: Trace, ts: IntColumn) -> Any:
    kernels = np.flatnonzero(trace.is_kernel)
    if not len(kernels):
        return np.zeros(len(ts), np.bool_)
    return (ts > trace.gpu.ts[kernels].min()) & (ts < trace.gpu.end[kernels].max())


class MemoryNearlyFull(OfWorstRank):
    """The allocator has reserved nearly all device memory, and the memory may be fragmented."""

    id = "memory-nearly-full"

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        case, rank = of.case, of.number
        trace = case.traces[rank]
        for memory in case.analyses[rank].memory:
            whole = capacity(trace, memory)
            if whole is None or not memory.reserves:
                continue
            reserved = int(memory.reserved.max())
            own = memory.peak_bytes - min(memory.base, memory.peak_bytes)
            if reserved >= _NEARLY_FULL * whole and own >= _LEAST_OWN * memory.peak_bytes:
                yield self._candidate(case.shell(rank), trace, memory, reserved, whole)
                return

    def _candidate(self, shell: str, trace: Trace, memory: DeviceMemory, reserved: int, whole: int) -> Candidate:
        command = f"etplus analyze {shell}"
        held = [
            Evidence(
                f"held at the peak by {shortened(row.operator, 80)}"
                f"{f', {row.source}' if row.source else ''} ({row.category})", row.bytes, "bytes", command,
            )
            for row in memory.holders[:3]
        ]  # fmt: skip
        at_most = int(memory.reserved[memory.peak])
        loose = at_most - memory.peak_bytes
        fragmented = at_most > 0 and loose >= _FRAGMENTED * at_most
        if fragmented:
            held.append(Evidence("reserved but not allocated at the peak", loose, "bytes", command))
        by = ", ".join(f"{name} {size / _MB:,.0f} MB" for name, size in list(memory.by_category.items())[:3])
        start = trace.nodes.span.start
        return Candidate(
            self.id,
            f"{reserved / whole:.0%} of the memory of {memory.device} is reserved; the peak of"
            f" {memory.peak_bytes / _MB:,.0f} MB holds {by}"
            + (f"; fragments take {loose / _MB:,.0f} MB" if fragmented else ""),
            place_of(trace, np.zeros(0, np.int64), start_ns=memory.peak_ns - start, end_ns=memory.peak_ns - start),
            (Evidence("maximum of reserved memory", reserved, "bytes", command), *held),
            None,
            PREDICTED,
            "set PYTORCH_ALLOC_CONF=expandable_segments:True, which avoids fragments"
            if fragmented
            else "checkpoint the largest modules, reduce the batch size, or shard the optimizer state (ZeRO, FSDP)",
            "the memory table shows fewer reserved bytes",
        )


def capacity(trace: Trace, memory: DeviceMemory) -> int | None:
    if memory.device.startswith("cpu"):
        return None
    number = memory.device.rpartition(":")[2]
    properties = trace.properties.get(int(number) if number.isdigit() else 0)
    if properties is None and len(trace.properties) == 1:
        properties = next(iter(trace.properties.values()))
    whole = (properties or {}).get("totalGlobalMem")
    return whole if isinstance(whole, int) and whole > 0 else None
