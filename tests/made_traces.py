"""The builder of made traces: events at given times (µs), and what linking and replay make of them.

trace_bytes = kineto_of([op("aten::mm", 0, 10), launch(1, 2), kernel("gemm", 1, ts=5, dur=20)])

made = Timeline()
made.op("aten::mm", 0, 10)
made.launch("gemm", 2, 1, start=5, length=20)
made.graph()                                         # of the linked trace
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import orjson
from etplus.converters.open import load
from etplus.linker import link
from etplus.timeline.constants import fit_constants
from etplus.timeline.graph_building import build_graph
from etplus.timeline.graph_replay import Replay, replay
from etplus.timeline.replay_graph import ReplayGraph
from etplus.timeline.whatif import apply_what_ifs, parse_what_if
from etplus.trace.trace import Trace
from support import Document, assert_valid, kineto_document


def event(cat: str, name: str, ts: float, dur: float, args: Document | None = None, **track: Any) -> Document:
    """A Kineto event; `kineto_document` puts it on the usual thread unless `track` has pid and tid."""
    return {"ph": "X", "cat": cat, "name": name, **track, "ts": ts, "dur": dur, "args": args or {}}


def op(
    name: str, ts: float, dur: float, inputs: Sequence[tuple[list[Any], str]] = (), args: Document | None = None,
    rf_id: int = 0, **more: Any,
) -> Document:  # fmt: skip
    """A CPU op, with (shape, type) of its inputs if there are any, and the number that its node in an ET has."""
    shapes = {"Input Dims": [s for s, _ in inputs], "Input type": [t for _, t in inputs]} if inputs else {}
    ids = {"Record function id": rf_id} if rf_id else {}
    return event("cpu_op", name, ts, dur, shapes | ids | (args or {})) | more


def annotation(name: str, ts: float, dur: float) -> Document:
    return event("user_annotation", name, ts, dur)


def call(name: str, ts: float, dur: float, correlation: int, tid: int = 7, **args: Any) -> Document:
    return event("cuda_runtime", name, ts, dur, {"correlation": correlation, **args}, tid=tid)


def launch(correlation: int, ts: float, dur: float = 1, name: str = "cudaLaunchKernel", **args: Any) -> Document:
    return call(name, ts, dur, correlation, **args)


def gpu(
    name: str, ts: float, dur: float, correlation: int, stream: int = 7, cat: str = "kernel", device: int = 0,
    **args: Any,
) -> Document:  # fmt: skip
    known = {"correlation": correlation, "stream": stream, "device": device}
    return event(cat, name, ts, dur, known | args, pid=device, tid=stream)


def kernel(
    name: str, correlation: int, ts: float, dur: float, stream: int = 7, device: int = 0, **args: Any
) -> Document:
    return gpu(name, ts, dur, correlation, stream, device=device, **args)


def memory_event(ts: float, size: int, address: int, allocated: int, **more: Any) -> Document:
    args = {"Bytes": size, "Addr": address, "Total Allocated": allocated, "Total Reserved": 1 << 20,
            "Device Type": 1, "Device Id": 0, **more}  # fmt: skip
    return {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "ts": ts, "args": args}


def frame(name: str, ts: float, dur: float, called_from: str = "", **more: Any) -> Document:
    """A call of a Python function; `called_from` is a line such as "train.py:7" as PyTorch 2.14 records it."""
    args = {"Python id": 1, "Python parent id": None} | ({"CallFrom": called_from} if called_from else {})
    return event("python_function", name, ts, dur, args) | more


def program(lines: dict[int, tuple[str, float]], *, file: str = "train.py", first: int = 3) -> list[Document]:
    """A function whose lines (number: operator, µs of its kernel) each call one operator, which launches a kernel."""
    events = [frame(f"{file}({first}): step", 0, 100 * len(lines) + 10)]
    for at, (line, (name, dur)) in enumerate(lines.items()):
        ts = 100 * at + 1
        events += [frame(f"<built-in function {name}>", ts, 90, f"{file}:{line}"), op(name, ts + 5, 50)]
        events += [launch(at + 1, ts + 10), kernel("k", at + 1, ts + 20, dur)]
    return events


def kineto_of(
    events: list[Document], device: str = "NVIDIA H100 80GB HBM3", properties: Document | None = None, **header: Any
) -> bytes:
    """The text of a Kineto trace of these events, on a device of this name or of these properties."""
    listed = [{"id": 0, **(properties or {"name": device, "totalGlobalMem": 85 * 10**9})}]
    return json.dumps(kineto_document(events, deviceProperties=listed, **header)).encode()


def traced(events: list[Document], device: str = "NVIDIA H100 80GB HBM3", **header: Any) -> Trace:
    """The events as `etplus.load` reads them from such a file."""
    return load(kineto_of(events, device, **header))


class Timeline:
    """Gathers events; `document` links them without an ET and holds the ET+ against the schema."""

    def __init__(self, **header: Any) -> None:
        self.events: list[Document] = []
        self.header = header
        self.correlation = 0

    def op(self, name: str, ts: float, dur: float, tid: int = 7, category: str = "cpu_op") -> None:
        self.events.append(event(category, name, ts, dur, tid=tid))

    def call(self, name: str, ts: float, dur: float, tid: int = 7, **args: Any) -> int:
        """A runtime call; its correlation."""
        self.correlation += 1
        self.events.append(call(name, ts, dur, self.correlation, tid, **args))
        return self.correlation

    def gpu(
        self, name: str, ts: float, dur: float, correlation: int, stream: int = 7, category: str = "kernel", **args: Any
    ) -> None:
        self.events.append(gpu(name, ts, dur, correlation, stream, category, **args))

    def launch(self, name: str, ts: float, dur: float, start: float, length: float, stream: int = 7) -> None:
        """A launching call and its kernel."""
        self.gpu(name, start, length, self.call("cudaLaunchKernel", ts, dur), stream)

    def document(self) -> Trace:
        document = link(None, orjson.dumps(kineto_document(self.events, **self.header)))
        assert_valid(document.to_dict())
        return document

    def graph(self) -> ReplayGraph:
        return build_graph(self.document())


def after(graph: ReplayGraph, *what_ifs: str) -> Replay:
    """The replay of a graph with changes."""
    constants = fit_constants(graph)
    return replay(apply_what_ifs(graph, [parse_what_if(text) for text in what_ifs], constants), constants)


def starts(result: Replay) -> dict[str, float]:
    """Start in µs by name, of names that occur once or the last one of a name."""
    document = result.graph.trace
    return {document.name_of(row): ns / 1000 for row, ns in enumerate(result.start.tolist()) if ns >= 0}


def ends(result: Replay) -> dict[str, float]:
    document = result.graph.trace
    return {document.name_of(row): ns / 1000 for row, ns in enumerate(result.end.tolist()) if ns >= 0}


def sync(kind: str, ts: float, **args: Any) -> Document:
    """What the profiler's `cuda_sync` says of a wait."""
    return event("cuda_sync", kind, ts, 1, {"cuda_sync_kind": kind, "device": 0, **args}, pid=0, tid=7)


def linked_events(*events: Document) -> tuple[Document, Trace]:
    """The ET+ of events beside one operator, as a document and as a trace."""
    trace = link(None, orjson.dumps(kineto_document([op("op", 0, 1), *events])))
    assert_valid(trace.to_dict())
    return trace.to_dict(), trace


def edge_names(trace: Trace, kind: str) -> set[tuple[str, str]]:
    return {(trace.name_of(a), trace.name_of(b)) for a, b, _ in trace.edges_of(kind).tolist()}


Shape = tuple[int, ...]
H100: Document = {
    "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85018279936, "computeMajor": 9, "computeMinor": 0,
    "warpSize": 32, "numSms": 132, "maxThreadsPerBlock": 1024,
}  # fmt: skip
FLOPS, TF32, FLOAT32, BANDWIDTH = 989.4e12, 494.7e12, 67e12, 3.35e12
_TYPES = {"bf16": ("c10::BFloat16", 2), "f32": ("float", 4), "f64": ("double", 8)}
POINTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::{}, std::array<char*, 2ul> >(int)"


def nbytes(*shapes: Shape, dtype: str = "bf16") -> int:
    return sum(prod(shape) for shape in shapes) * _TYPES[dtype][1]


def of_bytes(size: float, share: float = 0.85) -> float:
    """µs of a kernel that moves so many bytes at a share of the bandwidth."""
    return size / BANDWIDTH / share * 1e6 + 2


def of_product(
    batch: int, m: int, n: int, k: int, share: float = 0.6, peak: float = FLOPS, dtype: str = "bf16"
) -> float:
    """µs of a product at a share of its bound."""
    size = nbytes((batch, m, k), (batch, k, n), (batch, m, n), dtype=dtype)
    return max(2 * batch * m * n * k / peak, size / BANDWIDTH) / share * 1e6 + 2


class MadeDevice:
    """A program on one thread, recorded: the host's clock `now` (µs), and streams that run kernels in order.

    Attributes:
        host: µs that an operator takes beside its launches of 4 µs each.
    """

    def __init__(
        self, host: float = 6.0, *, rank: int | None = None, shapes: bool = True, properties: Any = H100
    ) -> None:
        self.events: list[Document] = []
        self.host, self.now, self.stream, self.rank, self.shapes = host, 1000.0, 7, rank, shapes
        self.properties = properties
        self._free: dict[int, float] = {}
        self._frames: list[int] = []
        self._correlation = 100

    @contextmanager
    def inside(self, name: str, cat: str = "cpu_op", **args: Any) -> Iterator[None]:
        """An operator or annotation around others."""
        made = event(cat, name, self.now, 0.0, args, tid=7)
        self.events.append(made)
        self.now += 1
        yield
        self.now += 1
        made["dur"] = self.now - made["ts"]

    @contextmanager
    def frame(self, name: str) -> Iterator[None]:
        """A Python function, as "file.py(12): name", or a module, as "nn.Module: Linear_0"."""
        args = {"Python id": len(self.events) + 1, "Python parent id": self._frames[-1] if self._frames else None}
        if name.startswith("nn.Module: "):
            args["Python module id"] = int(name.rsplit("_", 1)[1])
        self._frames.append(len(self.events) + 1)
        with self.inside(name, "python_function", **args):
            yield
        self._frames.pop()

    def op(
        self, name: str, shapes: Sequence[Shape], *kernels: tuple[str, float], dtype: str = "bf16",
        types: Sequence[str] = (), **args: Any,
    ) -> None:  # fmt: skip
        """An operator that launches some kernels (name, µs)."""
        given = [_TYPES[one][0] for one in types or [dtype] * len(shapes)]
        shaped = {"Input Dims": [list(shape) for shape in shapes], "Input type": given} if self.shapes else {}
        with self.inside(name, **shaped, **args):
            self.now += self.host - 2
            for kernel_name, us in kernels:
                self.launch(kernel_name, us)

    def launch(self, *kernels: Any, call: str = "cudaLaunchKernel", takes: float = 4.0) -> None:
        """Launch a kernel, `launch(name, us)`, or several at once, `launch((name, us), …, call="cudaGraphLaunch")`."""
        begin = self.now
        self.call(call, takes)
        for name, us in kernels if isinstance(kernels[0], tuple) else [kernels]:
            self._run("kernel", name, us, begin)

    def copy(self, way: str, size: int, bandwidth: float, *, blocks: bool = False) -> None:
        """A copy, as "HtoD (Pinned -> Device)", at so many bytes a second; the host may wait for it."""
        begin, us = self.now, size / bandwidth * 1e6 + 1
        self.call("cudaMemcpyAsync", 4.0)
        self._run("gpu_memcpy", f"Memcpy {way}", us, begin, bytes=size)
        if blocks:
            self.call("cudaStreamSynchronize", 2.0, waits=True)

    def _run(self, cat: str, name: str, us: float, launched: float, **args: Any) -> None:
        begin = max(self.free + 1, launched + 6)
        made = gpu(name, begin, us, self._correlation, self.stream, cat, **args)
        self.events.append(made | {"tid": 70 + self.stream})
        self._free[self.stream] = begin + us

    @property
    def free(self) -> float:
        """When the stream has nothing more to run."""
        return self._free.get(self.stream, 0.0)

    def call(self, name: str, us: float, waits: bool = False) -> None:
        """A runtime call; one that waits ends when the stream is done, at the earliest."""
        self._correlation += 1
        begin = self.now
        self.now = max(self.now, self.free if waits else 0.0) + us
        self.events.append(call(name, begin, self.now - begin, self._correlation))

    def memory(self, allocated: int, reserved: int, size: int, address: int) -> None:
        self.events.append(
            {**memory_event(self.now, size, address, allocated, **{"Total Reserved": reserved}), "tid": 7}
        )

    @property
    def content(self) -> bytes:
        header: Document = {"deviceProperties": [self.properties]} if self._free else {}
        if self.rank is not None:
            header["distributedInfo"] = {"backend": "nccl", "rank": self.rank, "world_size": 2}
        return orjson.dumps(kineto_document(self.events, **header))

    def trace(self) -> Trace:
        return link(None, self.content)

    @property
    def span_ns(self) -> float:
        """From the first event to the last."""
        timed = [event for event in self.events if "dur" in event]
        return (max(one["ts"] + one["dur"] for one in timed) - min(one["ts"] for one in timed)) * 1e3

    def pointwise(
        self, name: str, shape: Shape, functor: str = "Functor", inputs: int = 1, share: float = 0.85
    ) -> None:
        moved = nbytes(*[shape] * (inputs + 1))
        self.op(name, [shape] * inputs, (POINTWISE.format(functor), of_bytes(moved, share)))

    def linear(
        self, m: int, n: int, k: int, share: float = 0.7, kernel: str = "nvjet_tst_128x256_64x4_1x2_h_bz_TNN"
    ) -> None:
        self.op("aten::mm", [(m, k), (k, n)], (kernel, of_product(1, m, n, k, share)))
