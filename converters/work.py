"""What a roofline simulation needs of GPU computations: `num_ops` and `tensor_size`, as the analysis finds them."""

from __future__ import annotations

from ..analysis.roofline import work_of_events
from ..schemas.chakra.et_def_pb2 import AttributeProto
from ..trace.trace import Trace
from .chakra_attributes import make

__all__ = ["work_attributes"]


def work_attributes(document: Trace) -> dict[int, list[AttributeProto]]:
    """Row of a GPU event to its `num_ops` (FLOPs, int64) and `tensor_size` (bytes moved, uint64), where they are known.

    They are those of `etplus analyze`: an operator's FLOPs are at its main kernel, see `work_of_events`. What is not
    known is left out, since 0 would mean a kernel that does nothing.

    Example:
        >>> work_attributes(read_etplus("et_plus.json"))  # doctest: +SKIP
        {812: [name: "num_ops" int64_val: 137438953472, name: "tensor_size" uint64_val: 100663296], ...}
    """
    trace = document
    work = work_of_events(trace)
    found: dict[int, list[AttributeProto]] = {}
    for name, column in ("num_ops", work.flops), ("tensor_size", work.bytes):
        for row, value in zip(trace.gpu.source.tolist(), column.tolist(), strict=True):
            if value >= 0:
                found.setdefault(row, []).append(make(name, value))
    return found
