"""Nodes for ASTRA-sim, and its file of them: what the simulator reads, and no more."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from ..schemas.chakra.encode import (
    CTRL_DEPS,
    DURATION,
    ID,
    NAME,
    TYPE,
    Block,
    byte_rows,
    dependency_rows,
    field_cells,
    messages,
    text_field,
)
from ..schemas.chakra.et_def_pb2 import GlobalMetadata
from ..schemas.chakra.stream import write_blocks
from ..trace.columns import IntColumn
from ..trace.kinds import GPU
from ..trace.trace import Trace
from .chakra import CHAKRA_VERSION, COMP, ROWS, comm_attributes, comm_node_type
from .chakra_attributes import encoded, numbers, shared
from .collectives import Communication
from .work import work_columns

__all__ = ["DELAY", "SimNode", "write_nodes"]

DELAY = -1
"""`SimNode.row` of a node that stands for time in which the host kept the GPU waiting."""


_NUMBERS = ("id", "row", "micros", "caller")


class SimNode(NamedTuple):
    """A node as the simulator is to run it.

    Attributes:
        id: from 1 on, rising with the start.
        row: in the document, or DELAY.
        micros: how long it runs.
        needs: ids of the nodes that it waits for.
        caller: id of its caller, 0 for none.
        on_host: it takes the CPU, not the GPU.
        comm: what it communicates, if it does.
    """

    id: int
    row: int
    micros: int
    needs: list[int]
    caller: int = 0
    on_host: bool = False
    comm: Communication | None = None


def write_nodes(document: Trace, path: str | os.PathLike[str], nodes: Iterable[SimNode], rank: int) -> int:
    """Write a file; returns the number of nodes. Raises as `write_blocks` does."""
    work, rest = work_columns(document), iter(nodes)
    blocks = iter(lambda: _block(document, list(itertools.islice(rest, ROWS)), rank, work), Block(0, b""))
    return write_blocks(path, GlobalMetadata(version=CHAKRA_VERSION), blocks)


def _block(document: Trace, nodes: list[SimNode], rank: int, work: dict[str, IntColumn]) -> Block:
    """Some nodes, fields and attributes in the order in which a file has them."""
    ids, rows, micros, caller = (np.fromiter(map(attrgetter(name), nodes), np.int64, len(nodes)) for name in _NUMBERS)
    comms = [node.comm for node in nodes]
    types = np.array([COMP if comm is None else comm_node_type(comm) for comm in comms], np.int64)
    needs = [list(dict.fromkeys(node.needs)) for node in nodes]
    real = rows != DELAY
    on_gpu = real & (document.kind[rows] == GPU)
    columns = {
        "node_id": (document.id[rows], real),
        "start_ns": (document.ts[rows], real),
        "inclusive_ns": (document.dur[rows], real),
        "stream": (document.stream[rows], on_gpu),
        "tid": (document.thread[rows], real & ~on_gpu),
    }
    computes = real & np.array([comm is None for comm in comms], np.bool_)
    encoded_nodes = messages(
        byte_rows([field_cells(ID, ids)]),
        [text_field(NAME, b"delay" if row == DELAY else document.name_of(row).encode()) for row in rows.tolist()],
        byte_rows([field_cells(TYPE, types), field_cells(CTRL_DEPS, caller)]),
        dependency_rows(np.array(list(itertools.chain(*needs)), np.int64), np.array(list(map(len, needs)), np.int64)),
        byte_rows([field_cells(DURATION, micros)]),
        [shared("is_cpu_op", node.on_host) for node in nodes],
        byte_rows([numbers(name, values, present) for name, (values, present) in columns.items()]),
        [b"" if comm is None else encoded(*comm_attributes(comm, rank)) for comm in comms],
        byte_rows([numbers(name, of[rows], computes & (of[rows] >= 0)) for name, of in work.items()]),
    )
    return Block(len(nodes), b"".join(encoded_nodes))
