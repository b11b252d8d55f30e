"""Made jobs whose ranks compute on the host, with collectives of Gloo on a thread of the backend.

That thread gets a processor late, by up to `_LATE` ns, when a collective begins and when it has ended; so ranks leave a
collective at different times, which is theirs and not the network's.
"""

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, ClassVar

from made_jobs import Job, Play, Rank, Ready, Tensor, sides, trace_event
from simulator import ALL_REDUCE, MESSAGE

_BACKEND = 300
"""Thread of the backend."""
_LATE = 50_000
_LAYERS, _STEPS, _BYTES = 4, 2, 1 << 20
_FORWARD, _BACKWARD = 1_000_000, 2_000_000

Issue = Generator[Ready, int, int]
"""Issues a communication and returns when it has ended, ns."""


@dataclass
class HostRank(Rank):
    """One process that computes on the host."""

    backend: ClassVar[str] = "gloo"

    idle: int = 0
    """When the backend has done what it was asked for, but receives, which wait beside it."""
    calls: int = 0

    def work(self, name: str, ns: int, reads: Any = (), writes: Any = ()) -> None:
        """An operator that computes, on some ranks longer."""
        with self.op(name, reads, writes):
            self.now += ns + self._by_chance(ns // 4)

    def reduce(self, tensor: Tensor) -> Issue:
        """Issue an all-reduce, as DDP does."""
        return self._collective("c10d::allreduce_", "gloo:all_reduce", ALL_REDUCE, [[tensor], "<Object>"], tensor)

    def reduce_and_wait(self, tensor: Tensor) -> Play:
        """A functional all-reduce and the operator that waits for it."""
        with self.op("_c10d_functional::all_reduce", [tensor, "sum", "0"], [tensor]):
            end = yield from self.reduce(tensor)
        with self.op("_c10d_functional::wait_tensor", [tensor], [tensor]):
            self.wait_for(end)

    def message(self, tensor: Tensor, source: int, target: int) -> Issue:
        """Issue a send or a receive."""
        call, name = ("c10d::send", "gloo:send") if self.rank == source else ("c10d::recv_", "gloo:recv")
        ask = ((source, target), tuple(sorted((source, target))), MESSAGE, tensor[3] * 4)
        values = [[tensor], "<Object>", source + target - self.rank, 0]
        return self._issue_on_host(call, name, ask, values, tensor)

    def wait_for(self, end: int) -> None:
        """`Work.wait`, which leaves no operator."""
        self.now = max(self.now, end) + 10_000

    def _collective(self, call: str, name: str, kind: int, values: Any, given: Tensor) -> Issue:
        return self._issue_on_host(
            call, name, (("group",), tuple(range(self.ranks)), kind, given[3] * 4), values, given
        )

    def _issue_on_host(self, call: str, name: str, ask: Any, values: Any, given: Tensor) -> Issue:
        key, members, kind, size = ask
        seq = self.issued[key] = self.issued.get(key, 0) + 1
        target = values[0] if len(values[0]) == 6 else given
        with self.op(call, values, [target]):
            pass
        number, parent = next(self.numbers), self.above[-1] if self.above else 2
        begin = self.now + 20_000 + self._by_chance(_LATE)
        if name != "gloo:recv":
            begin = max(begin, self.idle)
        end = (yield Ready((*key, seq), members, kind, size, begin)) + self._by_chance(_LATE)
        if name != "gloo:recv":
            self.idle = end
        self.nodes.append({"id": number, "name": name, "parent": parent, "rf_id": number, "scope": 7, "tid": 1,
                           **sides([given], [])})  # fmt: skip
        args = {"External id": number, "Record function id": number, "Ev Idx": number}
        track = 70_000 + self.rank, _BACKEND
        self.events.append(trace_event("user_annotation", name, track, begin, end, args))
        return end

    def _by_chance(self, most: int) -> int:
        """The same numbers in every run, others on every rank."""
        self.calls += 1
        return most * ((self.rank * 13 + self.calls * 7) % 11) // 10


def _ddp(rank: HostRank) -> Play:
    """Gradients reduced while the backward pass goes on, all waited for before the update."""
    for number in range(_STEPS):
        with rank.op(f"ProfilerStep#{number}", annotation=True):
            for layer in range(_LAYERS):
                rank.work("aten::mm", _FORWARD, [rank.tensor(f"w{layer}")], [rank.tensor(f"x{layer}")])
            ends = []
            for layer in reversed(range(_LAYERS)):
                gradient = rank.tensor(f"g{layer}", _BYTES // 4)
                rank.work("aten::mm", _BACKWARD, [rank.tensor(f"x{layer}")], [gradient])
                ends.append((yield from rank.reduce(gradient)))
            for end in ends:
                rank.wait_for(end)
            for layer in range(_LAYERS):
                weight, gradient = rank.tensor(f"w{layer}"), rank.tensor(f"g{layer}", _BYTES // 4)
                rank.work("aten::add_", 50_000, [weight, gradient], [weight])


def _tensor_parallel(rank: HostRank) -> Play:
    """Activations reduced after each layer."""
    for number in range(_STEPS):
        with rank.op(f"ProfilerStep#{number}", annotation=True):
            for layer in range(_LAYERS):
                x, y = (rank.tensor(f"x{i % _LAYERS}", _BYTES // 4) for i in (layer, layer + 1))
                rank.work("aten::mm", _FORWARD, [x], [y])
                yield from rank.reduce_and_wait(y)


def _pipeline(rank: HostRank) -> Play:
    """Microbatches from stage to stage, each received while the one before it is worked on."""
    x, y = ([rank.tensor(f"{name}{batch}", _BYTES // 4) for batch in range(4)] for name in "xy")
    for number in range(_STEPS):
        with rank.op(f"ProfilerStep#{number}", annotation=True):
            arrived = [(yield from rank.message(x[0], rank.rank - 1, rank.rank))] if rank.rank else []
            for batch in range(4):
                if rank.rank and batch < 3:
                    arrived.append((yield from rank.message(x[batch + 1], rank.rank - 1, rank.rank)))
                if rank.rank:
                    rank.wait_for(arrived[batch])
                rank.work("aten::mm", _FORWARD, [x[batch]], [y[batch]])
                if rank.rank < rank.ranks - 1:
                    yield from rank.message(y[batch], rank.rank, rank.rank + 1)


def _random(seed: int, rank: HostRank) -> Play:
    """The same random actions on each rank: work, pauses, messages, and collectives that queue or block."""
    rng, ends, tensors = Random(seed), list[int](), [rank.tensor(f"x{k}", 1 << 12 + 2 * k) for k in range(6)]
    for _ in range(24):
        one, other, action = *rng.sample(tensors, 2), rng.randrange(8)
        source, target = rng.sample(range(rank.ranks), 2)
        if action < 2:
            rank.work(("aten::mm", "detach")[action], rng.choice([100_000, 3_000_000]), [one], [other])
        elif action == 2:
            rank.now += rng.choice([1_000_000, 6_000_000, 20_000_000])
        elif action == 3:
            yield from rank.reduce_and_wait(one)
        elif action == 4 and rank.rank in (source, target):
            ends.append((yield from rank.message(one, source, target)))
        elif action == 7:
            rank.wait_for(ends.pop(0) if ends else 0)
        elif action == 5:
            with rank.op("_ReduceBackward", [one], [other]):
                rank.wait_for((yield from rank.reduce(one)))
                rank.work("aten::add", 50_000, [one], [one])
        elif action != 4:
            ends.append((yield from rank.reduce(one)))
            ends.append((yield from rank.reduce(other)))


RANDOM_HOST_JOBS = {
    f"host random {seed}": Job(partial(_random, seed), ranks=3 - seed % 2, skew_ns=400_000, of=HostRank)
    for seed in range(3)
}

HOST_JOBS = {
    "ddp": Job(_ddp, ranks=3, skew_ns=400_000, of=HostRank),
    "tensor parallel": Job(_tensor_parallel, ranks=4, skew_ns=400_000, of=HostRank),
    "pipeline": Job(_pipeline, ranks=3, skew_ns=400_000, of=HostRank),
}
