"""Kernels that a compiler generated: what the compiler says of them, and the calls that launched them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from .brief import brief
from .columns import IntColumn
from .index import Positions, Row, as_positions


class CompiledSummary(msgspec.Struct, gc=False, frozen=True):
    """What files of the compiler said of a trace: `etplus.compiled` of an ET+.

    Attributes:
        files: their names, without folders.
        graph_calls: calls of compiled graphs. kernels: calls in them whose kernel is known.
        refused: by reason, how many calls of graphs nothing is known of.
        annotated: GPU events that annotations of graphs say something of.
    """

    files: list[str]
    graph_calls: int
    kernels: int
    refused: dict[str, int]
    annotated: int

    __repr__ = brief

    @property
    def sentences(self) -> list[str]:
        """Of how many kernels the source is known, and of how many calls of graphs it is not.

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
    """That of a trace by its `summary`, None where no files were read."""
    try:
        return msgspec.convert(summary.get("compiled"), CompiledSummary)
    except msgspec.ValidationError:
        return None


class GeneratedKernel(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """A kernel of compiled code, or a call in it of an operator that the compiler leaves to PyTorch.

    Attributes:
        name: as the compiler has it: "triton_poi_fused_gelu_1", "extern_kernels.addmm".
        region: of which compiled region it is, "Torch-Compiled Region: 0/0"; "" where that is not known.
        backward: it is of the region's backward; None where that is not known.
        handle: the compiler's number of the call, None where it is not known.
        nodes: names of the source nodes that it does the work of.
        kernel_file, kernel_hash, kernel_kwargs: where Triton's code is ("/tmp/torchinductor_me/ab/cabc….py"), its hash,
            and its constants ("XBLOCK=1024"), as Kineto records them; "" where they are not recorded.
        kernel_backend: "triton", "" where it is not recorded.
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
        """It does the work of several source nodes."""
        return len(self.nodes) > 1


@dataclass(frozen=True)
class GeneratedKernels:
    """The generated kernels of a trace.

    Attributes:
        kernels: each once.
        row: int64, ascending, rows of the calls that launched one. kernel: int64, position in `kernels` of each one's.
    """

    kernels: tuple[GeneratedKernel, ...]
    row: Positions[int, Row]
    kernel: IntColumn

    __repr__ = brief

    def __len__(self) -> int:
        """Number of calls."""
        return len(self.row)

    @staticmethod
    def none() -> GeneratedKernels:
        """No kernels."""
        none = np.zeros(0, np.int64)
        return GeneratedKernels((), as_positions(none), none)

    def at(self, rows: IntColumn) -> IntColumn:
        """int64, position in `kernels` of that of each of some rows, −1 for none.

        Example:
            >>> made = GeneratedKernels((GeneratedKernel("triton_0"),), as_positions(np.array([3])), np.array([0]))
            >>> made.at(np.array([2, 3])).tolist()
            [-1, 0]
        """
        if not len(self):
            return np.full(len(rows), -1, np.int64)
        found = np.minimum(np.searchsorted(self.row, rows), len(self) - 1)
        return np.where(self.row[found] == rows, self.kernel[found], -1)
