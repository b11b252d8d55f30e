"""Random programs of one device or two, the same for the same seed, with durations and sizes at limits of findings."""

import random
from collections.abc import Callable
from contextlib import nullcontext

from etplus.trace.trace import Trace
from made_traces import H100, POINTWISE, MadeDevice

_US = (1.0, 3.0, 5.0, 10.0, 20.0, 20.0, 100.0, 200.0, 1000.0)
_SHAPES = ((1,), (2,), (16384,), (32768,), (64, 1000), (4096, 4096), (8192, 4096), (8192, 8192))
_POINTWISE = ("aten::mul", "aten::add", "aten::sigmoid", "aten::add_", "aten::sum", "aten::native_layer_norm")
_COPIES = ("aten::copy_", "aten::clone", "aten::_to_copy", "aten::cat", "aten::_local_scalar_dense")
_MODULES = ("Linear", "Block", "Block", "Norm")
_CALLS = ("cudaMalloc", "cudaFree", "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaHostAlloc")


class _Program:
    def __init__(self, seed: int, rank: int | None) -> None:
        rng = self.rng = random.Random(seed)
        names = (H100["name"], H100["name"], "NVIDIA A100-SXM4-80GB", "Nobody's GPU", "NVIDIA B200")
        properties = {**H100, "name": names[4 if seed in (10, 11) else seed % 4], "computeMajor": 8 + (seed % 4 < 2)}
        self.device = MadeDevice(rng.choice([2.0, 6.0]), rank=rank, shapes=seed % 5 != 4, properties=properties)
        self.number, self.open = 0, list[tuple[int, str]]()
        if seed % 2:
            self.device.launch("of no operator", 5.0)

    def run(self) -> Trace:
        parts = [self._product, self._elements, self._copy, self._loop, self._call, self._attention]
        chosen = self.rng.sample([*parts, self._memory, self._backward, self._same], 4)
        chosen[0]()
        for step in range(self.rng.choice([0, 2, 3])):
            with self.device.inside(f"ProfilerStep#{step}", "user_annotation"), self.device.frame("train.py(9): step"):
                for part in [*chosen, self.rng.choice(chosen)]:
                    self._placed(part)
        for part in parts:
            self._placed(part)
        self._graph()
        if self.rng.random() < 0.4:
            self._same()
        with self.device.inside("Optimizer.step#SGD.step", "user_annotation"):
            self._loop()
        self.device.call("cudaDeviceSynchronize", 2, waits=True)
        return self.device.trace()

    def _placed(self, part: Callable[[], None]) -> None:
        self.device.stream = self.rng.choice([7, 7, 7, 9])
        name = f"{self.rng.choice(_MODULES)}_{self.rng.randrange(3)}"
        places = (nullcontext(), self.device.frame(f"nn.Module: {name}"), self.device.frame("net.py(5): forward"),
                  self.device.inside(name, "user_annotation"))  # fmt: skip
        with self.rng.choice(places):
            for _ in range(self.rng.choice([1, 1, 2])):
                part()
        self.device.now += self.rng.choice([0.0, 0.0, 10.0, 500.0])

    def _op(self, name: str, shapes: list[tuple[int, ...]], kernel: str, us: float | None = None) -> None:
        self.number += 1
        self.open.append((self.number, name))
        dtype = self.rng.choice(["bf16", "bf16", "f32", "f64"])
        us = us or self.rng.choice(_US)
        more = [(f"{kernel}_{k}", self.rng.choice(_US)) for k in range(self.rng.choice([0, 0, 0, 1, 2]))]
        self.device.op(name, shapes, (kernel, us), *more, dtype=dtype, **{"Sequence number": self.number})

    def _product(self) -> None:
        m, n, k = self.rng.choice(
            [(4096, 4096, 4096), (4096, 4097, 768), (8, 16, 64), (64, 4096, 4096), (0, 8192, 8192)]
        )
        kernels = ("nvjet_hsh_128x256", "cutlass_80_tensorop_bf16_s16816gemm_align1", "ampere_sgemm_128x128_nn")
        self._op(*self.rng.choice([("aten::mm", [(m, k), (k, n)]), ("aten::addmm", [(n,), (m, k), (k, n)])]),
                 self.rng.choice(kernels))  # fmt: skip

    def _elements(self) -> None:
        shape = self.rng.choice(_SHAPES)
        for name in self.rng.sample(_POINTWISE, self.rng.choice([1, 2, 3])):
            self._op(name, [shape] * self.rng.choice([1, 2]), POINTWISE.format(name[6:]))

    def _copy(self) -> None:
        name, shape = self.rng.choice(_COPIES), self.rng.choice(_SHAPES)
        with self.device.inside(self.rng.choice(["aten::contiguous", "aten::to", "Redistribute"])):
            self._op(name, [shape] * 2, POINTWISE.format("direct_copy_kernel_cuda"))
        if name == _COPIES[-1]:
            self.device.copy("DtoH (Device -> Pageable)", self.rng.choice([2, 1 << 20]), 1e9, blocks=True)

    def _loop(self) -> None:
        for _ in range(self.rng.choice([3, 4, 8])):
            for name in ("aten::mul", "aten::add"):
                self._op(name, [(64,)] * 2, POINTWISE.format(name[6:]), 1.0)

    def _call(self) -> None:
        self.device.call(self.rng.choice(_CALLS), self.rng.choice(_US), waits=self.rng.random() < 0.5)

    def _attention(self) -> None:
        b, s, d = self.rng.choice([(1, 64, 64), (8, 256, 64), (8, 256, 32)])
        self._op("aten::bmm", [(b, s, d), (b, d, s)], "nvjet_hsh_128x256")
        for name in self.rng.sample(["aten::mul", "aten::add", "aten::copy_"], self.rng.randrange(3)):
            self._op(name, [(b, s, s)], POINTWISE.format("F"))
        self._op("aten::_softmax", [(b, s, s)], "cunn_SoftMaxForward<8>")
        self._op("aten::bmm", [(b, s, s), (b, s, d)], "nvjet_hsh_64x64")
        self._op("aten::cudnn_convolution", [(8, 4, 9, 9), (4, 4, 3, 3)], "cudnn::ops::nchwToNhwcKernel<float>")

    def _graph(self) -> None:
        modules = ["layers.0.mlp", "layers.1.mlp", "layers.1.attention", "head", ""]
        self.device.launch(*[("gemm", self.rng.choice(_US)) for _ in modules], call="cudaGraphLaunch", takes=10)
        for number, (made, module) in enumerate(zip(self.device.events[-len(modules) :], modules, strict=True), 1):
            made["args"] |= {"graph node id": number} | ({"module_fqn": module} if module else {})

    def _memory(self) -> None:
        whole = H100["totalGlobalMem"]
        with self.device.inside("aten::empty"):
            self.device.memory(*self.rng.choice([(whole // 2, whole), (whole, whole), (4096, whole // 2)]), 4096, 8192)

    def _backward(self) -> None:
        for number, name in self.open[-3:][::-1]:
            with self.device.inside(f"{name[6:].title()}Backward0", **{"Sequence number": number, "Fwd thread id": 1}):
                self._op(self.rng.choice(["aten::mm", "aten::mul"]), [(64, 64)] * 2, "backward_kernel")

    def _same(self) -> None:
        for columns in range(8192, 8196):
            for us in (100.0, 100.0, 100.0, 200.0, 400.0, 400.0, 400.0):
                self.device.op("aten::tanh", [(8192, columns)], (POINTWISE.format("Tanh"), us))


def random_programs(seed: int, *, after: bool) -> list[Trace]:
    """The traces of one device, or of two ranks."""
    ranks = [0, 1] if seed % 4 == 3 else [None]
    return [_Program(seed + 10 * after + 100 * (rank or 0), rank).run() for rank in ranks]
