"""How kernels were launched: grid and block, as a trace records them in the arguments of calls and device events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from .columns import IntColumn
from .errors import UNREADABLE

if TYPE_CHECKING:
    from .trace import Trace

_Grid = tuple[int, int, int]
_WAVEFRONT = 64
"""Work items of a wavefront of AMD's data-centre devices; `warpSize` of their properties."""


class LaunchArgs(msgspec.Struct, gc=False):
    """What a launch call or a device event says of its kernel; −1 where it is not recorded."""

    kernel: str | None = None
    grid: _Grid = (-1, -1, -1)
    block: _Grid = (-1, -1, -1)

    @property
    def dimensions(self) -> tuple[_Grid, _Grid]:
        """Grid and block."""
        return self.grid, self.block


_decode_args = msgspec.json.Decoder(LaunchArgs).decode


def launch_args(text: bytes) -> LaunchArgs:
    """Kernel, grid and block in the `args` of a launch call or a device event; what is not recorded is None or −1."""
    try:
        return _decode_args(text)
    except UNREADABLE:
        return LaunchArgs()


def launch_sizes(trace: Trace) -> IntColumn:
    """(n, 2), int64: blocks of the grid and threads of a block of each GPU event; 0 where they are not recorded.

    `hipExtModuleLaunchKernel`, by which MIOpen and Tensile launch, takes the grid in work items, and roctracer records
    it so; `hipLaunchKernel` and Triton's `hipModuleLaunchKernel` take blocks. Where the name of the launch call does
    not show it, a kernel with C linkage (no parameters in its name) that is not Triton's and whose grid is a multiple
    of its block in every dimension counts as launched in work items.

    Example:
        >>> launch_sizes(trace).shape == (len(trace.gpu), 2)
        True
    """
    gpu = trace.gpu
    sizes = np.zeros((len(gpu), 2), np.int64)
    known = np.flatnonzero(gpu.source >= 0)
    for event, record in zip(known.tolist(), trace.records(gpu.source[known]), strict=True):
        grid, block = launch_args(bytes(record["args"])).dimensions if "args" in record else ((0,) * 3, (0,) * 3)
        blocks, threads = (max(size[0], 0) * max(size[1], 0) * max(size[2], 0) for size in (grid, block))
        if not threads or not 0 < blocks * threads < 2**62:
            continue
        if _in_work_items(trace, event) and all(g % b == 0 for g, b in zip(grid, block, strict=True)):
            blocks //= threads
        sizes[event] = blocks, threads
    return sizes


def _in_work_items(trace: Trace, event: int) -> bool:
    """Whether the grid of a GPU event may count work items, not blocks."""
    properties = trace.properties.get(int(trace.gpu.device[event])) or {}
    if properties.get("warpSize") != _WAVEFRONT:
        return False
    call = int(trace.gpu.runtime[event])
    if call >= 0:
        return "ExtModuleLaunch" in trace.names[trace.runtime.name[call]]
    kernel = trace.names[trace.gpu.name[event]]
    return "(" not in kernel and "triton" not in kernel
