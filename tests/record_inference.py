"""Record two prefill steps of a small model on one rank or on tensor-parallel ranks: the truth for `reshard --tp`.

    torchrun --nproc-per-node 1 tests/record_inference.py tests/golden/inference/single1
    torchrun --nproc-per-node 2 tests/record_inference.py tests/golden/inference/tp2

Writes FOLDER.et.json.gz and FOLDER.kineto.json.gz of rank 0. The blocks are those of today's language models: grouped
heads, a gated MLP; the annotations are vLLM's. Recorded with PyTorch 2.13.0 on the CPU, Gloo, one thread.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, record_function

WIDTH, HEAD, HEADS, KV_HEADS, INNER, LAYERS = 128, 16, 8, 4, 384, 2
BATCH, TOKENS = 2, 24


class Block(nn.Module):
    """Attention with grouped heads and a gated MLP, each around a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.other_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.o = nn.Linear(WIDTH, HEADS * HEAD, bias=False), nn.Linear(HEADS * HEAD, WIDTH, bias=False)
        self.k, self.v = (nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        q, k, v = (
            part(y).view(BATCH, TOKENS, -1, HEAD).transpose(1, 2).contiguous() for part in (self.q, self.k, self.v)
        )
        a = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(a.transpose(1, 2).flatten(2))
        z = self.other_norm(x)
        return x + self.down(nn.functional.silu(self.gate(z)) * self.up(z))


def main(target: Path) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    net = nn.Sequential(*(Block() for _ in range(LAYERS)))
    if (world := dist.get_world_size()) > 1:
        plan = {name: ColwiseParallel() for name in ("q", "k", "v", "gate", "up")}
        for block in net:
            parallelize_module(
                block, init_device_mesh("cpu", (world,)), plan | dict.fromkeys(["o", "down"], RowwiseParallel())
            )
    x = torch.randn(BATCH, TOKENS, WIDTH)
    q, qq = BATCH * TOKENS, BATCH * TOKENS**2
    name = f"execute_{q}_context_{BATCH}(sq{q}sk{q}sqsq{qq}sqsk{qq})_generation_0(sq0sk0sqsq0sqsk0)"
    et, kineto = (str(target.with_name(f"{target.name}.{dist.get_rank()}.{kind}.json")) for kind in ("et", "kineto"))
    with torch.no_grad():
        net(x)
        observer = ExecutionTraceObserver().register_callback(et)
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True, execution_trace_observer=observer) as done:
            for _ in range(2):
                with record_function(name):
                    net(x)
    done.export_chrome_trace(kineto)
    if dist.get_rank() == 0:
        for file, kind in ((et, "et"), (kineto, "kineto")):
            packed = target.with_name(f"{target.name}.{kind}.json.gz")
            packed.write_bytes(gzip.compress(Path(file).read_bytes(), 9, mtime=0))
    dist.barrier()
    Path(et).unlink(), Path(kineto).unlink()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
