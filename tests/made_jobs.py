"""Made training jobs: programs that run on a model of hosts, streams and a network, and the traces they leave.

A program calls what PyTorch calls, in its order: operators, launches, event records, stream waits. Played on one
network it gives each rank's Kineto trace and ET; played on another, what the job would really take there. `JOBS` are
recorded on a network so fast that no kernel starts visibly late: only the calls say what waits for what.

    pairs = JOBS["ddp"].write(tmp_path)                               # (ET, Kineto trace) of each rank
    JOBS["ddp"].makespan_ns(Network(bandwidth=2.5, latency=5000))     # from the first start to the last end
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import orjson
from etplus.linker import link
from etplus.trace.trace import Trace
from made_traces import event
from simulator import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, MESSAGE, REDUCE_SCATTER, Network
from support import Document, et_document, kineto_document, recorded_with

RECORDED = Network(bandwidth=1e6, latency=100)
"""What the traces are recorded on: a transfer takes about a microsecond."""

MAIN, AUTOGRAD = 100, 101
"""Threads. The main thread waits while the autograd thread runs, so that one clock a rank is enough."""
COMPUTE, COMM, UNSHARD, POST_BACKWARD, INTERNAL, MESSAGES = 7, 20, 24, 28, 30, 32
"""Streams; INTERNAL is NCCL's own, those of messages to and from rank r are MESSAGES + r."""

_LAUNCH_LATENCY, _GAP, _CALL, _RETURN = 6000, 1000, 1500, 2000
"""ns: from a launch to its kernel, between two kernels, of a runtime call, from the device's last end to a
synchronizing call's."""
_PAUSE = 4000
"""ns of host time before and after what an operator does."""
_NAMES = {
    ALL_REDUCE: ("allreduce_", "allreduce", "AllReduce_Sum_f32_RING_LL", "all_reduce"),
    ALL_GATHER: ("_allgather_base_", "_allgather_base", "AllGather_RING_LL", "_all_gather_base"),
    REDUCE_SCATTER: ("_reduce_scatter_base_", "_reduce_scatter_base", "ReduceScatter_Sum_f32_RING_LL",
                     "_reduce_scatter_base"),
    ALL_TO_ALL: ("alltoall_base_", "all_to_allv", "SendRecv", "all_to_all"),
}  # fmt: skip
"""The c10d operator, `Collective name`, the kernel, and the annotation, of each collective."""

Tensor = list[Any]
Play = Generator["Ready", int, None]


@dataclass(frozen=True)
class Ready:
    """A rank's side of a communication: everything before it has ended at a time, in ns."""

    key: tuple[Any, ...]
    members: tuple[int, ...]
    kind: int
    size: int
    ns: int


@dataclass(frozen=True)
class _Event:
    """A CUDA event: when it is reached, on which stream, and the correlation of the call that recorded it."""

    ns: int
    stream: int
    correlation: int


@dataclass(frozen=True)
class Work:
    """A communication that was issued: its number, and the event behind it."""

    seq: int
    end: _Event


@dataclass
class Rank:
    """One process: a host clock, its streams, and what the observers write."""

    backend: ClassVar[str] = "nccl"

    rank: int
    ranks: int
    now: int = 0
    thread: int = MAIN
    stream: int = COMPUTE
    events: list[Document] = field(default_factory=list)
    waits: list[Document] = field(default_factory=list)
    nodes: list[Document] = field(default_factory=list)
    free: dict[int, int] = field(default_factory=dict)
    barrier: dict[int, int] = field(default_factory=dict)
    above: list[int] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: count(10))
    storages: dict[str, int] = field(default_factory=dict)
    issued: dict[tuple[Any, ...], int] = field(default_factory=dict)

    # What a program calls.

    @contextlib.contextmanager
    def op(
        self, name: str, reads: Sequence[Any] = (), writes: Sequence[Any] = (), *, annotation: bool = False
    ) -> Iterator[None]:
        """An operator or annotation around what is called in it."""
        number, begin = next(self.numbers), self.now
        scope = 7 if annotation else 0
        self.nodes.append({
            "id": number, "name": name, "parent": self.above[-1] if self.above else 2 + self.thread - MAIN,
            "rf_id": number, "scope": scope, "tid": 1 + self.thread - MAIN, **sides(reads, writes),
        })  # fmt: skip
        self.above.append(number)
        self.now += _PAUSE
        yield
        self.now += _PAUSE
        self.above.pop()
        args = {"External id": number, "Record function id": number, "Ev Idx": number}
        category = "user_annotation" if annotation else "cpu_op"
        self.events.append(trace_event(category, name, (70_000 + self.rank, self.thread), begin, self.now, args))

    @contextlib.contextmanager
    def on(self, *, thread: int = 0, stream: int = 0) -> Iterator[None]:
        """What is called in it is on another thread, or with another current stream."""
        before = self.thread, self.stream, self.above
        self.thread, self.stream = thread or self.thread, stream or self.stream
        self.above = [] if thread else self.above
        yield
        self.thread, self.stream, self.above = before

    def compute(self, name: str, ns: int, reads: Sequence[Any] = (), writes: Sequence[Any] = ()) -> None:
        """An operator that launches one kernel to the current stream."""
        with self.op(name, reads, writes):
            correlation, launched = self._call("cudaLaunchKernel")
            start = self._start(self.stream, launched)
            self._kernel(f"void {name}_kernel()", self.stream, start, start + ns, correlation)

    def collective(self, kind: int, size: int, reads: Sequence[Tensor], writes: Sequence[Tensor] = ()) -> _Issue:
        """Issue a collective of all ranks behind the current stream's work; `size` as in `Network.transfer_ns`."""
        op, name, kernel, annotation = _NAMES[kind]
        length = {ALL_GATHER: (1, self.ranks), REDUCE_SCATTER: (self.ranks, 1)}.get(kind, (1, 1))
        sizes = (size // 4, size * length[1] // (4 * length[0]))
        ask = (("group",), tuple(range(self.ranks)), kind, size)
        return self._issue((op, name, kernel, annotation), ask, COMM, sizes, (reads, writes or reads), {})

    def send(self, peer: int, size: int, tensor: Tensor) -> _Issue:
        """Issue a message behind the current stream's work."""
        return self._message(("send", "send"), (self.rank, peer), size, ([tensor], []))

    def receive(self, peer: int, size: int, tensor: Tensor) -> _Issue:
        """Issue the receive of a message."""
        return self._message(("recv_", "recv"), (peer, self.rank), size, ([tensor], [tensor]))

    def wait(self, work: Work, *, python: bool = True) -> None:
        """Let the current stream wait for a communication, as `Work.wait` does; from C++ it has no operator."""
        values = [work.seq, ["", ""], 0, "wait", [], [], -1, -1, self.ranks]
        with self.op("record_param_comms", values) if python else contextlib.nullcontext():
            self._wait_event(self.stream, work.end)

    def wait_stream(self, source: int, target: int) -> None:
        """`target.wait_stream(source)`: record an event on one stream, let another wait for it."""
        self._wait_event(target, self._record(source))

    def synchronize(self) -> None:
        """Wait on the host until the device has done everything."""
        self._call("cudaDeviceSynchronize", until=max(self.free.values(), default=0) + _RETURN)

    def tensor(self, name: str, numel: int = 1024, offset: int = 0) -> Tensor:
        """A tensor of a named storage: [tensor, storage, offset, numel, itemsize, device], offset in elements."""
        storage = self.storages.setdefault(name, 100_000 + len(self.storages))
        own = self.storages.setdefault(f"{name} {offset} {numel}", 100_000 + len(self.storages))
        return [own, storage, offset, numel, 4, f"cuda:{self.rank}"]

    # How it comes about.

    def _message(self, names: tuple[str, str], ends: tuple[int, int], size: int, tensors: Any) -> _Issue:
        op, name = names
        peer = sum(ends) - self.rank
        group = tuple(sorted(ends))
        more = {"Src Rank": ends[0], "Dst Rank": ends[1], "Group size": 2}
        what = (op, name, "SendRecv", f"{name} {ends[0]}->{ends[1]}")
        return self._issue(what, (ends, group, MESSAGE, size), MESSAGES + peer, (size // 4, size // 4), tensors, more)

    def _issue(
        self, names: tuple[str, str, str, str], ask: Any, stream: int, sizes: tuple[int, int], tensors: Any,
        more: Document,
    ) -> _Issue:  # fmt: skip
        op, name, kernel, annotation = names
        key, members, kind, size = ask
        seq = self.issued[key] = self.issued.get(key, 0) + 1
        values = [tensors[0], seq, ["0", "default_pg"], self.rank, name, [], [], 0, 1, self.ranks]
        args = {
            "Collective name": name, "In msg nelems": sizes[0], "Out msg nelems": sizes[1], "Group size": self.ranks,
            "dtype": "Float", "In split size": "[]", "Out split size": "[]", "Process Group Name": "0",
            "Process Group Description": "default_pg", "Process Group Ranks": str([*range(self.ranks)]), **more,
        }  # fmt: skip
        with self.op(f"c10d::{op}", tensors[0], tensors[1]), self.op("record_param_comms", values, [tensors[1]]):
            self.wait_stream(self.stream, stream)
            with self.op(f"nccl:{annotation}", tensors[0], annotation=True):
                self._wait_event(INTERNAL, self._record(stream))
                correlation, launched = self._call("cudaLaunchKernelExC")
                start = self._start(stream, launched)
                end = yield Ready((*key, seq), members, kind, size, start)
                self._kernel(f"ncclDevKernel_{kernel}(ncclDevComm*)", stream, start, end, correlation, args)
                self._wait_event(INTERNAL, self._record(stream))
            return Work(seq, self._record(stream))

    def _call(self, name: str, until: int = 0) -> tuple[int, int]:
        """A runtime call: its correlation and start."""
        correlation, begin = next(self.numbers), self.now
        self.now = max(self.now + _CALL, until)
        args = {"correlation": correlation, **({"External id": self.above[-1]} if self.above else {})}
        self.events.append(trace_event("cuda_runtime", name, (70_000 + self.rank, self.thread), begin, self.now, args))
        self.now += 100
        return correlation, begin

    def _record(self, stream: int) -> _Event:
        correlation, _ = self._call("cudaEventRecord")
        return _Event(self._done(stream), stream, correlation)

    def _wait_event(self, stream: int, event: _Event) -> None:
        correlation, begin = self._call("cudaStreamWaitEvent")
        self.barrier[stream] = max(self.barrier.get(stream, 0), event.ns)
        args = {
            "cuda_sync_kind": "Stream Wait Event", "stream": stream, "correlation": correlation, "device": self.rank,
            "context": 1, "wait_on_stream": event.stream, "wait_on_cuda_event_record_corr_id": event.correlation,
        }  # fmt: skip
        self.waits.append(trace_event("cuda_sync", "Stream Wait Event", (self.rank, stream), begin, begin + 100, args))

    def _done(self, stream: int) -> int:
        """When all that a stream has to do so far is done."""
        return max(self.free.get(stream, 0), self.barrier.get(stream, 0))

    def _start(self, stream: int, launched: int) -> int:
        """When a kernel that is launched now begins."""
        busy = self._done(stream)
        return max(launched + _LAUNCH_LATENCY, busy + _GAP if busy else 0)

    def _kernel(
        self, name: str, stream: int, start: int, end: int, correlation: int, args: Document | None = None
    ) -> None:
        self.free[stream] = end
        args = {"External id": self.above[-1], "device": self.rank, "stream": stream, "correlation": correlation,
                **(args or {})}  # fmt: skip
        self.events.append(trace_event("kernel", name, (self.rank, stream), start, end, args))


def slow_rank(late: int) -> type[Rank]:
    """Ranks of which one needs twice the time for its kernels."""

    class SlowRank(Rank):
        def compute(self, name: str, ns: int, *sides: Any) -> None:
            super().compute(name, ns * (1 + (self.rank == late)), *sides)

    return SlowRank


def trace_event(category: str, name: str, track: tuple[int, int], start: int, end: int, args: Document) -> Document:
    return event(category, name, start / 1000, (end - start) / 1000, args, pid=track[0], tid=track[1])


_Issue = Generator[Ready, int, Work]


def sides(reads: Sequence[Any], writes: Sequence[Any]) -> Document:
    """Inputs and outputs of an ET node."""
    return {side: {"values": [*values], "shapes": [[]] * len(values), "types": [_type(one) for one in values]}
            for side, values in (("inputs", reads), ("outputs", writes))}  # fmt: skip


def _type(value: Any) -> str:
    if isinstance(value, list):
        tensor = len(value) == 6 and isinstance(value[5], str)
        return "Tensor(float)" if tensor else f"GenericList[{','.join(_type(one) for one in value)}]"
    return "Int" if isinstance(value, int) else "String"


@dataclass(frozen=True)
class Job:
    """A job of several ranks, of which each starts `skew_ns` later than the one before it."""

    program: Callable[[Rank], Play]
    ranks: int
    skew_ns: int = 0
    of: type[Rank] = Rank

    def makespan_ns(self, network: Network) -> int:
        """From the first start to the last end of anything on any rank, on a network: the truth."""
        events = [event for rank in self.play(network) for event in rank.events]
        first = min(float(event["ts"]) for event in events)
        last = max(float(event["ts"] + event["dur"]) for event in events)
        return round((last - first) * 1000)

    def play(self, network: Network) -> list[Rank]:
        """Run all ranks together: a communication ends, for all, its transfer after the last one is ready."""
        ranks = [self.of(rank, self.ranks, now=1_000_000 + rank * self.skew_ns) for rank in range(self.ranks)]
        plays = [self.program(rank) for rank in ranks]
        asks = {rank: ask for rank, play in enumerate(plays) if (ask := next(play, None)) is not None}
        while asks:
            met = next(ask for ask in asks.values() if all(asks.get(r, ask).key == ask.key and r in asks
                                                           for r in ask.members))  # fmt: skip
            end = max(asks[r].ns for r in met.members) + network.transfer_ns(met.kind, met.size, len(met.members))
            for r in met.members:
                try:
                    asks[r] = plays[r].send(end)
                except StopIteration:
                    del asks[r]
        return ranks

    def texts(self, *, waits: bool = False, network: Network = RECORDED) -> list[tuple[bytes, bytes]]:
        """ET and Kineto trace of each rank; with `waits` the profiler wrote `cuda_sync` records of the stream waits."""
        groups = [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": self.of.backend, "pg_size": self.ranks,
                   "ranks": [*range(self.ranks)]}]  # fmt: skip
        texts = []
        for rank in self.play(network):
            info = {"backend": self.of.backend, "rank": rank.rank, "world_size": self.ranks, "pg_count": 1,
                    "pg_config": groups}  # fmt: skip
            events = [*rank.events, *(rank.waits if waits else [])]
            kineto = kineto_document(sorted(events, key=lambda event: event["ts"]), distributedInfo=info)
            root = "[pytorch|profiler|execution_trace|thread]"
            threads = [{"id": 3, "name": root, "parent": 1, "scope": 7, "tid": 2}]
            et = et_document([*threads, *rank.nodes], **recorded_with(kineto))
            texts.append((orjson.dumps(et), orjson.dumps(kineto)))
        return texts

    def traces(self, **options: Any) -> list[Trace]:
        """The ranks, linked; see `texts`."""
        return [link(*texts) for texts in self.texts(**options)]

    def write(self, folder: Path, *, waits: bool = False, network: Network = RECORDED) -> list[tuple[Path, Path]]:
        """Write `rank<N>.et.json` and `rank<N>.kineto.json`, see `texts`; returns their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for rank, texts in enumerate(self.texts(waits=waits, network=network)):
            pair = folder / f"rank{rank}.et.json", folder / f"rank{rank}.kineto.json"
            for path, text in zip(pair, texts, strict=True):
                path.write_bytes(text)
            paths.append(pair)
        return paths


_LAYERS, _STEPS = 6, 3
_FORWARD, _BACKWARD, _UPDATE = 200_000, 400_000, 20_000
"""ns of a layer's kernels: the host is far ahead of the device."""
_BYTES = 8 << 20
"""Of a layer's parameters, and of what one rank sends on."""


def _step(rank: Rank, number: int) -> contextlib.AbstractContextManager[None]:
    return rank.op(f"ProfilerStep#{number}", annotation=True)


def _forward(rank: Rank, layer: int, batch: str = "", slower: float = 1.0) -> None:
    reads = [rank.tensor(f"x{layer}{batch}"), rank.tensor(f"w{layer}")]
    rank.compute("aten::mm", round(_FORWARD * slower), reads, [rank.tensor(f"x{layer + 1}{batch}")])


def _backward(rank: Rank, layer: int, batch: str = "", slower: float = 1.0) -> None:
    reads = [rank.tensor(f"d{layer + 1}{batch}"), rank.tensor(f"w{layer}")]
    with rank.op("autograd::engine::evaluate_function: MmBackward0"), rank.op("MmBackward0"):
        writes = [rank.tensor(f"d{layer}{batch}"), rank.tensor(f"g{layer}")]
        rank.compute("aten::mm", round(_BACKWARD * slower), reads, writes)


def _update(rank: Rank, layers: int, gradient: Callable[[int], Tensor], weights: str = "w") -> None:
    with rank.op("Optimizer.step#SGD.step", annotation=True):
        for layer in range(layers):
            weight = rank.tensor(f"{weights}{layer}")
            rank.compute("aten::add_", _UPDATE, [weight, gradient(layer)], [weight])


def ddp(
    rank: Rank, layers: int = _LAYERS, bucket: int = 2, *, overlapped: bool = True, size: int = _BYTES,
    messages: int = 1, slower: float = 1.0,
) -> Play:  # fmt: skip
    """Gradients in buckets, each reduced while the backward pass goes on, or else after it; all are waited for before
    the update.

    Args:
        size: bytes of a layer's gradients. messages: all-reduces of a bucket. slower: factor of this rank's kernels.
    """
    numel = size // 4

    def gradient(layer: int) -> Tensor:
        return rank.tensor(f"bucket{layer // bucket}", numel, layer % bucket * numel)

    def reduce(layer: int) -> Generator[Ready, int, list[Work]]:
        works, part = [], bucket * numel // messages
        for number in range(messages):
            tensor = rank.tensor(f"bucket{layer // bucket}", part, number * part)
            works.append((yield from rank.collective(ALL_REDUCE, 4 * part, [tensor])))
        return works

    for number in range(_STEPS):
        with _step(rank, number):
            for layer in range(layers):
                _forward(rank, layer, slower=slower)
            works = []
            with rank.on(thread=AUTOGRAD):
                for layer in reversed(range(layers)):
                    _backward(rank, layer, slower=slower)
                    with rank.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"):
                        name = "torch::distributed::reducer::mul_out"
                        rank.compute(name, 5000, [rank.tensor(f"g{layer}")], [gradient(layer)])
                        if overlapped and not layer % bucket:
                            works += yield from reduce(layer)
            for layer in reversed(range(0, 0 if overlapped else layers, bucket)):
                works += yield from reduce(layer)
            for work in works:
                rank.wait(work, python=not overlapped)
            _update(rank, layers, gradient)
    rank.synchronize()


def fsdp(rank: Rank, layers: int = _LAYERS) -> Play:
    """Each layer's parameters gathered before it, its gradients scattered after it; streams as in FSDP1."""
    shard = _BYTES // rank.ranks

    def gather(layer: int) -> Play:
        with rank.on(stream=UNSHARD):
            tensors = [rank.tensor(f"shard{layer}")], [rank.tensor(f"w{layer}")]
            work = yield from rank.collective(ALL_GATHER, shard, *tensors)
            rank.wait(work)

    for number in range(_STEPS):
        with _step(rank, number):
            rank.wait_stream(COMPUTE, UNSHARD)  # parameters are those of the last update
            for layer in range(layers):
                yield from gather(layer)
                rank.wait_stream(UNSHARD, COMPUTE)
                _forward(rank, layer)
            with rank.on(thread=AUTOGRAD):
                yield from gather(layers - 1)
                for layer in reversed(range(layers)):
                    rank.wait_stream(UNSHARD, COMPUTE)
                    if layer:  # the next one is gathered while this one computes
                        yield from gather(layer - 1)
                    _backward(rank, layer)
                    rank.wait_stream(COMPUTE, POST_BACKWARD)
                    with rank.on(stream=POST_BACKWARD):
                        tensors = [rank.tensor(f"g{layer}")], [rank.tensor(f"gs{layer}")]
                        rank.wait((yield from rank.collective(REDUCE_SCATTER, _BYTES, *tensors)))
                rank.wait_stream(POST_BACKWARD, COMPUTE)
            _update(rank, layers, lambda layer: rank.tensor(f"gs{layer}"), weights="shard")
    rank.synchronize()


def pipeline(rank: Rank, layers: int = 2, microbatches: int = 4) -> Play:
    """Stages of layers, activations and their gradients sent on; all forward, then all backward (GPipe).

    Receives are posted before what they are for is computed: a send that has to wait for its receive, as NCCL's do,
    and one that has not, as in ASTRA-sim, then take the same time.
    """
    first, last = rank.rank == 0, rank.rank == rank.ranks - 1

    def receive(peer: int, name: str, wanted: bool) -> Generator[Ready, int, list[Work]]:
        works = []
        for batch in range(microbatches if wanted else 0):
            work = yield from rank.receive(peer, _BYTES, rank.tensor(f"{name} {batch}"))
            works.append(work)
        return works

    for number in range(_STEPS):
        with _step(rank, number):
            sent = []
            received = yield from receive(rank.rank - 1, "x0", not first)
            for batch in range(microbatches):
                if received:
                    rank.wait(received[batch])
                for layer in range(layers):
                    _forward(rank, layer, f" {batch}")
                if not last:
                    sent.append((yield from rank.send(rank.rank + 1, _BYTES, rank.tensor(f"x{layers} {batch}"))))
            with rank.on(thread=AUTOGRAD):
                received = yield from receive(rank.rank + 1, f"d{layers}", not last)
                for batch in range(microbatches):
                    if received:
                        rank.wait(received[batch])
                    for layer in reversed(range(layers)):
                        _backward(rank, layer, f" {batch}")
                    if not first:
                        sent.append((yield from rank.send(rank.rank - 1, _BYTES, rank.tensor(f"d0 {batch}"))))
            for work in sent:
                rank.wait(work)
            _update(rank, layers, lambda layer: rank.tensor(f"g{layer}"))
    rank.synchronize()


def moe(rank: Rank, layers: int = 4) -> Play:
    """Tokens sent to the experts of all ranks and back, beside an expert that all share."""

    def exchange(name: str) -> Generator[Ready, int, Work]:
        tensors = [rank.tensor(f"{name} in")], [rank.tensor(f"{name} out")]
        return (yield from rank.collective(ALL_TO_ALL, _BYTES, *tensors))

    for number in range(_STEPS):
        with _step(rank, number):
            for layer in range(layers):
                rank.compute("aten::mm", _FORWARD, [rank.tensor(f"x{layer}")], [rank.tensor("dispatch in")])
                dispatched = yield from exchange("dispatch")
                rank.compute("aten::mm", _FORWARD // 2, [rank.tensor(f"x{layer}")], [rank.tensor("shared")])
                rank.wait(dispatched)
                rank.compute("aten::bmm", _FORWARD, [rank.tensor("dispatch out")], [rank.tensor("combine in")])
                rank.wait((yield from exchange("combine")))
                reads = [rank.tensor("combine out"), rank.tensor("shared")]
                rank.compute("aten::add", _UPDATE, reads, [rank.tensor(f"x{layer + 1}")])
            _update(rank, layers, lambda layer: rank.tensor(f"x{layer}"))
    rank.synchronize()


JOBS = {"ddp": Job(ddp, 4), "fsdp": Job(fsdp, 4), "pipeline": Job(pipeline, 2), "moe": Job(moe, 4)}
"""One of each kind; `Job(ddp, 2, skew_ns=3_000_000)` and so on for others."""
