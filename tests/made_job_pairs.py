"""Made jobs of several ranks before and after a change; what each takes follows from its program and the network.

The programs are those of `made_jobs`, played on a network whose transfers take visible time.

    pair = JOB_PAIRS["exposed_reduce"]
    pair.job(after=False).write(folder, network=NETWORK)
    pair.gain_ns                                       # the truth
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from made_jobs import AUTOGRAD, Job, Play, Rank
from simulator import ALL_REDUCE, Network

NETWORK = Network(bandwidth=50, latency=8_000)
"""50 GB/s and 8 µs a step of the ring."""
_LAYERS, _STEPS, _FORWARD, _BACKWARD = 8, 3, 300_000, 600_000


@dataclass(frozen=True)
class JobPair:
    """A change.

    Attributes:
        change: what was done. law: what takes the time that is gained.
        program: what each rank runs, before or after it. ranks: how many.
    """

    change: str
    law: str
    program: Callable[[Rank, bool], Play]
    ranks: int = 4

    def job(self, *, after: bool) -> Job:
        return Job(lambda rank: self.program(rank, after), self.ranks)


def _training(
    rank: Rank, after: bool, *, overlapped: bool = True, size: int = 16 << 20, messages: int = 1, slower: float = 1.0
) -> Play:
    """Data-parallel steps.

    Args:
        overlapped: gradients of a layer are reduced while the backward pass goes on; else after it.
        size: bytes of a layer's gradients. messages: all-reduces that they come in.
        slower: time of this rank's kernels.
    """
    for number in range(_STEPS):
        with rank.op(f"ProfilerStep#{number}", annotation=True):
            for layer in range(_LAYERS):
                reads = [rank.tensor(f"x{layer}"), rank.tensor(f"w{layer}")]
                rank.compute("aten::mm", round(_FORWARD * slower), reads, [rank.tensor(f"x{layer + 1}")])
            works = []
            with rank.on(thread=AUTOGRAD):
                for layer in reversed(range(_LAYERS)):
                    with rank.op("autograd::engine::evaluate_function: MmBackward0"), rank.op("MmBackward0"):
                        reads = [rank.tensor(f"d{layer + 1}"), rank.tensor(f"w{layer}")]
                        writes = [rank.tensor(f"d{layer}"), rank.tensor(f"g{layer}")]
                        rank.compute("aten::mm", round(_BACKWARD * slower), reads, writes)
                    if overlapped:
                        with rank.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"):
                            works += yield from _reduced(rank, layer, size, messages)
            if not overlapped:
                for layer in reversed(range(_LAYERS)):
                    works += yield from _reduced(rank, layer, size, messages)
            for work in works:
                rank.wait(work, python=not overlapped)
            with rank.op("Optimizer.step#SGD.step", annotation=True):
                for layer in range(_LAYERS):
                    weight = rank.tensor(f"w{layer}")
                    rank.compute("aten::add_", 20_000, [weight, rank.tensor(f"g{layer}")], [weight])
    rank.synchronize()


def _reduced(rank: Rank, layer: int, size: int, messages: int) -> Play:
    works = []
    for part in range(messages):
        numel = size // 4 // messages
        tensor = rank.tensor(f"g{layer}", numel, part * numel)
        works.append((yield from rank.collective(ALL_REDUCE, size // messages, [tensor])))
    return works


def _exposed(rank: Rank, after: bool) -> Play:
    return _training(rank, after, overlapped=after)


def _small(rank: Rank, after: bool) -> Play:
    return _training(rank, after, overlapped=False, size=1 << 20, messages=1 if after else 24)


def _straggler(rank: Rank, after: bool) -> Play:
    return _training(rank, after, size=4 << 20, slower=1.4 if rank.rank == 2 and not after else 1.0)


JOB_PAIRS: dict[str, JobPair] = {
    "exposed_reduce": JobPair(
        "gradients reduced after the backward pass; in it",
        "16 MiB a layer take 0.55 ms on the network, less than a layer's backward pass", _exposed,
    ),
    "small_messages": JobPair(
        "the gradients of a layer in 24 messages; in one", "each message takes six steps of 8 us", _small,
    ),
    "straggler": JobPair(
        "kernels of rank 2 take 1.4 times as long; as long as those of the others", "all wait for it", _straggler,
    ),
}  # fmt: skip
"""By name; what was before and what is after the semicolon."""


def tuned_job() -> Job:
    """Ranks alike, gradients reduced under the backward pass."""
    return Job(partial(_training, after=True, size=4 << 20), 4)
