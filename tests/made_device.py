"""Traces of a device whose law is known: what each kernel takes follows from its bytes and FLOPs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import orjson
from etplus import load
from etplus.trace.trace import Trace
from support import kineto_document

Shape = tuple[int, ...]
H100: dict[str, Any] = {
    "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85018279936, "computeMajor": 9, "computeMinor": 0,
    "warpSize": 32, "numSms": 132, "maxThreadsPerBlock": 1024,
}  # fmt: skip
FLOPS, TF32, FLOAT32, BANDWIDTH = 989.4e12, 494.7e12, 67e12, 3.35e12
_TYPES = {"bf16": ("c10::BFloat16", 2), "f32": ("float", 4)}
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
    """A program on one thread and one stream, recorded.

    Attributes:
        host: µs that an operator takes beside its launch, 4 µs.
    """

    def __init__(self, host: float = 6.0, *, rank: int | None = None, shapes: bool = True) -> None:
        self.events: list[dict[str, Any]] = []
        self.host, self.now, self.stream, self.rank, self.shapes = host, 1000.0, 7, rank, shapes
        self._free: dict[int, float] = {}
        self._correlation = 100

    def _event(self, cat: str, name: str, ts: float, dur: float, tid: int = 7, **args: Any) -> dict[str, Any]:
        self.events.append({"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": tid, "args": args})
        return self.events[-1]

    @contextmanager
    def inside(self, name: str, cat: str = "cpu_op", **args: Any) -> Iterator[None]:
        """An operator or annotation around others."""
        event = self._event(cat, name, self.now, 0.0, **args)
        self.now += 1
        yield
        self.now += 1
        event["dur"] = self.now - event["ts"]

    def op(
        self, name: str, shapes: Sequence[Shape], *kernels: tuple[str, float], dtype: str = "bf16",
        types: Sequence[str] = (), **args: Any,
    ) -> None:  # fmt: skip
        """An operator that launches some kernels (name, µs)."""
        given = [_TYPES[one][0] for one in types or [dtype] * len(shapes)]
        shaped = {"Input Dims": [list(shape) for shape in shapes], "Input type": given} if self.shapes else {}
        with self.inside(name, **shaped, **args):
            self.now += self.host - 2
            for kernel, us in kernels:
                self.launch(kernel, us)

    def launch(self, kernel: str, us: float) -> None:
        self._correlation += 1
        self._event("cuda_runtime", "cudaLaunchKernel", self.now, 4.0, correlation=self._correlation)
        begin = max(self.free + 1, self.now + 6)
        self.now += 4
        stream = self.stream
        self._event("kernel", kernel, begin, us, 70 + stream, device=0, stream=stream, correlation=self._correlation)
        self.events[-1]["pid"] = 0
        self._free[stream] = begin + us

    @property
    def free(self) -> float:
        """When the stream has nothing more to run."""
        return self._free.get(self.stream, 0.0)

    def call(self, name: str, us: float, waits: bool = False) -> None:
        """A runtime call that launches nothing; one that waits ends when the device is done, at the earliest."""
        self._correlation += 1
        begin = self.now
        self.now = max(self.now, self.free if waits else 0.0) + us
        self._event("cuda_runtime", name, begin, self.now - begin, correlation=self._correlation)

    def memory(self, allocated: int, reserved: int, size: int, address: int) -> None:
        args = {
            "Total Reserved": reserved, "Total Allocated": allocated, "Bytes": size, "Addr": address, "Device Id": 0,
            "Device Type": 1,
        }  # fmt: skip
        self.events.append(
            {
                "ph": "i",
                "s": "t",
                "cat": "cpu_instant_event",
                "name": "[memory]",
                "ts": self.now,
                "tid": 7,
                "args": args,
            }
        )

    def trace(self) -> Trace:
        """The recording."""
        header: dict[str, Any] = {"deviceProperties": [H100]} if self._free else {}
        if self.rank is not None:
            header["distributedInfo"] = {"backend": "nccl", "rank": self.rank, "world_size": 2}
        return load(orjson.dumps(kineto_document(self.events, **header)))

    @property
    def span_ns(self) -> float:
        """From the first event to the last."""
        timed = [event for event in self.events if "dur" in event]
        return (max(one["ts"] + one["dur"] for one in timed) - min(one["ts"] for one in timed)) * 1e3

    # What models are made of

    def pointwise(
        self, name: str, shape: Shape, functor: str = "Functor", inputs: int = 1, share: float = 0.85
    ) -> None:
        moved = nbytes(*[shape] * (inputs + 1))
        self.op(name, [shape] * inputs, (POINTWISE.format(functor), of_bytes(moved, share)))

    def linear(
        self, m: int, n: int, k: int, share: float = 0.7, kernel: str = "nvjet_tst_128x256_64x4_1x2_h_bz_TNN"
    ) -> None:
        self.op("aten::mm", [(m, k), (k, n)], (kernel, of_product(1, m, n, k, share)))
