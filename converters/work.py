"""What a roofline simulation needs of GPU computations: `num_ops` and `tensor_size`, as the analysis finds them."""

from __future__ import annotations

import numpy as np

from ..analysis.roofline import work_of_events
from ..trace.columns import IntColumn
from ..trace.trace import Trace

__all__ = ["work_columns"]


def work_columns(document: Trace) -> dict[str, IntColumn]:
    """`num_ops` (FLOPs) and `tensor_size` (bytes moved): int64, one entry a row, −1 where it is not known.

    They are those of `etplus analyze`: an operator's FLOPs are at its main kernel, see `work_of_events`. What is not
    known gets no attribute, since 0 would mean a kernel that does nothing.

    Example:
        >>> work_columns(read_etplus("et_plus.json"))["num_ops"].max()  # doctest: +SKIP
        137438953472
    """
    work = work_of_events(document)
    columns = {"num_ops": np.full(len(document), -1, np.int64), "tensor_size": np.full(len(document), -1, np.int64)}
    columns["num_ops"][document.gpu.source], columns["tensor_size"][document.gpu.source] = work.flops, work.bytes
    return columns
