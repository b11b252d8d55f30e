"""Kineto traces of a serving engine made from batches of requests, so that phases, sums and steps are known."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import orjson
from etplus.converters.open import load
from etplus.trace.trace import Trace
from support import PID, Document, kineto_document

Requests = Sequence[tuple[int, int]]
"""Of each request its new tokens and its keys, the new ones included."""


@dataclass(frozen=True)
class Batch:
    """The requests of one step."""

    prefill: Requests = ()
    decode: Requests = ()

    @property
    def phase(self) -> str:
        """As the steps of a trace have it."""
        return ("idle", "decode", "prefill", "mixed")[2 * bool(self.prefill) + bool(self.decode)]

    @property
    def tokens(self) -> int:
        return sum(q for q, _ in [*self.prefill, *self.decode])

    def name(self, form: str) -> str:
        """The annotation: "vllm", "vllm old", "vllm older", or "sglang"."""
        if form == "sglang":
            requests, tokens = len(self.prefill) + len(self.decode), self.tokens
            mode = {"prefill": "EXTEND", "decode": "DECODE", "mixed": "MIXED", "idle": "IDLE"}[self.phase]
            return f"step[{mode} bs={requests}{f' toks={tokens}' * (mode in ('EXTEND', 'MIXED'))}]"
        texts = [f"{len(part)}({_sums(part, form)})" for part in (self.prefill, self.decode)]
        size = f"{self.tokens}_" if form == "vllm" else ""
        return f"execute_{size}context_{texts[0]}_generation_{texts[1]}"


def _sums(part: Requests, form: str) -> str:
    q, k, qq, qk = (sum(of(*one) for one in part) for of in (
        lambda q, _: q, lambda _, k: k, lambda q, _: q * q, lambda q, k: q * k
    ))  # fmt: skip
    if form == "vllm":
        return f"sq{q}sk{k}sqsq{qq}sqsk{qk}"
    return f"{q}_{qq}" if form == "vllm old" and part else f"{q}"


@dataclass
class Served:
    """A trace, by index in its events the step of each (−1 for none), and of each step in ns start and end on the host
    and those of its GPU events."""

    batches: list[Batch]
    events: list[Document] = field(default_factory=list)
    step_of: dict[int, int] = field(default_factory=dict)
    spans: list[tuple[int, int]] = field(default_factory=list)
    device: list[list[tuple[int, int]]] = field(default_factory=list)

    def document(self, **header: object) -> Document:
        return kineto_document(self.events, **header)

    def trace(self) -> Trace:
        return load(orjson.dumps(self.document()))


def serve(
    batches: Sequence[Batch], form: str = "vllm", seed: int = 0, *, delay: int = 0, threads: int = 1,
    wrapped: bool = False,
) -> Served:  # fmt: skip
    """Run batches one after the other.

    Every step calls operators on its thread, which launch kernels one by one or as a graph; between steps the
    scheduler calls some, too, and so does another thread all the time. Kernels run in order on one stream.

    Args:
        delay: µs by which the device is behind the host: kernels may run when the host is in a later step.
        threads: the steps are on so many threads in turn, and overlap.
        wrapped: SGLang's annotation is within vLLM's.
    """
    random = np.random.default_rng(seed)
    made = Served(list(batches))
    host, device, correlation = 1000, 0, 100

    def add(step: int, **event: object) -> Document:
        made.step_of[len(made.events)] = step
        made.events.append({"ph": "X", "pid": PID, **event})
        return made.events[-1]

    def kernels(step: int, call: int, at: int, count: int) -> None:
        nonlocal device, correlation
        correlation += 1
        name = "cudaLaunchKernel" if count == 1 else "cudaGraphLaunch"
        add(step, name=name, cat="cuda_runtime", ts=at, dur=2, tid=call, args={"correlation": correlation})
        for _ in range(count):
            took = int(random.integers(1, 30))
            device = max(device, at + 3 + delay) + int(random.integers(0, 4))
            add(step, name=f"k{took % 5}", cat="kernel", pid=0, ts=device, dur=took, tid=7,
                args={"device": 0, "stream": 7, "correlation": correlation})  # fmt: skip
            if step >= 0:
                made.device[step].append((device * 1000, (device + took) * 1000))
            device += took

    def operators(step: int, thread: int, count: int, start: int) -> int:
        at = start
        for _ in range(count):
            took = int(random.integers(12, 40))
            add(step, name="aten::mm", cat="cpu_op", ts=at, dur=took, tid=thread, args={"Sequence number": 1})
            kernels(step, thread, at + 4, int(random.choice([1, 1, 6])))
            at += took + int(random.integers(0, 9))
        return at

    for number, batch in enumerate(batches):
        thread = 20 + number % threads
        begin, made.device = host, [*made.device, []]
        annotation = add(number, name=batch.name(form), cat="user_annotation", ts=begin, tid=thread)
        inner = (
            add(number, name=batch.name("sglang"), cat="user_annotation", ts=begin + 1, tid=thread) if wrapped else {}
        )
        end = operators(number, thread, int(random.integers(1, 5)), begin + 5) + int(random.integers(1, 50))
        annotation["dur"] = end - begin
        inner |= {"dur": end - begin - 3}
        made.spans.append((begin * 1000, end * 1000))
        if threads > 1:
            host = max([begin + (end - begin) // 2 + 1, *(stop // 1000 + 1 for _, stop in made.spans[:-1])])
        else:
            host = operators(-1, thread, int(random.integers(0, 3)), end + 10) + int(random.integers(20, 90))
    for at in range(900, host + 500, 97):
        around = [k for k, (start, end) in enumerate(made.spans) if start <= at * 1000 < end]
        add(max(around, default=-1), name="aten::add", cat="cpu_op", ts=at, dur=5, tid=99)
    return made
