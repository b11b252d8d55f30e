"""Kernels that a compiler generated: what the compiler says about them, and the calls that launched them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from .brief import brief
from .columns import IntColumn
from .index import Positions, Row, as_positions


class CompiledSummary(msgspec.Struct, gc=False, frozen=True):
    """What files of the compiler say about a trace: `etplus.compiled` of an ET+.

    Attributes:
        files: their names, without folders.
        graph_calls: number of calls of compiled graphs. kernels: number of calls in them whose kernel is known.
        refused: number of calls of graphs about which nothing is known, by reason.
        annotated: number of GPU events that annotations of graphs describe.
    """

    files: list[str]
    graph_calls: int
    kernels: int
    refused: dict[str, int]
    annotated: int

    __repr__ = brief

    @property
    def sentences(self) -> list[str]:
        """Sentences about the kernels whose source is known, and the calls of graphs for which it is not.

        Example:
            >>> CompiledSummary(["kernel_information.json"], 3, 9, {"several graphs fit": 1}, 0).sentences[0]
            'of 9 kernels in 2 of 3 calls of compiled graphs, by kernel_information.json'
        """
        calls, known = self.graph_calls, self.graph_calls - sum(self.refused.values())
        told = f"of {self.kernels:,} kernels in {known:,} of {calls:,} calls of compiled graphs"
        annotated = f" and of {self.annotated:,} device events" * bool(self.annotated)
        unknown = [f"not of {count:,} calls of compiled graphs: {reason}" for reason, count in self.refused.items()]
        return [f"{told}{annotated}, by {', '.join(self.files)}", *unknown]


def compiled_summary(summary: dict[str, Any]) -> CompiledSummary | None:
    """Return the summary of the compiler's files of a trace, None if none were read."""
    try:
        return msgspec.convert(summary.get("compiled"), CompiledSummary)
    except msgspec.ValidationError:
        return None


class GeneratedKernel(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """A kernel of compiled code, or a call in it of an operator that the compiler leaves to PyTorch.

    Attributes:
        name: the compiler's: "triton_poi_fused_gelu_1", "extern_kernels.addmm".
        region: its compiled region, "Torch-Compiled Region: 0/0"; "" if unknown.
        backward: it belongs to the region's backward; None if unknown.
        handle: the compiler's number of the call, None if unknown.
        nodes: names of the source nodes whose work it does.
        kernel_file, kernel_hash, kernel_kwargs: file of Triton's code ("/tmp/torchinductor_me/ab/cabc….py"), its hash,
            and its constants ("XBLOCK=1024"), as Kineto records them; "" if not recorded.
        kernel_backend: "triton", "" if not recorded.
    """

    name: str
    region: str = ""
    backward: bool | None = None
    handle: int | None = None
    nodes: tuple[str, ...] = ()
    kernel_file: str = ""
    kernel_hash: str = ""
    kernel_kwargs: str = ""
    kernel_backend: str = ""

    __repr__ = brief

    @property
    def fused(self) -> bool:
        """Whether it does the work of several source nodes."""
        return len(self.nodes) > 1


@dataclass(frozen=True)
class GeneratedKernels:
    """The generated kernels of a trace.

    Attributes:
        kernels: each once.
        row: nodes of the calls that launched one, ascending. kernel: position in `kernels` for each.
    """

    kernels: tuple[GeneratedKernel, ...]
    row: Positions[int, Row]
    kernel: IntColumn

    __repr__ = brief

    def __len__(self) -> int:
        """Return the number of calls."""
        return len(self.row)

    @staticmethod
    def none() -> GeneratedKernels:
        none = np.zeros(0, np.int64)
        return GeneratedKernels((), as_positions(none), none)

    def at(self, rows: IntColumn) -> IntColumn:
        """Return the position in `kernels` for each of some nodes, −1 for none.

        Example:
            >>> made = GeneratedKernels((GeneratedKernel("triton_0"),), as_positions(np.array([3])), np.array([0]))
            >>> made.at(np.array([2, 3])).tolist()
            [-1, 0]
        """
        if not len(self):
            return np.full(len(rows), -1, np.int64)
        found = np.minimum(np.searchsorted(self.row, rows), len(self) - 1)
        return np.where(self.row[found] == rows, self.kernel[found], -1)
