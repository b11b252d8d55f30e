"""Describe compiler-generated kernels with the compiler's information and the calls that launched them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from .brief import Record, RecordStruct
from .columns import IntColumn, positions
from .index import Positions, Row, as_positions


class CompiledSummary(RecordStruct, gc=False, frozen=True):
    """Statistics about kernels that compiler files describe. An ET+ file stores them in `etplus.compiled`."""

    files: list[str]  # names of the files, without folders
    graph_calls: int  # number of times that compiled graphs were called
    kernels: int  # number of calls in compiled graphs for which the kernel is known
    refused: dict[str, int]  # number of calls of unknown graphs, keyed by the reason
    annotated: int  # number of GPU events described by graph annotations

    @property
    def sentences(self) -> list[str]:
        calls, known = self.graph_calls, self.graph_calls - sum(self.refused.values())
        told = f"of {self.kernels:,} kernels in {known:,} of {calls:,} calls of compiled graphs"
        annotated = f" and of {self.annotated:,} device events" * bool(self.annotated)
        unknown = [f"not of {count:,} calls of compiled graphs: {reason}" for reason, count in self.refused.items()]
        return [f"{told}{annotated}, by {', '.join(self.files)}", *unknown]


def compiled_summary(summary: dict[str, Any]) -> CompiledSummary | None:
    """Return the `CompiledSummary` of a trace, or None if no compiler file was read."""
    try:
        return msgspec.convert(summary.get("compiled"), CompiledSummary)
    except msgspec.ValidationError:
        return None


class GeneratedKernel(RecordStruct, gc=False, frozen=True, omit_defaults=True):
    """A kernel that the compiler generated, or an operator that compiled code calls in PyTorch."""

    name: str  # the compiler's name: "triton_poi_fused_gelu_1", "extern_kernels.addmm"
    region: str = ""  # compiled region, such as "Torch-Compiled Region: 0/0"; "" if unknown
    backward: bool | None = None  # True if the kernel belongs to the region's backward; None if unknown
    handle: int | None = None  # the compiler's number for the call of the kernel, None if unknown
    nodes: tuple[str, ...] = ()  # names of the graph nodes that the kernel computes
    # Kineto records the file of the Triton code, its hash, and constants. A value is "" if it was not recorded.
    # Examples are the file "/tmp/torchinductor_me/ab/cabc….py" and the constants "XBLOCK=1024".
    kernel_file: str = ""
    kernel_hash: str = ""
    kernel_kwargs: str = ""
    kernel_backend: str = ""  # "triton", "" if not recorded

    @property
    def fused(self) -> bool:
        return len(self.nodes) > 1


@dataclass(frozen=True, repr=False)
class GeneratedKernels(Record):
    kernels: tuple[GeneratedKernel, ...]  # each kernel occurs only once
    row: Positions[int, Row]  # rows of the calls that launched generated kernels, in ascending order
    kernel: IntColumn  # position in `kernels` of the kernel that each call launched

    def __len__(self) -> int:
        return len(self.row)

    @staticmethod
    def none() -> GeneratedKernels:
        none = np.zeros(0, np.int64)
        return GeneratedKernels((), as_positions(none), none)

    def at(self, rows: IntColumn) -> IntColumn:
        """Return the position in `kernels` of the kernel that each node launched, or −1."""
        return np.append(self.kernel, -1)[positions(self.row, rows)]
