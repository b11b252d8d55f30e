"""The layout in which a job was recorded, by its process groups and by what its ranks call."""

from __future__ import annotations

from collections.abc import Sequence

from ...trace.errors import UsageError
from ...trace.trace import Trace
from .layout import Layout

__all__ = ["recorded_layout"]

_MARKS = {
    "fsdp": ("FSDP::", "FullyShardedDataParallel", "fsdp::"),
    "tp": ("Redistribute", "_ToTorchTensor", "PythonSubclass"),
    "pp": ("c10d::send", "c10d::recv_", "gloo:send", "gloo:recv", "nccl:send", "nccl:recv"),
    "dp": ("DistributedDataParallel.forward", "torch::distributed::reducer"),
}


def recorded_layout(traces: Sequence[Trace]) -> Layout:
    """Recognise the layout of a recorded job: DTensor's wrappers are tensor parallel, DDP's reducer is data parallel.

    Raises:
        UsageError: it was recorded with FSDP or a pipeline, from which nothing is derived.

    Example:
        >>> recorded_layout([trace]).dp
        2
    """
    trace = traces[0]
    names = set(trace.names)
    found = {kind for kind, marks in _MARKS.items() if any(name.startswith(marks) for name in names)}
    world = trace.world_size or 1
    if world == 1:
        return Layout()
    for kind, what in (("fsdp", "FSDP"), ("pp", "a pipeline")):
        if kind in found:
            raise UsageError(
                f"{trace.file}: recorded with {what}, from which no layout is derived; "
                "give a recording of one rank, or of tensor or data parallel ranks"
            )
    if "tp" not in found:
        return Layout(dp=world)
    sizes = {len(ranks) for ranks in trace.process_groups.values() if len(ranks) > 1}
    if "dp" not in found or len(sizes) < 2:
        return Layout(tp=world)
    tp = min(sizes)
    return Layout(tp=tp, dp=world // tp)
