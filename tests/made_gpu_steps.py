"""Made steps on one GPU, before and after a change: a host that calls, streams that run, each time by a known law.

A step is a program that calls operators with shapes; an operator takes host time and launches kernels, a kernel takes
what its bytes or FLOPs take at a share of the device's peak, in order on its stream. Played before and after a change,
the two times of the whole trace are what the change gains, by construction.

    for name, pair in GPU_PAIRS.items():
        before, after = pair.played(after=False), pair.played(after=True)
        before.document()            # its Kineto trace
        before.makespan_ns - after.makespan_ns
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from support import Document, kineto_document

__all__ = ["GPU_PAIRS", "GpuPair", "Machine", "well_tuned"]

BANDWIDTH, TENSOR_FLOPS, TF32_FLOPS, PLAIN_FLOPS = 3350e9, 989.4e12, 494.7e12, 67e12
"""Of an H100, bytes and FLOPs a second at its peak."""
GOOD, GOOD_PRODUCT = 0.85, 0.65
"""Share of the peak that good kernels reach: of the bandwidth, and of FLOPs a second in large matrix products."""
CALL_NS, LAUNCH_NS, LATENCY_NS, GAP_NS, RETURN_NS = 3_000, 4_000, 6_000, 1_000, 2_000
"""Host time before and after what an operator calls (half each), of a launch, from a launch to its kernel, between two
kernels of a stream, from the end of what is waited for to the return of the call that waits."""

_H100: Document = {
    "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85018279936, "computeMajor": 9, "computeMinor": 0,
    "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536, "warpSize": 32,
    "sharedMemPerBlock": 49152, "numSms": 132, "regsPerMultiprocessor": 65536,
}  # fmt: skip
_SIZES = {"c10::BFloat16": 2, "float": 4, "c10::Half": 2, "double": 8}
_HOST = {"pid": 70, "tid": 70}


@dataclass(frozen=True)
class Tensor:
    """What an operator gets: shape, element type, strides (None: contiguous)."""

    shape: tuple[int, ...]
    dtype: str = "c10::BFloat16"
    strides: tuple[int, ...] | None = None

    @property
    def numel(self) -> int:
        total = 1
        for size in self.shape:
            total *= size
        return total

    @property
    def bytes(self) -> int:
        return self.numel * _SIZES[self.dtype]

    @property
    def steps(self) -> list[int]:
        if self.strides is not None:
            return [*self.strides]
        steps, step = [], 1
        for size in reversed(self.shape):
            steps.insert(0, step)
            step *= size
        return steps


@dataclass
class Machine:
    """The host's clock, the device's streams, and what Kineto writes of both; ns."""

    now: int = 1_000_000
    events: list[Document] = field(default_factory=list)
    free: dict[int, int] = field(default_factory=dict)
    above: list[int] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: count(10))

    @property
    def makespan_ns(self) -> int:
        """From the first start to the last end."""
        ends = [round((event["ts"] + event["dur"]) * 1000) for event in self.events]
        return max(ends) - min(round(event["ts"] * 1000) for event in self.events)

    def document(self) -> Document:
        return kineto_document(
            sorted(self.events, key=lambda event: (event["ts"], -event["dur"])), deviceProperties=[_H100],
            with_stack=1, record_shapes=1,
        )  # fmt: skip

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[None]:
        with self._around("user_annotation", f"ProfilerStep#{number}"):
            yield

    @contextlib.contextmanager
    def frame(self, name: str) -> Iterator[None]:
        """A Python function, as "file.py(12): name", or a module, as "nn.Module: Linear_0"."""
        number, begin = next(self.numbers), self.now
        parent = self.frames[-1] if self.frames else None
        self.frames.append(number)
        yield
        self.frames.pop()
        args = {"Python id": number, "Python parent id": parent, "Ev Idx": number}
        if name.startswith("nn.Module: "):
            args["Python module id"] = int(name.rsplit("_", 1)[1])
        self._event("python_function", name, begin, self.now, args)

    @contextlib.contextmanager
    def op(self, name: str, *inputs: Tensor | str, host: int = 2 * CALL_NS) -> Iterator[None]:
        """An operator; texts are its inputs that are no tensors."""
        tensors = [one if isinstance(one, Tensor) else None for one in inputs]
        args = {
            "Input Dims": [[*one.shape] if one else [] for one in tensors],
            "Input type": [one.dtype if one else "Scalar" for one in tensors],
            "Input Strides": [one.steps if one else [] for one in tensors],
            "Concrete Inputs": ["" if isinstance(one, Tensor) else one for one in inputs],
        }
        with self._around("cpu_op", name, args, host):
            yield

    @contextlib.contextmanager
    def _around(self, category: str, name: str, more: Document | None = None, host: int = 200) -> Iterator[None]:
        number, begin = next(self.numbers), self.now
        self.above.append(number)
        self.now += host // 2
        yield
        self.now += host - host // 2
        self.above.pop()
        args = {"External id": number, "Record function id": number, "Ev Idx": number, **(more or {})}
        self._event(category, name, begin, self.now, args)

    def work(self, ns: int) -> None:
        """Host time that nothing is recorded of."""
        self.now += ns

    def kernel(self, name: str, ns: float, stream: int = 7, blocks: int = 1056) -> None:
        """Launch a kernel."""
        correlation = self.call("cudaLaunchKernel", LAUNCH_NS)
        self._run("kernel", name, round(ns), stream, correlation, {"grid": [blocks, 1, 1], "block": [256, 1, 1]})

    def graph(self, kernels: Sequence[tuple[str, float]], stream: int = 7) -> None:
        """Launch a graph of kernels."""
        correlation = self.call("cudaGraphLaunch", 10_000)
        for name, ns in kernels:
            about = {"grid": [1056, 1, 1], "block": [256, 1, 1]}
            self._run("kernel", name, round(ns), stream, correlation, about)

    def copy(self, way: str, size: int, bandwidth: float, stream: int = 7, *, blocks: bool = False) -> None:
        """A copy, as "HtoD (Pinned -> Device)"; the call may block until it is done."""
        correlation = self.call("cudaMemcpyAsync", LAUNCH_NS)
        ns = round(size / bandwidth * 1e9) + 1_000
        about = {"bytes": size, "memory bandwidth (GB/s)": size / ns}
        self._run("gpu_memcpy", f"Memcpy {way}", ns, stream, correlation, about)
        if blocks:
            self.wait("cudaStreamSynchronize", stream)

    def wait(self, name: str = "cudaDeviceSynchronize", stream: int | None = None) -> None:
        """Wait for a stream, or for all."""
        busy = self.free.get(stream, 0) if stream is not None else max(self.free.values(), default=0)
        self.call(name, 1_000, until=busy + RETURN_NS)

    def call(self, name: str, ns: int, until: int = 0) -> int:
        """A runtime call; gives its correlation."""
        correlation, begin = next(self.numbers), self.now
        self.now = max(self.now + ns, until)
        external = {"External id": self.above[-1]} if self.above else {}
        self._event("cuda_runtime", name, begin, self.now, {"correlation": correlation, **external})
        self._launched = begin
        self.now += 100
        return correlation

    def _run(self, category: str, name: str, ns: int, stream: int, correlation: int, about: Document) -> None:
        busy = self.free.get(stream)
        start = max(self._launched + LATENCY_NS, 0 if busy is None else busy + GAP_NS)
        self.free[stream] = start + ns
        args = {"device": 0, "context": 1, "stream": stream, "correlation": correlation, **about}
        args |= {"External id": self.above[-1]} if self.above else {}
        self._event(category, name, start, start + ns, args, pid=0, tid=stream)

    def _event(self, category: str, name: str, start: int, end: int, args: Document, **track: int) -> None:
        where = track or _HOST
        self.events.append({"ph": "X", "cat": category, "name": name, **where, "ts": start / 1000,
                            "dur": (end - start) / 1000, "args": args})  # fmt: skip

    # Operators, their kernels at a share of the peak.

    def mm(
        self, m: int, k: int, n: int, dtype: str = "c10::BFloat16", *, kernel: str = "", share: float = GOOD_PRODUCT
    ) -> None:
        """A matrix product."""
        peak = {"c10::BFloat16": TENSOR_FLOPS, "float": TF32_FLOPS}[dtype]
        kernel = (
            kernel
            or {
                "c10::BFloat16": "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_NNT",
                "float": "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_kernel",
            }[dtype]
        )
        with self.op("aten::mm", Tensor((m, k), dtype), Tensor((k, n), dtype)):
            self.kernel(kernel, _time(2 * m * k * n / (peak * share)))

    def bmm(self, batch: int, m: int, k: int, n: int) -> None:
        sides = Tensor((batch, m, k)), Tensor((batch, k, n))
        size, flops = 2 * batch * (m * k + k * n + m * n), 2 * batch * m * k * n
        with self.op("aten::bmm", *sides):
            self.kernel(
                "nvjet_tst_128x128_64x6_1x2_h_bz_coopA_NNN",
                _time(max(flops / (TENSOR_FLOPS * GOOD_PRODUCT), size / (BANDWIDTH * GOOD))),
            )

    def pointwise(self, name: str, *inputs: Tensor | str, share: float = GOOD, outputs: int = 1) -> None:
        """An operator of which each output element takes one of each input."""
        tensors = [one for one in inputs if isinstance(one, Tensor)]
        size = sum(one.bytes for one in tensors) + outputs * tensors[0].bytes
        functor = f"at::native::{name.split('::')[1]}_functor<c10::BFloat16>"
        kernel = f"vectorized_elementwise_kernel<4, {functor}, std::array<char*, {len(tensors) + 1}ul> >(int)"
        if any(one.strides for one in tensors):
            kernel = f"elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<{functor}> >(int)"
        with self.op(name, *inputs):
            self.kernel(f"void at::native::{kernel}", _time(size / (BANDWIDTH * share)))

    def softmax(self, scores: Tensor, share: float = GOOD) -> None:
        with self.op("aten::softmax", scores, "-1", ""), self.op("aten::_softmax", scores, "-1", "False"):
            self.kernel(
                "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float, c10::BFloat16, "
                "at::native::(anonymous namespace)::SoftMaxForwardEpilogue>(c10::BFloat16*, c10::BFloat16 const*, int)",
                _time(2 * scores.bytes / (BANDWIDTH * share)),
            )


def _time(seconds: float) -> float:
    """ns; a kernel takes at least 1.5 µs."""
    return max(1_500.0, seconds * 1e9)


@dataclass(frozen=True)
class GpuPair:
    """A change.

    Attributes:
        change: what was done, in a sentence.
        program: plays a step, of this number, before or after it.
        law: what takes the time that is gained.
        steps: how many.
    """

    change: str
    law: str
    program: Callable[[Machine, int, bool], None]
    steps: int = 3

    def played(self, *, after: bool) -> Machine:
        """The steps before or after the change, and a wait for the device at their end."""
        machine = Machine()
        with machine.frame("train.py(90): main"):
            for number in range(self.steps):
                with machine.step(number), machine.frame("train.py(50): step"):
                    self.program(machine, number, after)
            machine.wait()
        return machine


def _layer(machine: Machine, number: int = 0, rows: int = 8192, width: int = 4096) -> None:
    """A linear layer, its activation fused: 350 µs of the device for 20 µs of the host."""
    with machine.frame(f"nn.Module: Linear_{number}"):
        machine.mm(rows, width, width)


def well_tuned() -> Machine:
    """Steps without a problem: large products and fused attention, the host far ahead of a busy device."""
    return GpuPair("", "", lambda machine, number, after: _tuned(machine), 4).played(after=True)


def _tuned(machine: Machine) -> None:
    for layer in range(8):
        _layer(machine, layer)
        _fused_attention(machine)


def _launch_bound(machine: Machine, number: int, after: bool) -> None:
    small = Tensor((32, 512))
    functor = "at::native::add_functor<c10::BFloat16>"
    name = f"void at::native::vectorized_elementwise_kernel<4, {functor}, std::array<char*, 3ul> >(int, {functor})"
    product = "nvjet_tst_64x32_64x16_1x2_h_bz_splitK_NNT"
    with machine.frame("model.py(30): forward"):
        if after:
            machine.graph([(product, 1_500), (name, 1_500)] * 100)
        else:
            for _ in range(100):
                machine.mm(32, 512, 512, kernel=product)
                machine.pointwise("aten::add", small, small, "1")
    machine.wait("cudaStreamSynchronize", 7)


def _item(machine: Machine, number: int, after: bool) -> None:
    for layer in range(12):
        _layer(machine, layer, 2048)
        machine.work(30_000)
        if not after:
            with machine.frame("train.py(61): log"):
                scalar = Tensor(())
                with machine.op("aten::item", scalar), machine.op("aten::_local_scalar_dense", scalar):
                    machine.copy("DtoH (Device -> Pageable)", 2, 1e9, blocks=True)


def _late_start(machine: Machine, number: int, after: bool) -> None:
    if not number and not after:
        with machine.frame("train.py(20): build"), machine.frame("data.py(11): read"):
            for _ in range(20):
                with machine.op("aten::randn", "[4096]", host=1_000_000):
                    pass
    for layer in range(40):
        _layer(machine, layer)


def _fused_attention(machine: Machine, batch: int = 8, heads: int = 16, length: int = 2048, width: int = 64) -> None:
    q = Tensor((batch, heads, length, width))
    flops = 4 * batch * heads * length * length * width
    with machine.frame("nn.Module: Attention_0"), machine.op("aten::scaled_dot_product_attention", q, q, q), machine.op(
        "aten::_scaled_dot_product_flash_attention", q, q, q, "0.", "False"
    ), machine.op("aten::_flash_attention_forward", q, q, q):  # fmt: skip
        machine.kernel(
            "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, "
            "cutlass::bfloat16_t> >(pytorch_flash::Flash_fwd_params)",
            _time(flops / (TENSOR_FLOPS * 0.4)),
        )


def _attention(machine: Machine, number: int, after: bool) -> None:
    batch, heads, length, width = 8, 16, 2048, 64
    for layer in range(4):
        _layer(machine, layer)
        if after:
            _fused_attention(machine, batch, heads, length, width)
            continue
        scores = Tensor((batch, heads, length, length))
        flat = Tensor((batch * heads, length, length))
        with machine.frame("nn.Module: Attention_0"), machine.frame("model.py(44): forward"):
            machine.bmm(batch * heads, length, width, length)
            machine.pointwise("aten::div", flat, "8")
            machine.softmax(scores)
            machine.bmm(batch * heads, length, length, width)


def _chain(machine: Machine, number: int, after: bool) -> None:
    x = Tensor((8192, 8192))
    for layer in range(4):
        _layer(machine, layer)
        with machine.frame("model.py(71): gelu"):
            if after:
                machine.kernel("triton_poi_fused_add_mul_pow_tanh_0", _time(2 * x.bytes / (BANDWIDTH * GOOD)))
            else:
                for name in ("pow", "mul", "add", "mul", "tanh", "add", "mul", "mul"):
                    more = (x,) if name == "add" else ("0.5",)
                    machine.pointwise(f"aten::{name}", x, *more)


def _odd(machine: Machine, number: int, after: bool) -> None:
    for layer in range(6):
        _layer(machine, layer)
        with machine.frame("model.py(12): forward"):
            if after:
                machine.mm(3144, 3144, 4096)
            else:
                name = "cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x1_nn_align1>()"
                machine.mm(3137, 3137, 4096, kernel=name, share=0.06)


def _pageable(machine: Machine, number: int, after: bool) -> None:
    size = 64 << 20
    with machine.frame("train.py(33): to_device"):
        batch = Tensor((size // 4,), "float")
        with machine.op("aten::to", batch), machine.op("aten::copy_", batch, batch, "True" if after else "False"):
            if after:
                machine.copy("HtoD (Pinned -> Device)", size, 50e9, 13)
            else:
                machine.copy("HtoD (Pageable -> Device)", size, 8e9, blocks=True)
    for layer in range(20):
        _layer(machine, layer)


def _malloc(machine: Machine, number: int, after: bool) -> None:
    for layer in range(12):
        _layer(machine, layer)
        with machine.frame("model.py(90): forward"), machine.op("aten::empty", "[268435456]"):
            if not after:
                machine.wait("cudaFree")
                machine.call("cudaMalloc", 600_000)


def _bandwidth(machine: Machine, number: int, after: bool) -> None:
    x = Tensor((8192, 8192))
    other = Tensor((8192, 8192), strides=(1, 8192))
    for layer in range(12):
        _layer(machine, layer)
        slow = not after and layer % 4 == 3
        with machine.frame(f"model.py({99 if layer % 4 == 3 else 98}): forward"):
            machine.pointwise("aten::add", x, other if slow else x, "1", share=0.1 if slow else GOOD)


def _layout(machine: Machine, number: int, after: bool) -> None:
    """cuDNN changes the layout before and after each convolution."""
    x, weight = Tensor((64, 256, 56, 56), "c10::Half"), Tensor((256, 256, 3, 3), "c10::Half")
    if after:
        x = Tensor(x.shape, x.dtype, (256 * 56 * 56, 1, 256 * 56, 256))
    change = _time(2 * x.bytes / (BANDWIDTH * 0.6))
    for layer in range(8):
        with machine.frame(f"nn.Module: Conv2d_{layer}"), machine.op(
            "aten::conv2d", x, weight, "", "[1, 1]", "[1, 1]", "[1, 1]", "1"
        ), machine.op("aten::cudnn_convolution", x, weight, "[1, 1]", "[1, 1]", "[1, 1]", "1"):  # fmt: skip
            if not after:
                machine.kernel(
                    "void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float, false>", change
                )
            flops = 2 * 64 * 56 * 56 * 256 * 256 * 9
            machine.kernel(
                "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x256x64_execute_kernel",
                _time(flops / (TENSOR_FLOPS * 0.7)),
            )
            if not after:
                machine.kernel("void cudnn::engines_precompiled::nhwcToNchwKernel<__half, __half, float, true>", change)


def _tf32(machine: Machine, number: int, after: bool) -> None:
    for layer in range(8):
        with machine.frame(f"nn.Module: Linear_{layer}"):
            if after:
                machine.mm(4096, 4096, 4096, "float")
            else:
                share = PLAIN_FLOPS * 0.8 / TF32_FLOPS
                machine.mm(4096, 4096, 4096, "float", kernel="ampere_sgemm_128x64_nn", share=share)


GPU_PAIRS: dict[str, GpuPair] = {
    "launch_bound": GpuPair(
        "200 small kernels launched one by one; as one graph",
        "a launch takes the host 10.1 us, a kernel 1.5 us, a graph its kernels and gaps of 1 us", _launch_bound,
    ),
    "item_each_step": GpuPair(
        "a value read after each layer; none", "a read waits for the device, which idles until the next launch", _item,
    ),
    "late_start": GpuPair(
        "20 ms of host work before the first kernel; none", "the device waits for it", _late_start,
    ),
    "eager_attention": GpuPair(
        "attention in four operators; a fused kernel",
        "each takes its FLOPs or bytes at a good share of the peak, the fused one its FLOPs at 40%", _attention,
    ),
    "elementwise_chain": GpuPair(
        "eight elementwise kernels; one", "each reads and writes all at 85% of the bandwidth", _chain,
    ),
    "odd_products": GpuPair(
        "products of 3137, an odd size, at 6% of the peak; of 3144 at 65%", "FLOPs at these shares", _odd,
    ),
    "pageable_copies": GpuPair(
        "64 MiB from pageable memory at 8 GB/s, the host waits; from pinned memory at 50 GB/s on another stream",
        "bytes at these bandwidths; the step waits for the first alone", _pageable,
    ),
    "malloc_in_step": GpuPair(
        "cudaFree, which waits for the device, and cudaMalloc in each layer; none", "600 us a cudaMalloc", _malloc,
    ),
    "slow_bandwidth": GpuPair(
        "one addition in four at 10% of the bandwidth, its second input transposed; all at 85%", "bytes", _bandwidth,
    ),
    "layout_changes": GpuPair(
        "a change of layout before and after each convolution; channels last", "bytes at 60% of the bandwidth", _layout,
    ),
    "float32_products": GpuPair(
        "products in float32 at 80% of its peak; in TF32 at 65% of that", "FLOPs at these shares", _tf32,
    ),
}  # fmt: skip
"""By name; what was before and what is after the semicolon."""
