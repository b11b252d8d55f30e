"""Random jobs of one rank to three: loops, late ranks, waits and collectives, the same for the same seed."""

from functools import partial
from random import Random
from typing import Any

from made_jobs import COMPUTE, Job, Play, Rank, Tensor
from simulator import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, REDUCE_SCATTER

_NS = (1_000, 9_000, 10_000, 11_000, 50_000, 400_000)
_NAMES = ("aten::mm", "aten::mul", "aten::add_", "aten::mul_", "aten::sum", "aten::copy_")
_OPENS, _CLOSES = ("aten::unbind", "aten::split", "aten::select"), ("aten::stack", "aten::cat", "aten::sum")
_SIZES = (0, 4, 1 << 10, 1 << 20, 1 << 20, 1 << 24)


class _RandomRank(Rank):
    """On the second rank, or on none, one operator is slower or runs more often."""

    slow, factor, times = "", 1.0, 1

    def compute(self, name: str, ns: int, *sides: Any) -> None:
        late = self.rank == 1 and name == self.slow
        for _ in range(self.times if late else 1):
            super().compute(name, round(ns * self.factor) if late else ns, *sides)


def _program(seed: int, rank: _RandomRank) -> Play:
    rng = Random(seed)
    rank.slow, rank.factor, rank.times = (
        rng.choice([*_NAMES[:3], ""]),
        rng.choice([1.0, 3.0, 8.0]),
        rng.choice([1, 1, 2]),
    )
    for step in range(rng.choice([1, 2, 3])):
        with rank.op(f"ProfilerStep#{step}", annotation=True):
            for _ in range(rng.choice([2, 4, 6])):
                yield from rng.choice([_loop, _loop, _collectives, _collectives, _layer])(rng, rank)
    with rank.op("Optimizer.step#SGD.step", annotation=True):
        yield from _loop(rng, rank)
    rank.synchronize()
    for node in rank.nodes:
        for side in ("inputs", "outputs"):
            node[side]["shapes"] = [[one[3]] if _is_tensor(one) else [] for one in node[side]["values"]]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 6 and isinstance(value[5], str)


def _loop(rng: Random, rank: Rank) -> Play:
    """Rounds that are independent, or of which one reads what another wrote, between operators that open and close."""
    names, ns, numel = rng.sample(_NAMES, rng.choice([1, 1, 2, 4, 5])), rng.choice(_NS[:4]), rng.choice([16, 17, 1024])
    shared, thread = rng.random() < 0.1, rng.choice([0, 0, 0, 101])
    for name in rng.sample(_OPENS, rng.randrange(3)):
        with rank.op(name, [rank.tensor("all", numel)], [rank.tensor("t0", numel)]):
            rank.now += 5_000
    with rank.on(thread=thread):
        for number in range(rng.choice([7, 8, 8, 9])):
            for name in names:
                one, other = (rank.tensor(f"{side}{0 if shared else number}", numel) for side in "tu")
                rank.compute(name, ns, [one, other], [one if name.endswith("_") else rank.tensor(f"v{number}", numel)])
                rank.now += rng.choice([0, 0, 0, 2_000])
    for name in rng.sample(_CLOSES, rng.randrange(3)):
        rank.compute(name, ns, [rank.tensor("t0", numel)], [rank.tensor("all", numel)])
    yield from ()


def _layer(rng: Random, rank: Rank) -> Play:
    with rank.op(rng.choice(["aten::linear", "MmBackward0", "user"])), rank.on(stream=rng.choice([COMPUTE, 9])):
        for name in rng.sample(_NAMES, 3):
            rank.compute(name, rng.choice(_NS), [rank.tensor("x", 4096)], [rank.tensor("y", 4096)])
    rank.now += rng.choice([0, 100_000, 2_000_000])
    yield from ()


def _collectives(rng: Random, rank: Rank) -> Play:
    size, issued = rng.choice(_SIZES), list[Any]()
    tensor: Tensor = rank.tensor(f"g{size}", max(size // 4, 1))
    rank.compute(rng.choice(_NAMES), rng.choice(_NS), [tensor], [tensor])
    for _ in range(rng.choice([1, 2, 8])):
        kind = rng.choice([ALL_REDUCE, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL])
        issued.append((yield from rank.collective(kind, size, [tensor])))
    rank.compute(rng.choice(_NAMES), rng.choice(_NS), [tensor], [tensor])
    for work in issued:
        rank.wait(work, python=rng.random() < 0.5)


RANDOM_JOBS = {f"job {seed}": Job(partial(_program, seed), 1 + seed % 3, of=_RandomRank) for seed in range(6)}  # type: ignore[arg-type]
