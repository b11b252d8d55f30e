"""Generate steps on one GPU and jobs with four ranks, before and after a change, for `findings.py` and its test.

The gain of a change is the difference between the total times of the two traces. Changes to kernels themselves are in
`tests/analysis/findings/test_device.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from made_jobs import Job, Play, Rank, ddp
from made_traces import FLOPS, MadeDevice
from simulator import Network

Program = Callable[[MadeDevice, bool], None]
"""Runs one step of a program, either before or after the change."""


def played(program: Program, *, after: bool, steps: int = 3) -> MadeDevice:
    """Run some steps of the version before or after the change. Wait for the device at the end."""
    device = MadeDevice()
    with device.frame("train.py(90): main"):
        for number in range(steps):
            step = device.inside(f"ProfilerStep#{number}", "user_annotation")
            with step, device.frame("train.py(50): step"):
                program(device, after)
        device.call("cudaDeviceSynchronize", 2, waits=True)
    return device


def _layer(device: MadeDevice, number: int = 0, rows: int = 8192, width: int = 4096) -> None:
    """Run a linear layer with a fused activation. The layer takes 350 µs on the device and 20 µs on the host."""
    with device.frame(f"nn.Module: Linear_{number}"):
        device.linear(rows, width, width)


def well_tuned() -> MadeDevice:
    """Return steps without performance problems: large GEMMs, fused attention, and a host far ahead of a busy
    device."""

    def step(device: MadeDevice, _: bool) -> None:
        shape, took = (8, 16, 2048, 64), 4 * 8 * 16 * 2048 * 2048 * 64 / FLOPS / 0.4 * 1e6
        for number in range(8):
            _layer(device, number)
            with device.frame("nn.Module: Attention_0"):
                device.op("aten::_scaled_dot_product_flash_attention", [shape] * 3, ("flash_fwd_kernel", took))

    return played(step, after=True, steps=4)


def _launch_bound(device: MadeDevice, after: bool) -> None:
    """Launch 200 small kernels of 1.5 µs each. After the change, launch them as one graph."""
    product, add = "nvjet_tst_64x32_64x16_1x2_h_bz_splitK_NNT", "void at::native::add_functor<c10::BFloat16>(int)"
    with device.frame("model.py(30): forward"):
        if after:
            device.launch(*[(product, 1.5), (add, 1.5)] * 100, call="cudaGraphLaunch", takes=10)
        for _ in range(0 if after else 100):
            device.op("aten::mm", [(32, 512), (512, 512)], (product, 1.5))
            device.op("aten::add", [(32, 512)] * 2, (add, 1.5))
    device.call("cudaStreamSynchronize", 2, waits=True)


def _item(device: MadeDevice, after: bool) -> None:
    """Read a value after each layer, so that the host waits for the device. After the change, read no values."""
    for layer in range(12):
        _layer(device, layer, 2048)
        device.now += 30
        if not after:
            scalar = device.inside("aten::_local_scalar_dense")
            with device.frame("train.py(61): log"), device.inside("aten::item"), scalar:
                device.copy("DtoH (Device -> Pageable)", 2, 1e9, blocks=True)


def _late_start(device: MadeDevice, after: bool) -> None:
    """Do 20 ms of host work before the first kernel. After the change, skip this work."""
    if not after and not any(event["cat"] == "kernel" for event in device.events):
        with device.frame("train.py(20): build"), device.frame("data.py(11): read"):
            for _ in range(20):
                with device.inside("aten::randn"):
                    device.now += 1000
    for layer in range(40):
        _layer(device, layer)


def _pageable(device: MadeDevice, after: bool) -> None:
    """Copy 64 MiB from pageable memory at 8 GB/s. After the change, copy from pinned memory at 50 GB/s on another
    stream."""
    size = 64 << 20
    with device.frame("train.py(33): to_device"), device.inside("aten::to"), device.inside("aten::copy_"):
        if after:
            device.stream = 13
            device.copy("HtoD (Pinned -> Device)", size, 50e9)
            device.stream = 7
        else:
            device.copy("HtoD (Pageable -> Device)", size, 8e9, blocks=True)
    for layer in range(20):
        _layer(device, layer)


GPU_PAIRS: dict[str, Program] = {
    "launch_bound": _launch_bound, "item_each_step": _item, "late_start": _late_start, "pageable_copies": _pageable,
}  # fmt: skip

NETWORK = Network(bandwidth=50, latency=8_000)
"""The bandwidth is 50 GB/s, and each ring step has a latency of 8 µs."""


def _pair(before: dict[str, Any], after: dict[str, Any], late: int | None = None) -> dict[bool, Job]:
    """Map False to a job before a change, and True to the job after it. Before the change, the kernels of rank `late`
    are slower."""

    def program(options: dict[str, Any], slower: float, rank: Rank) -> Play:
        return ddp(rank, bucket=1, slower=slower if rank.rank == late else 1.0, **options)

    return {False: Job(partial(program, before, 1.4), 4), True: Job(partial(program, after, 1.0), 4)}


JOB_PAIRS: dict[str, dict[bool, Job]] = {
    # It takes 0.3 ms to reduce the 8 MiB of a layer. After the change, the backward pass overlaps the reductions.
    "exposed_reduce": _pair({"overlapped": False}, {}),
    # Each message takes six steps of 8 µs. Each layer sends 24 messages before the change, and one after it.
    "small_messages": _pair(
        {"overlapped": False, "size": 3 << 18, "messages": 24}, {"overlapped": False, "size": 3 << 18}
    ),
    # All ranks wait for rank 2, because its kernels take 1.4 times as long.
    "straggler": _pair({"size": 4 << 20}, {"size": 4 << 20}, late=2),
}
"""Maps each kind of problem to the job before the change (False) and after it (True)."""
