"""What a roofline simulation needs of GPU computations: `num_ops` and `tensor_size`, as the analysis finds them."""

from __future__ import annotations

import numpy as np

from ..analysis.roofline import work_of_events
from ..trace.columns import IntColumn
from ..trace.trace import Trace

_MAX_BYTES = 2.0**62


def work_columns(trace: Trace) -> dict[str, IntColumn]:
    """`num_ops` (FLOPs) and `tensor_size` (bytes moved): int64, one entry a row, −1 where it is not known.

    They are those of `etplus analyze`: an operator's FLOPs are at its main kernel, see `work_of_events`. What is not
    known gets no attribute, since 0 would mean a kernel that does nothing.

    Example:
        >>> bool(work_columns(trace)["num_ops"].max() > 0)
        True
    """
    work = work_of_events(trace)
    columns = {"num_ops": np.full(len(trace), -1, np.int64), "tensor_size": np.full(len(trace), -1, np.int64)}
    columns["num_ops"][trace.gpu.source], columns["tensor_size"][trace.gpu.source] = work.flops, work.bytes
    return columns


def roofline_work(
    flops: IntColumn, size: IntColumn, micros: IntColumn, bandwidth: float
) -> tuple[IntColumn, IntColumn]:
    """`num_ops` and `tensor_size` for all nodes of a roofline simulation, which ends at one without them.

    Such a simulation takes max(FLOPs / peak, bytes / bandwidth) for a node. Where FLOPs are not known a node is bound
    by its bytes; where these are not known either it gets the bytes that take its measured duration.

    Args:
        flops, size: −1 where they are not known.
        micros: measured durations, µs; 0 counts as 1 ns, as in a replay.
        bandwidth: of the device's memory in the simulation, GB/s (bytes a ns).

    Example:
        >>> [column.tolist() for column in roofline_work(*np.array([[64, -1, -1], [24, 8, -1], [3, 3, 3]]), 2.0)]
        [[64, 1, 1], [24, 8, 6000]]
    """
    measured = np.minimum(np.ceil(np.maximum(micros * 1000.0, 1) * bandwidth), _MAX_BYTES).astype(np.int64)
    known = size > 0
    return np.where(known, np.maximum(flops, 1), 1), np.where(known, size, measured)
