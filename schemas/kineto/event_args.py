"""Read the arguments that PyTorch's profiler writes for GPU events and launch calls."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
import orjson

from ...trace.columns import IntColumn
from ...trace.comm_kernels import Comm, collective_of
from ...trace.dtypes import itemsize
from ...trace.errors import UNREADABLE
from ...trace.trace import Trace

_T = TypeVar("_T")

# Maps each field of `comm` to the name and type of a Kineto argument. Kineto may also write a list as a string.
# NCCL and RCCL kernels have had these arguments since PyTorch 2.3.
_KERNEL_ARGS: dict[str, tuple[str, type]] = {
    "collective": ("Collective name", str),
    "dtype": ("dtype", str),
    "in_nelems": ("In msg nelems", int),
    "out_nelems": ("Out msg nelems", int),
    "group_size": ("Group size", int),
    "pg_name": ("Process Group Name", str),
    "pg_desc": ("Process Group Description", str),
    "pg_ranks": ("Process Group Ranks", list),
    "src_rank": ("Src Rank", int),
    "dst_rank": ("Dst Rank", int),
    "seq": ("Seq", int),
    "in_split": ("In split size", list),
    "out_split": ("Out split size", list),
}
# Matches a list of ranks that PyTorch truncated after 30 entries (`kTruncatLength`): "[0, 2, ..., 58, ...]".
_CUT_OFF = re.compile(r"\s*\[\s*(\d{1,9})\s*,[^\]]*\.\.\.\s*\]\s*", re.ASCII)
_Grid = tuple[int, int, int]
_WAVEFRONT = 64  # `warpSize` of AMD's data-center GPUs: the number of work items in a wavefront


class LaunchArgs(msgspec.Struct, gc=False):
    """The kernel name and launch sizes of a launch call or GPU event; sizes are −1 if not recorded."""

    kernel: str | None = None
    grid: _Grid = (-1, -1, -1)
    block: _Grid = (-1, -1, -1)

    @property
    def dimensions(self) -> tuple[_Grid, _Grid]:
        return self.grid, self.block


class GraphNodeArgs(LaunchArgs, gc=False):
    """The launch sizes and graph node id of a GPU event in a replayed graph; the id is 0 if not recorded."""

    node: int = msgspec.field(default=0, name="graph node id")


class SyncArgs(msgspec.Struct):
    """The kind of wait and the ids in a `cuda_sync` record; −1 if not recorded."""

    kind: str = msgspec.field(default="", name="cuda_sync_kind")
    stream: Any = -1
    correlation: Any = -1
    device: Any = -1
    wait_on_stream: Any = -1
    record: Any = msgspec.field(default=-1, name="wait_on_cuda_event_record_corr_id")


def _read(text: bytes, kind: type[_T]) -> _T | None:
    try:
        return msgspec.json.decode(text, type=kind)
    except UNREADABLE:
        return None


def graph_node_args(text: bytes) -> GraphNodeArgs | None:
    return _read(text, GraphNodeArgs)


def sync_args(text: bytes) -> SyncArgs | None:
    return _read(text, SyncArgs)


def launch_args(text: bytes) -> LaunchArgs:
    return _read(text, LaunchArgs) or LaunchArgs()


def _raw_args(names: Sequence[str]) -> Any:
    """Return a struct type that leaves the named arguments undecoded. A missing argument becomes b""."""
    keys = [f"value{at}" for at in range(len(names))]
    fields = [(key, msgspec.Raw, msgspec.Raw(b"")) for key in keys]
    return msgspec.defstruct("_Args", fields, rename=dict(zip(keys, names, strict=True)), gc=False)


_WorkArgs = _raw_args(
    "grid,block,shared memory,bytes,Collective name,dtype,In msg nelems,Out msg nelems,Process Group Name".split(",")
)


def work_args(text: bytes) -> tuple[bytes, ...]:
    """Return the arguments that distinguish GPU events with the same name, as JSON; b"" if not recorded."""
    found: msgspec.Struct = _read(text, _WorkArgs) or _WorkArgs()
    return tuple(map(bytes, msgspec.structs.astuple(found)))


def launch_sizes(trace: Trace) -> IntColumn:
    """Return each GPU event's number of blocks and number of threads per block, as int64 (n, 2); 0 if not recorded.

    `hipExtModuleLaunchKernel` (MIOpen, Tensile) specifies the grid in work items, other launches in blocks. If the
    launch is unknown, a kernel name without a parameter list implies work items, unless Triton compiled the kernel.
    """
    gpu = trace.gpu
    known = np.flatnonzero(gpu.source >= 0)
    which, texts = trace.texts.launch_args(gpu.source[known])
    of_text = np.array([_sizes(*launch_args(text).dimensions) for text in texts], np.int64).reshape(len(texts), 3)
    in_items = np.zeros(len(gpu), np.bool_)
    waves = [number for number, of in trace.properties.items() if of.get("warpSize") == _WAVEFRONT]
    for event in known[np.isin(gpu.device[known], waves)].tolist():
        in_items[event] = _in_work_items(trace, event)
    sizes = np.zeros((len(gpu), 2), np.int64)
    sizes[known, 0] = np.where(in_items[known], of_text[which, 1], of_text[which, 0])
    sizes[known, 1] = of_text[which, 2]
    return sizes


def _sizes(grid: _Grid, block: _Grid) -> tuple[int, int, int]:
    """Return blocks for a grid in blocks, blocks for a grid in work items, and threads per block; 0 if unknown."""
    blocks, threads = (math.prod(max(size, 0) for size in of) for of in (grid, block))
    if not threads or not 0 < blocks * threads < 2**62:
        return 0, 0, 0
    whole = all(g % b == 0 for g, b in zip(grid, block, strict=True))
    return blocks, blocks // threads if whole else blocks, threads


def _in_work_items(trace: Trace, event: int) -> bool:
    call = int(trace.gpu.runtime[event])
    if call >= 0:
        return "ExtModuleLaunch" in trace.names[trace.runtime.name[call]]
    kernel = trace.names[trace.gpu.name[event]]
    return "(" not in kernel and "triton" not in kernel


def kernel_comm(args: bytes) -> dict[str, Any]:
    given: dict[str, Any] = msgspec.json.decode(args) or {}
    comm: dict[str, Any] = {}
    for field, (name, kind) in _KERNEL_ARGS.items():
        value = given.get(name)
        if field == "pg_name" and type(value) is int:
            value = str(value)
        comm[field] = int_list(value) if kind is list else value if type(value) is kind else None
    ranks, listed = comm["pg_ranks"], given.get(_KERNEL_ARGS["pg_ranks"][0])
    if ranks is not None and 0 < (comm["group_size"] or 0) < len(ranks):
        comm["pg_ranks"] = None  # A list with more ranks than the group is damaged or belongs to another group.
    cut_off = _CUT_OFF.fullmatch(listed) if isinstance(listed, str) else None
    comm["pg_first_rank"] = int(cut_off[1]) if cut_off else None
    return comm


def int_list(value: Any) -> list[int] | None:
    """Return a list of integers that is written as a list or as a string ("[0, 1]"); None for any other value."""
    if isinstance(value, str):
        with contextlib.suppress(msgspec.MsgspecError):
            value = msgspec.json.decode(value)
    return value if isinstance(value, list) and all(type(v) is int for v in value) else None


def size_of_copy(args: bytes) -> int:
    """Return the size of a copy or memset in bytes; −1 if not recorded."""
    try:
        size = (msgspec.json.decode(args) or {}).get("bytes")
    except UNREADABLE:
        return -1
    return size if type(size) is int and 0 <= size < 2**62 else -1


def comm_of(args: bytes, kernel: str) -> Comm:
    try:
        known = kernel_comm(args)
    except UNREADABLE:
        known = {}
    size, elements = itemsize(known.get("dtype")), known.get("in_nelems") or known.get("out_nelems")
    known["collective"] = known.get("collective") or collective_of(kernel)
    return Comm(**known, bytes=size * elements if size and elements is not None else None)


# Kineto writes these launch arguments for GPU events. The unit of "shared memory" is bytes per block.
LAUNCH_ARGS = (
    *("grid", "block", "context", "registers per thread", "shared memory", "blocks per SM", "warps per SM"),
    "est. achieved occupancy %",
)


class ArgsReader:
    def __init__(self, names: Sequence[str]) -> None:
        args = _raw_args(names)
        record = msgspec.defstruct("_Record", [("args", args, msgspec.field(default_factory=args))], gc=False)
        self._decode = msgspec.json.Decoder(record).decode
        self._none = (b"",) * len(names)

    def read(self, record: bytes) -> tuple[bytes, ...]:
        try:
            (args,) = msgspec.structs.astuple(self._decode(record))
        except UNREADABLE:
            return self._none
        return tuple(map(bytes, msgspec.structs.astuple(args)))


_read_launch = ArgsReader(LAUNCH_ARGS).read


def launch_of(record: bytes) -> bytes:
    found = zip(LAUNCH_ARGS, _read_launch(record), strict=True)
    return b"{%b}" % b", ".join([b'"%b": %b' % (name.encode(), value) for name, value in found if value])


def launch_values(text: bytes) -> dict[str, Any]:
    """Return the values of all LAUNCH_ARGS in JSON arguments. Missing values and numbers beyond float64 become None."""
    values: dict[str, Any] = dict.fromkeys(LAUNCH_ARGS)
    for name, value in msgspec.json.decode(text, type=dict[str, msgspec.Raw]).items():
        with contextlib.suppress(orjson.JSONDecodeError):
            values[name] = orjson.loads(bytes(value))
    return values
