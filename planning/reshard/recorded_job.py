"""Detect the layout of a recorded job from the calls of its ranks, and list the calls that issue communication."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from ...trace.errors import UsageError
from ...trace.index import CallIndex
from ...trace.trace import Trace
from .experts import CHOOSES
from .layout import Layout

_MARKS = {
    "fsdp": ("FSDP::", "fsdp::"),
    "fsdp1": ("FullyShardedDataParallel",),
    "tp": ("Redistribute", "_ToTorchTensor"),
    "pp": ("c10d::send", "c10d::recv_", "gloo:send", "gloo:recv", "nccl:send", "nccl:recv"),
    "dp": ("DistributedDataParallel.forward", "torch::distributed::reducer"),
}
_ISSUE = re.compile(r"c10d::(\w+)")


def recorded_layout(traces: Sequence[Trace]) -> Layout:
    """Detect the layout of a recorded job.

    DTensor wrappers indicate tensor parallelism; calls of the DDP reducer or FSDP indicate data parallelism. A job with
    point-to-point messages is a pipeline. It has one stage per rank, or per member of the most widely spread group.
    """
    trace = traces[0]
    names = set(trace.names)
    if any(name.startswith("c10d::alltoall") for name in names) and not CHOOSES.isdisjoint(names):
        raise _refused(trace, "experts sharded over ranks (all-to-all of tokens)")
    found = {kind for kind, marks in _MARKS.items() if any(name.startswith(marks) for name in names)}
    world = trace.world_size or 1
    if world == 1:
        return Layout()
    if "fsdp1" in found:
        raise _refused(trace, "FSDP1")
    if "pp" in found:
        if "fsdp" in found:
            raise _refused(trace, "FSDP within a pipeline")
        return _of_pipeline(trace, world, divided="tp" in found)
    if "fsdp" in found:
        shards = _gathered_from(trace) or world
        if world % shards or (shards != world and "tp" not in found):
            raise _refused(trace, f"FSDP over {shards} of {world} ranks")
        return Layout(tp=world // shards, dp=shards, zero=3)
    if "tp" not in found:
        return Layout(dp=world)
    sizes = {len(ranks) for ranks in trace.process_groups.values() if len(ranks) > 1}
    if "dp" not in found or len(sizes) < 2:
        return Layout(tp=world)
    tp = min(sizes)
    return Layout(tp=tp, dp=world // tp)


def _of_pipeline(trace: Trace, world: int, *, divided: bool) -> Layout:
    rank = trace.rank or 0
    groups = [ranks for ranks in trace.process_groups.values() if 1 < len(ranks) < world and rank in ranks]
    if not groups:
        return Layout(pp=world)
    strides = {max(ranks) - min(ranks): len(ranks) for ranks in groups}
    stages = strides[max(strides)]
    tp = strides[min(strides)] if divided and len(strides) > 1 else 1
    if world % (stages * tp):
        raise _refused(trace, f"groups of {stages} and {tp} ranks of {world}")
    return Layout(tp=tp, dp=world // (stages * tp), pp=stages)


def _refused(trace: Trace, what: str) -> UsageError:
    return UsageError(
        f"{trace.file}: recorded with {what}, which is not supported; "
        "give a recording of one rank, of tensor- or data-parallel ranks, or of a pipeline"
    )


def _gathered_from(trace: Trace) -> int:
    """Return the number of ranks that FSDP2 gathers parameters from; 0 if no gathers are recorded."""
    calls, names = trace.calls, trace.names
    gathers = [code for code, name in enumerate(names) if name.startswith("c10d::_allgather_base_")]
    for call in np.flatnonzero(np.isin(calls.name, gathers)).tolist():
        above = int(calls.parent[call])
        signature = trace.signature_of(CallIndex(call))
        if above >= 0 and names[calls.name[above]].startswith("FSDP::all_gather") and signature is not None:
            whole, part = (tensor.numel for tensor in signature.tensors[:2])
            return whole // max(part, 1)
    return 0


def recorded_issues(trace: Trace, begin: int, end: int) -> Iterator[CallIndex]:
    calls, names = trace.calls, trace.names
    codes = [code for code, name in enumerate(names) if _ISSUE.fullmatch(name)]
    chosen = np.flatnonzero(np.isin(calls.name, codes) & (calls.ts >= begin) & (calls.end <= end))
    for call in chosen[np.argsort(calls.ts[chosen], kind="stable")].tolist():
        if not names[calls.name[call]].startswith(("c10d::barrier", "c10d::monitored")):
            yield CallIndex(call)
