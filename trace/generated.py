"""Compiler-generated kernels: the compiler's information about each kernel, and the calls that launched it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from .brief import Record, RecordStruct
from .columns import IntColumn, positions
from .index import Positions, Row, as_positions


class CompiledSummary(RecordStruct, gc=False, frozen=True):
    """Number of kernels in a trace that compiler files describe; stored in `etplus.compiled` of an ET+ file."""

    files: list[str]  # names of the files, without folders
    graph_calls: int  # number of times that compiled graphs were called
    kernels: int  # number of calls in compiled graphs with a known kernel
    refused: dict[str, int]  # number of calls of unknown graphs for each reason
    annotated: int  # number of GPU events described by graph annotations

    @property
    def sentences(self) -> list[str]:
        calls, known = self.graph_calls, self.graph_calls - sum(self.refused.values())
        told = f"of {self.kernels:,} kernels in {known:,} of {calls:,} calls of compiled graphs"
        annotated = f" and of {self.annotated:,} device events" * bool(self.annotated)
        unknown = [f"not of {count:,} calls of compiled graphs: {reason}" for reason, count in self.refused.items()]
        return [f"{told}{annotated}, by {', '.join(self.files)}", *unknown]


def compiled_summary(summary: dict[str, Any]) -> CompiledSummary | None:
    """Return the `CompiledSummary` of a trace, None if no compiler file was read."""
    try:
        return msgspec.convert(summary.get("compiled"), CompiledSummary)
    except msgspec.ValidationError:
        return None


class GeneratedKernel(RecordStruct, gc=False, frozen=True, omit_defaults=True):
    """A kernel of compiled code, or an operator that compiled code leaves to PyTorch."""

    name: str  # the compiler's name: "triton_poi_fused_gelu_1", "extern_kernels.addmm"
    region: str = ""  # compiled region, such as "Torch-Compiled Region: 0/0"; "" if unknown
    backward: bool | None = None  # True if the kernel belongs to the region's backward; None if unknown
    handle: int | None = None  # number that the compiler gave to the kernel's call, None if unknown
    nodes: tuple[str, ...] = ()  # names of the source nodes that the kernel computes
    # Kineto's values for the file with the Triton code, the file's hash, and the constants; "" if not recorded.
    # A file is, for example, "/tmp/torchinductor_me/ab/cabc….py", and constants are "XBLOCK=1024".
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
    row: Positions[int, Row]  # rows of the calls that launched a generated kernel, ascending
    kernel: IntColumn  # position in `kernels` of the kernel, per call

    def __len__(self) -> int:
        return len(self.row)

    @staticmethod
    def none() -> GeneratedKernels:
        none = np.zeros(0, np.int64)
        return GeneratedKernels((), as_positions(none), none)

    def at(self, rows: IntColumn) -> IntColumn:
        """Return each node's position in `kernels`, −1 for none."""
        kernel: IntColumn = np.append(self.kernel, -1)[positions(self.row, rows)]
        return kernel
