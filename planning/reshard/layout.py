"""Parallel layouts: ranks per dimension, process groups, pipeline schedules and gradient buckets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from ...trace.brief import brief
from ...trace.conventions import MAX_RANKS
from ...trace.errors import UsageError

TensorStyle = Literal["dtensor", "megatron"]
Schedule = Literal["1f1b", "gpipe"]
Routing = Literal["recorded", "uniform"]

_PART = re.compile(r"(tp|dp|pp)=(\d+)", re.ASCII)
_MICROBATCHES = 4


@dataclass(frozen=True)
class Coordinates:
    tp: int
    dp: int
    pp: int


@dataclass(frozen=True)
class Layout:
    """A parallel layout: how a model is distributed over ranks.

    Tensor parallelism is innermost in rank numbers, pipeline parallelism outermost: rank = (pp · DP + dp) · TP + tp.
    """

    tp: int = 1  # number of tensor-parallel ranks
    dp: int = 1  # number of data-parallel ranks
    pp: int = 1  # number of pipeline stages
    zero: int = 0  # ZeRO stage: 0 is DDP, 1 shards optimizer state over dp, 2 also gradients, 3 also parameters (FSDP)
    batch: int | None = None  # global batch size; None keeps each data-parallel rank's batch (weak scaling)
    # microbatches per step; None uses the recorded number, but at least max(4, pp) if pp > 1
    microbatches: int | None = None
    schedule: Schedule = "1f1b"
    # "dtensor" reduces input gradients per column-parallel layer; "megatron" reduces their sum once per block
    tp_style: TensorStyle = "dtensor"
    sequence_parallel: bool = False  # True if norms and residuals use 1/tp of the sequence (Megatron style only)
    # size of gradient buckets (DDP's `bucket_cap_mb`); None means 25 MiB, but 1 MiB for the first bucket
    bucket_mib: int | None = None
    # FSDP units. None selects recorded units or, if there are none, repeated blocks. A class name selects its modules.
    # "each" selects parts with one input and one output activation. A number is the minimum size of a part in elements.
    fsdp_wrap: str | None = None
    no_sync: bool = False  # True if gradients are reduced only after the last microbatch
    ep: int = 1  # routed experts are sharded over this many data-parallel ranks; must divide dp
    # Tokens per expert: "recorded" uses the recorded proportions, and "uniform" uses equal numbers.
    # None keeps the recorded proportions, and marks the result as doubtful if they depend on tensor values.
    routing: Routing | None = None
    find_unused_parameters: bool | None = None  # DDP option; None keeps the recorded value, or False if it is unknown
    broadcast_buffers: bool | None = None  # DDP option; None keeps the recorded value, or True if it is unknown
    # True if FSDP frees units after forward and gathers them again in backward. None: as recorded, or True if unknown.
    reshard_after_forward: bool | None = None

    __repr__ = brief

    def __post_init__(self) -> None:
        for name in ("tp", "dp", "pp", "ep"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name}={getattr(self, name)}: give 1 or more ranks")
        if self.ranks > MAX_RANKS:
            raise UsageError(f"{self.ranks} ranks: at most {MAX_RANKS} are possible")
        if self.zero not in range(4):
            raise UsageError(f"zero={self.zero}: give 0, 1, 2 or 3")
        for name in ("batch", "microbatches"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name}={value}: give 1 or more")
        if self.bucket_mib is not None and self.bucket_mib < 1:
            raise UsageError(f"bucket_mib={self.bucket_mib}: give 1 or more")
        if self.schedule not in get_args(Schedule) or self.tp_style not in get_args(TensorStyle):
            raise UsageError("give 1f1b or gpipe as the schedule, dtensor or megatron as the tensor-parallel style")
        if self.fsdp_wrap is not None and self.zero != 3:
            raise UsageError("fsdp_wrap needs FSDP: add zero=3 (--zero 3)")
        if self.routing not in (None, *get_args(Routing)):
            raise UsageError("give recorded or uniform as the routing")
        if self.dp % self.ep:
            raise UsageError(f"ep={self.ep}: experts are sharded over data-parallel ranks: make dp a multiple of ep")
        if self.ep > 1 and (self.tp > 1 or self.zero):
            raise UsageError("expert parallelism needs tp=1 and zero=0")
        if self.sequence_parallel and self.tp_style != "megatron":
            raise UsageError("sequence parallelism needs the Megatron style: add --tp-style megatron")

    @property
    def ranks(self) -> int:
        return self.tp * self.dp * self.pp

    def parts(self, recorded: int) -> int:
        if self.microbatches is not None:
            return self.microbatches
        return recorded if self.pp == 1 else max(_MICROBATCHES, self.pp, recorded)

    def check(self, rank: int) -> None:
        if not 0 <= rank < self.ranks:
            raise UsageError(f"rank {rank}: the layout has ranks 0 to {self.ranks - 1}")

    def coordinates(self, rank: int) -> Coordinates:
        rest, tp = divmod(rank, self.tp)
        pp, dp = divmod(rest, self.dp)
        return Coordinates(tp, dp, pp)

    def rank(self, tp: int, dp: int, pp: int) -> int:
        return (pp * self.dp + dp) * self.tp + tp

    def group(self, dimension: str, at: Coordinates) -> tuple[int, ...]:
        """Return the ranks that differ from a rank only along one dimension ("tp", "dp", "pp").

        Two more dimensions divide a data-parallel group. An "ep" group consists of `ep` consecutive ranks that have
        different experts. An "edp" group consists of every `ep`-th rank; these ranks have the same experts.
        """
        if dimension == "ep":
            return tuple(self.rank(at.tp, at.dp - at.dp % self.ep + index, at.pp) for index in range(self.ep))
        if dimension == "edp":
            return tuple(self.rank(at.tp, index, at.pp) for index in range(at.dp % self.ep, self.dp, self.ep))
        place = {"tp": at.tp, "dp": at.dp, "pp": at.pp}
        return tuple(self.rank(**{**place, dimension: index}) for index in range(getattr(self, dimension)))

    def group_name(self, dimension: str, at: Coordinates) -> str:
        """Return the unique name of a group, such as "tp_0" for the tensor-parallel group that starts at rank 0."""
        return f"{dimension}_{self.group(dimension, at)[0]}"


def parse_layout(text: str) -> Layout:
    """Parse a layout such as "tp=2,dp=4,pp=1"; missing dimensions are 1.

    Example:
        >>> parse_layout("tp=2,dp=4").ranks
        8
    """
    sizes: dict[str, int] = {}
    for part in text.split(","):
        found = _PART.fullmatch(part.strip())
        if found is None or found[1] in sizes:
            raise UsageError(f"layout {text!r}: unexpected {part.strip()!r}; give for example tp=2,dp=4,pp=1")
        sizes[found[1]] = int(found[2])
    return Layout(sizes.get("tp", 1), sizes.get("dp", 1), sizes.get("pp", 1))


class Action(NamedTuple):
    """An action of a stage: compute, send or receive. A `joined` message is issued with the next message."""

    what: Literal["forward", "backward", "send forward", "receive forward", "send backward", "receive backward"]
    microbatch: int
    joined: bool = False


def actions(schedule: Schedule, stage: int, stages: int, microbatches: int) -> Iterator[Action]:
    """Yield the actions of a stage, in the order of torch.distributed.pipelining.schedules."""
    first, last = stage == 0, stage == stages - 1
    if schedule == "gpipe":
        for k in range(microbatches):
            yield from _forward(k, first)
            if not last:
                yield Action("send forward", k)
        for k in range(microbatches):
            if not last:
                yield Action("receive backward", k)
            yield Action("backward", k)
            if not first:
                yield Action("send backward", k)
        return
    warm = min(microbatches, stages - stage)
    for k in range(warm):
        yield from _forward(k, first)
        if not last and k < warm - 1:
            yield Action("send forward", k)
    ahead = warm
    for k in range(microbatches):
        if not last:
            if k < microbatches - warm + 1:
                yield Action("send forward", ahead - 1, joined=True)
            yield Action("receive backward", k)
        yield Action("backward", k)
        if not first:
            yield Action("send backward", k, joined=ahead < microbatches)
        if ahead < microbatches:
            yield from _forward(ahead, first)
            ahead += 1


def _forward(microbatch: int, first: bool) -> Iterator[Action]:
    if not first:
        yield Action("receive forward", microbatch)
    yield Action("forward", microbatch)


_FIRST = 1 << 20  # the first bucket's limit (`_DEFAULT_FIRST_BUCKET_BYTES`, torch/csrc/distributed/c10d/reducer.hpp)
_MIB = 25  # the limit of later buckets in MiB: DDP's default `bucket_cap_mb`


@dataclass(frozen=True)
class Bucket:
    parameters: tuple[int, ...]  # parameter numbers in order
    elements: int
    dtype: str
    itemsize: int


def fill_buckets(gradients: Iterable[tuple[int, int, int, str]], cap_mib: int | None = None) -> list[Bucket]:
    """Fill buckets with gradients in the order in which they become ready.

    A bucket is closed when it is full, and each dtype has separate buckets (`compute_bucket_assignment_by_size` in
    torch/csrc/distributed/c10d/reducer.cpp).

    Args:
        gradients: parameter number, number of elements, itemsize and dtype of each gradient.
        cap_mib: bucket size in MiB. If None, use DDP's defaults: 1 for a dtype's first bucket, then 25.
    """
    open_by_type: dict[str, list[tuple[int, int]]] = {}
    limits: dict[str, int] = {}
    sizes: dict[str, int] = {}
    closed: list[Bucket] = []

    def close(dtype: str) -> None:
        some = open_by_type.pop(dtype)
        closed.append(Bucket(tuple(n for n, _ in some), sum(count for _, count in some), dtype, sizes[dtype]))

    for number, count, size, dtype in gradients:
        sizes[dtype] = size
        limits.setdefault(dtype, _FIRST if cap_mib is None else cap_mib << 20)
        some = open_by_type.setdefault(dtype, [])
        some.append((number, count))
        if size * sum(n for _, n in some) >= limits[dtype]:
            close(dtype)
            limits[dtype] = (cap_mib or _MIB) << 20
    for dtype in list(open_by_type):
        close(dtype)
    return closed
