"""Run the programs of `gpu_session.py`. The programs are training steps, and changes to training steps, that run on a
GPU or, at small sizes, on a CPU.

    python benchmarks/gpu_programs.py about                 # describe the machine as JSON
    python benchmarks/gpu_programs.py amp --steps 8         # run a program that contains no etplus code
    python benchmarks/gpu_programs.py item --after          # run the step after the change
    python benchmarks/gpu_programs.py item --time           # time both steps without a profiler and print JSON
    python benchmarks/gpu_programs.py capture --out FOLDER  # record a graph capture; needs etplus

`--device cpu --small` selects a dry run. PyTorch is required. The programs from programs.py and `capture` also require
etplus.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.profiler import record_function
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))

from record_origin import Truth

FAMILIES = ("vit", "resnet", "gpt_randint", "recommender")
Step = Callable[[], Any]


@dataclass(frozen=True)
class Machine:
    """The device that runs the programs. If `small` is true, this is a dry run with small sizes."""

    device: str
    small: bool

    @property
    def cuda(self) -> bool:
        return self.device.startswith("cuda")

    def size(self, large: int, small: int) -> int:
        """Return `large`, or `small` in a dry run."""
        return small if self.small else large

    def synchronize(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()


class Block(nn.Module):  # type: ignore[misc, unused-ignore]
    """A transformer block. If `fused` is false, its attention consists of separate operators."""

    def __init__(self, width: int, *, fused: bool = True) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.act, self.down = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        self.fused = fused

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, 8, width // 8).permute(2, 0, 3, 1, 4)
        if self.fused:
            mixed = functional.scaled_dot_product_attention(q, k, v)
        else:
            mixed = (q @ k.transpose(-2, -1) / (width // 8) ** 0.5).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(self.act(self.up(x)))


def blocks(machine: Machine, count: int = 2, **options: Any) -> nn.Module:
    """Return a model with transformer blocks and an output layer."""
    width = machine.size(512, 32)
    return nn.Sequential(*(Block(width, **options) for _ in range(count)), nn.Linear(width, 16)).to(machine.device)


def tokens(machine: Machine) -> torch.Tensor:
    """Return a batch for `blocks`."""
    return torch.randn(machine.size(8, 2), machine.size(512, 16), machine.size(512, 32), device=machine.device)


# Each program runs optimizer steps, or forward passes if it has no optimizer. `etplus record` detects these steps.


def train(machine: Machine, steps: int) -> None:
    model = with_truth(blocks(machine))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(steps):
        optimizer.zero_grad()
        model(tokens(machine)).square().mean().backward()
        optimizer.step()


def amp(machine: Machine, steps: int) -> None:
    """Train in mixed precision, with loss scaling, batches from pinned memory, and the same hooks as `train`."""
    model = with_truth(blocks(machine))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler(machine.device, enabled=machine.cuda)
    kind = torch.float16 if machine.cuda else torch.bfloat16
    host = tokens(machine).cpu()
    host = host.pin_memory() if machine.cuda else host
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast(machine.device, kind):
            loss = model(host.to(machine.device, non_blocking=True)).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def compiled(machine: Machine, steps: int) -> None:
    """Train a compiled model."""
    trained(machine, torch.compile(blocks(machine)), steps)


def graphs(machine: Machine, steps: int) -> None:
    """Capture forward and backward passes into CUDA graphs, and then train."""
    model = blocks(machine)
    if machine.cuda:
        model = torch.cuda.make_graphed_callables(model, (tokens(machine),))
    trained(machine, model, steps)


def ddp(machine: Machine, steps: int) -> None:
    """Train with DistributedDataParallel on a single rank."""
    with group(machine):
        trained(machine, nn.parallel.DistributedDataParallel(blocks(machine)), steps)


def fsdp(machine: Machine, steps: int) -> None:
    """Train with FSDP (`fully_shard`) on a single rank."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    with group(machine):
        mesh = init_device_mesh(machine.device, (1,))
        model = blocks(machine)
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        trained(machine, model, steps)


def inference(machine: Machine, steps: int) -> None:
    """Run forward passes in half precision."""
    model = with_truth(blocks(machine)).to(torch.float16 if machine.cuda else torch.float32).eval()
    with torch.inference_mode():
        for _ in range(steps):
            model(tokens(machine).to(next(model.parameters()).dtype))


def trained(machine: Machine, model: nn.Module, steps: int) -> None:
    run = training_step(model, tokens(machine))
    for _ in range(steps):
        run()


@contextlib.contextmanager
def group(machine: Machine) -> Iterator[None]:
    """Create a process group with a single rank for the duration of the context."""
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("nccl" if machine.cuda else "gloo", store=store, rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def with_truth(model: nn.Module) -> nn.Module:
    """Put an annotation `truth: MODULE` around the forward pass of every module, and around each of its backward
    nodes."""
    truth = Truth(model)
    opened: list[Any] = []

    def enter(module: nn.Module, _args: Any) -> None:
        opened.append(record_function(f"truth: {truth.name_of(module)}"))
        opened[-1].__enter__()

    def leave(_module: nn.Module, _args: Any, _output: Any) -> None:
        opened.pop().__exit__(None, None, None)

    for module in model.modules():
        module.register_forward_pre_hook(enter)
        module.register_forward_hook(leave, always_call=True)
    return model


PROGRAMS: dict[str, Callable[[Machine, int], None]] = {
    program.__name__: program for program in (train, amp, compiled, graphs, ddp, fsdp, inference)
}


def family(name: str, machine: Machine, steps: int) -> None:
    """Run a program from programs.py on this device."""
    from programs import PROGRAMS as FAMILY_PROGRAMS
    from programs import Sizes

    torch.set_default_device(machine.device)
    size = Sizes(machine.size(32, 4), machine.size(96, 8), machine.size(512, 32), steps)
    for _ in FAMILY_PROGRAMS[name](size):
        pass


def capture(machine: Machine, out: Path, steps: int) -> None:
    """Capture a graph while the ET observer and the profiler are active. Then record its replays. A CPU runs the model
    without a graph."""
    from etplus.recording.record import record

    model, x = with_truth(blocks(machine)).eval(), tokens(machine)
    with torch.no_grad():
        side = torch.cuda.Stream() if machine.cuda else None
        with torch.cuda.stream(side):  # `torch.cuda.stream(None)` selects no stream.
            model(x)  # Let the libraries initialize before the capture.
        machine.synchronize()
        with record(out, wait=0, warmup=1, active=steps, graphs=True, with_stack=True, link=False) as recording:
            graph = torch.cuda.CUDAGraph() if machine.cuda else None
            if graph is None:
                model(x)
            else:
                with torch.cuda.graph(graph):
                    model(x)
            recording.step()
            while not recording.finished:
                model(x) if graph is None else graph.replay()
                machine.synchronize()
                recording.step()


# Each of these functions returns a training step from before or from after a change.


def training_step(model: nn.Module, x: torch.Tensor, optimizer: torch.optim.Optimizer | None = None) -> Step:
    """Return a training step of a model with forward pass, backward pass and optimizer."""
    update = optimizer or torch.optim.SGD(model.parameters(), 1e-4, foreach=True)

    def step() -> torch.Tensor:
        update.zero_grad()
        loss: torch.Tensor = model(x).float().square().mean()
        loss.backward()
        update.step()
        return loss.detach()

    return step


def item(after: bool, machine: Machine) -> Step:
    """Return a step that reads the loss eight times. After the change, the step does not read the loss."""
    run = training_step(blocks(machine, 1), tokens(machine))

    def step() -> None:
        loss = run()
        if not after:
            for _ in range(8):
                loss.item()

    return step


def attention(after: bool, machine: Machine) -> Step:
    width, length = machine.size(512, 32), machine.size(2048, 64)
    x = torch.randn(machine.size(4, 1), length, width, device=machine.device)
    return training_step(Block(width, fused=after).to(machine.device), x)


class Formula(nn.Module):  # type: ignore[misc, unused-ignore]
    """Compute GELU from its formula, and then scale and shift the result."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = 0.7978845608 * (x + 0.044715 * x * x * x)
        return 0.5 * x * (1.0 + torch.tanh(inner)) * self.scale + 0.1


def elementwise(after: bool, machine: Machine) -> Step:
    width = machine.size(4096, 64)
    model = Formula(width).to(machine.device)
    return training_step(torch.compile(model) if after else model, torch.randn(width, width, device=machine.device))


def tf32(after: bool, machine: Machine) -> Step:
    width = machine.size(4096, 64)
    run = training_step(nn.Linear(width, width).to(machine.device), torch.randn(width, width, device=machine.device))

    def step() -> None:
        torch.set_float32_matmul_precision("high" if after else "highest")
        run()

    return step


def pageable(after: bool, machine: Machine) -> Step:
    width = machine.size(4096, 64)
    model, host = nn.Linear(width, 64).to(machine.device), torch.randn(width, width)
    host = host.pin_memory() if after and machine.cuda else host
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)

    def step() -> None:
        optimizer.zero_grad()
        model(host.to(machine.device, non_blocking=after)).square().mean().backward()
        optimizer.step()

    return step


def optimizer(after: bool, machine: Machine) -> Step:
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(machine.size(24, 4)))).to(machine.device)
    options = {"fused": True} if after else {"foreach": False}
    adam = torch.optim.Adam(model.parameters(), **options)
    return training_step(model, torch.randn(64, 64, device=machine.device), adam)


def launches(after: bool, machine: Machine) -> Step:
    """Return a step that launches many small kernels. After the change, CUDA graphs launch them."""
    layers = [layer for _ in range(machine.size(32, 4)) for layer in (nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU())]
    model, x = nn.Sequential(*layers).to(machine.device), torch.randn(64, 64, device=machine.device)
    if after and machine.cuda:
        model = torch.cuda.make_graphed_callables(model, (x,))
    return training_step(model, x)


def double(after: bool, machine: Machine) -> Step:
    width, kind = machine.size(2048, 64), torch.float32 if after else torch.float64
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)).to(machine.device, kind)
    return training_step(model, torch.randn(width, width, device=machine.device, dtype=kind))


class Recomputing(nn.Module):  # type: ignore[misc, unused-ignore]
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.model:
            x = checkpoint(block, x, use_reentrant=False)
        return x


def recomputation(after: bool, machine: Machine) -> Step:
    model = blocks(machine)
    return training_step(model if after else Recomputing(model), tokens(machine))


def layout(after: bool, machine: Machine) -> Step:
    """Return a step with half-precision convolutions in channels-first layout, or in channels-last layout after the
    change."""
    width, kind = machine.size(128, 8), torch.float16 if machine.cuda else torch.float32
    model = nn.Sequential(*(nn.Conv2d(width, width, 3, padding=1) for _ in range(4))).to(machine.device, kind)
    x = torch.randn(machine.size(32, 2), width, machine.size(56, 8), machine.size(56, 8), device=machine.device)
    x = x.to(kind)
    if after:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    return training_step(model, x)


def odd(after: bool, machine: Machine) -> Step:
    outputs, kind = machine.size(8192, 64), torch.float16 if machine.cuda else torch.float32
    width = machine.size(1024, 32)
    model = nn.Linear(width, outputs if after else outputs - 3).to(machine.device, kind)
    return training_step(model, torch.randn(machine.size(8192, 64), width, device=machine.device, dtype=kind))


CHANGES: dict[str, Callable[[bool, Machine], Step]] = {
    change.__name__: change
    for change in (
        item, attention, elementwise, tf32, pageable, optimizer, launches, double, recomputation, layout, odd,
    )
}  # fmt: skip
_ROUNDS, _BLOCK = 20, 10


def timed(change: Callable[[bool, Machine], Step], machine: Machine) -> dict[str, float]:
    """Return the step times in ns before and after a change. Each time is the 10th percentile over blocks of steps that
    alternate between both versions."""
    steps = [change(False, machine), change(True, machine)]
    rounds, block = (3, 1) if machine.small else (_ROUNDS, _BLOCK)
    taken: list[list[float]] = [[], []]
    for _ in range(rounds + 2):
        for step, times in zip(steps, taken, strict=True):
            machine.synchronize()
            begin = time.perf_counter_ns()
            for _ in range(block):
                step()
            machine.synchronize()
            times.append((time.perf_counter_ns() - begin) / block)
    before, after = (sorted(times[2:])[len(times[2:]) // 10] for times in taken)
    return {"before_ns": before, "after_ns": after}


def about(machine: Machine) -> dict[str, Any]:
    """Describe PyTorch, the device and the processor."""
    found: dict[str, Any] = {"torch": torch.__version__, "python": platform.python_version(), "cores": os.cpu_count()}
    if machine.cuda:
        properties = torch.cuda.get_device_properties(0)
        found |= {
            "device": properties.name, "memory_bytes": properties.total_memory, "cuda": torch.version.cuda,
            "multiprocessors": properties.multi_processor_count, "hip": torch.version.hip,
        }  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ["about", "capture", *PROGRAMS, *CHANGES, *FAMILIES]
    parser.add_argument("program", choices=names, metavar="PROGRAM", help=", ".join(names))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--after", action="store_true")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    machine = Machine(options.device, options.small)
    torch.manual_seed(0)
    name = options.program
    if name == "about":
        print(json.dumps(about(machine)))
    elif name == "capture":
        capture(machine, options.out, 3)
    elif name in CHANGES and options.time:
        print(json.dumps(timed(CHANGES[name], machine)))
    elif name in CHANGES:
        step = CHANGES[name](options.after, machine)
        for _ in range(options.steps):
            step()
    else:
        run = PROGRAMS[name] if name in PROGRAMS else functools.partial(family, name)
        run(machine, options.steps)
    machine.synchronize()


if __name__ == "__main__":
    main()
