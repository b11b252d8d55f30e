#!/usr/bin/env python3
"""Print the shares of GPU time for which FLOPs, and for which FLOPs or bytes, are known.

usage: python benchmarks/work_coverage.py [FILE[+CAPTURE...]...]

The script prints three shares of the total kernel time. Copies and memsets are excluded, and overlapping kernels are
counted separately. The shares are the time of kernels

- with known FLOPs,
- with known FLOPs or bytes (operators without FLOPs still move bytes),
- with an operator that has known FLOPs or bytes, even if these are assigned to another of its kernels (for example, if
  the kernel only reduces the partial results of a GEMM).

By default, the script reads the traces of serving engines next to the repository, and replayed graphs with their
captures. The script prints one line per trace, followed by the longest kernels with neither known FLOPs nor known
bytes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from etplus.analysis.event_work import work_of_events
from etplus.converters.open import load
from etplus.linker.captured_graphs import link_captured_graphs
from etplus.linker.pipeline import read_captures
from etplus.trace.kernel_names import kernel_label
from etplus.trace.trace import Trace
from etplus.trace.unattached import with_unattached

TRACES = Path(__file__).resolve().parents[1].parent / "shared" / "traces"
SERVING = {
    "sglang_decode": ("graph-capture/sglang_decode.replay.json.gz", "graph-capture/sglang_decode.capture.json.gz"),
    "sglang_prefilldecode": ("serving/sglang_prefilldecode.json.gz",),
    "vllm_piecewise": ("graph-capture/vllm_piecewise.replay.json.gz", "graph-capture/vllm_piecewise.capture.json.gz"),
}
SHOWN = 5


class Coverage(NamedTuple):
    """Shares of kernel time, and the longest kernels with neither known FLOPs nor known bytes."""

    flops: float
    flops_or_bytes: float
    operators: float
    longest: list[tuple[str, float]]


def read(file: str, *captures: str) -> Trace:
    """Read a trace. Link its replayed graphs to their captures."""
    trace = load(file)
    return link_captured_graphs(trace, read_captures(list(captures), progress=False)) if captures else trace


def coverage(trace: Trace) -> Coverage:
    trace = with_unattached(trace)
    work, gpu = work_of_events(trace), trace.gpu
    kernels = ~trace.is_copy
    total = max(int(gpu.dur[kernels].sum()), 1)

    def share(known: np.ndarray) -> float:
        return float(gpu.dur[kernels & known].sum() / total)

    own = (work.flops >= 0) | (work.bytes >= 0)
    unknown: dict[int, int] = {}
    for name, ns in zip(gpu.name[kernels & ~own].tolist(), gpu.dur[kernels & ~own].tolist(), strict=True):
        unknown[name] = unknown.get(name, 0) + ns
    longest = sorted(unknown.items(), key=lambda item: -item[1])[:SHOWN]
    return Coverage(
        share(work.flops >= 0), share(own), share(own | work.counted),
        [(kernel_label(trace.names[name]), ns / total) for name, ns in longest],
    )  # fmt: skip


def main() -> None:
    named = {Path(text.split("+")[0]).name: tuple(text.split("+")) for text in sys.argv[1:]}
    files = named or {name: tuple(str(TRACES / file) for file in parts) for name, parts in SERVING.items()}
    print(f"{'trace':<32} {'FLOPs':>8} {'or bytes':>9} {'operators':>10}")
    for name, parts in files.items():
        found = coverage(read(*parts))
        print(f"{name[:32]:<32} {found.flops:>8.2%} {found.flops_or_bytes:>9.2%} {found.operators:>10.2%}")
        for kernel, share in found.longest:
            print(f"    without: {share:7.3%}  {kernel[:90]}")


if __name__ == "__main__":
    main()
