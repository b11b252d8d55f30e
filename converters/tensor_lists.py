"""Tensors that each node of a simulation reads and writes, for simulators that track a rank's memory.

ASTRA-sim (`track-local-mem`; astra-sim/workload/LocalMemUsageTracker.cc) takes them from the attributes `inputs` and
`outputs`, lists of names and sizes in turn, which every node must have. A tensor lives from the start of the one node
that writes it to the end of the last that reads it, and from the beginning if none writes it. So a tensor is a storage
of the ET: the first node that gets it from its operator writes it, all others read it.
"""

from __future__ import annotations

import numpy as np

from ..schemas.chakra.attributes import attribute, encoded
from ..trace.columns import distinct
from ..trace.errors import UsageError
from ..trace.kinds import CPU, GPU
from ..trace.trace import Trace

_NONE = encoded(attribute("inputs", []), attribute("outputs", []))
_HOST = "cpu"


class TensorLists:
    """Hands out the lists of nodes, in the order in which they run.

    Tensors are those of a GPU event's operator, or of operators of the host if there is no GPU event. Raises UsageError
    if the trace records no tensors.
    """

    def __init__(self, trace: Trace) -> None:
        nodes = trace.nodes
        events = np.flatnonzero((nodes.kind == GPU) & nodes.timed)
        calls = events if len(events) else np.flatnonzero((nodes.kind == CPU) & nodes.timed)
        owner = np.where(nodes.kind[calls] == GPU, nodes.parent_row[calls], calls)
        known = distinct(owner[owner >= 0])
        uses = trace.texts.tensor_uses(known)
        kept = [k for k in range(len(uses.node)) if (uses.device(k) == _HOST) != bool(len(events))]
        if not kept:
            raise UsageError(
                f"{trace.file}: no operator records its tensors, so that memory cannot be followed; "
                "link the Kineto trace with an Execution Trace"
            )
        self._owner = dict(zip(calls.tolist(), owner.tolist(), strict=True))
        self._uses: dict[int, list[tuple[int, bool]]] = {}
        self._bytes: dict[int, int] = {}
        for k in kept:
            storage = int(uses.storage[k])
            self._uses.setdefault(int(known[uses.node[k]]), []).append((storage, bool(uses.output[k])))
            self._bytes[storage] = max(self._bytes.get(storage, 0), int(uses.end[k]))
        self._written: set[int] = set()

    def encoded(self, row: int) -> bytes:
        """Return the attributes of the next node; a row below 0 has no tensors."""
        reads, writes = self.next(row)
        if not reads and not writes:
            return _NONE
        return encoded(*(attribute(name, self._pairs(of)) for name, of in (("inputs", reads), ("outputs", writes))))

    def next(self, row: int) -> tuple[list[int], list[int]]:
        """Return the storages that the next node reads, and those that it is the first to write."""
        given = self._uses.get(self._owner.get(row, -1), [])
        reads = {storage for storage, output in given if not output or storage in self._written}
        writes = {storage for storage, output in given if output} - reads - self._written
        self._written |= reads | writes
        return sorted(reads), sorted(writes)

    def _pairs(self, storages: list[int]) -> list[str]:
        return [text for storage in storages for text in (f"storage {storage}", str(self._bytes[storage]))]
