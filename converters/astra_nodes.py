"""Define nodes for ASTRA-sim, and write only the fields that the simulator reads."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from ..schemas.chakra.attributes import encoded, numbers, shared
from ..schemas.chakra.encode import DURATION, ID, NAME, TYPE, Block, dependency_rows, field_cells, messages, text_field
from ..schemas.chakra.et_def_pb2 import GlobalMetadata
from ..schemas.chakra.stream import write_blocks
from ..schemas.wire_format import byte_rows
from ..trace.columns import IntColumn
from ..trace.index import Row
from ..trace.kinds import GPU
from ..trace.trace import Trace
from .chakra import CHAKRA_VERSION, COMP, ROWS
from .collectives import Communication, comm_attributes, comm_node_type
from .node_work import roofline_work, work_columns

# `SimNode.row` has this value if the node is a delay in which the GPU waits for the host.
DELAY = -1
# `SimNode.row` has this value if the node represents the time before a rank starts.
START = -2

_NAMES = {DELAY: b"delay", START: b"start skew"}
_NUMBERS = ("id", "row", "micros")


class SimNode(NamedTuple):
    """A simulator node. Ids ascend by start time. `row` may be DELAY or START. `stream` is the stream of a delay."""

    id: int
    row: int
    micros: int
    needs: list[int]
    comm: Communication | None = None
    stream: int = -1


def after_start(nodes: Iterable[SimNode], micros: int) -> Iterator[SimNode]:
    """Yield a node that lasts until the rank starts, then all the given nodes with their ids increased by one."""
    yield SimNode(1, START, micros, [])
    for node in nodes:
        yield node._replace(id=node.id + 1, needs=[number + 1 for number in node.needs] or [1])


def write_nodes(
    trace: Trace, path: str | os.PathLike[str], nodes: Iterable[SimNode], rank: int, roofline: float | None = None
) -> int:
    work, nodes_left = work_columns(trace), iter(nodes)
    if roofline is not None:  # The bus, not memory, limits host-device copies.
        copies = [code for code, name in enumerate(trace.categories) if name == "gpu_memcpy"]
        work["tensor_size"][np.isin(trace.nodes.category, copies)] = -1
    chunks = iter(lambda: list(itertools.islice(nodes_left, ROWS)), [])
    blocks = (_block(trace, chunk, rank, work, roofline) for chunk in chunks)
    return write_blocks(path, GlobalMetadata(version=CHAKRA_VERSION), blocks)


def _block(trace: Trace, nodes: list[SimNode], rank: int, work: dict[str, IntColumn], roofline: float | None) -> Block:
    ids, rows, micros = (np.fromiter(map(attrgetter(name), nodes), np.int64, len(nodes)) for name in _NUMBERS)
    comms = [node.comm for node in nodes]
    types = np.array([COMP if comm is None else comm_node_type(comm) for comm in comms], np.int64)
    needs = [list(dict.fromkeys(node.needs)) for node in nodes]
    real, names = rows >= 0, [_NAMES[row] if row < 0 else trace.name_of(Row(row)).encode() for row in rows.tolist()]
    computing = np.array([comm is None for comm in comms], np.bool_)
    num_ops, size = (np.where(computing & real, work[name][rows], -1) for name in ("num_ops", "tensor_size"))
    if roofline is not None:
        num_ops, size = (np.where(computing, column, -1) for column in roofline_work(num_ops, size, micros, roofline))
    rows = np.maximum(rows, 0)
    # Rounding changes a duration by less than 1 µs. If the difference is larger, `fold` has shortened the computation.
    exact = real & computing & (np.abs(trace.nodes.dur[rows] - 1000 * micros) < 1000)
    on_gpu = real & (trace.nodes.kind[rows] == GPU)
    own = np.array([node.stream for node in nodes], np.int64)
    columns = {
        "duration_ns": (np.where(exact, trace.nodes.dur[rows], 1000 * micros), computing),
        "node_id": (trace.nodes.id[rows], real),
        "start_ns": (trace.nodes.ts[rows], real),
        "inclusive_ns": (trace.nodes.dur[rows], real),
        "stream": (np.where(own >= 0, own, trace.nodes.stream[rows]), on_gpu | (own >= 0)),
        "tid": (trace.nodes.thread[rows], real & ~on_gpu),
    }
    encoded_nodes = messages(
        byte_rows([field_cells(ID, ids)]),
        [text_field(NAME, name) for name in names],
        byte_rows([field_cells(TYPE, types)]),
        dependency_rows(np.array(list(itertools.chain(*needs)), np.int64), np.array(list(map(len, needs)), np.int64)),
        byte_rows([field_cells(DURATION, micros)]),
        [shared("is_cpu_op", False)] * len(nodes),
        byte_rows([numbers(name, values, present) for name, (values, present) in columns.items()]),
        [b"" if comm is None else encoded(*comm_attributes(comm, rank)) for comm in comms],
        byte_rows([numbers("num_ops", num_ops, num_ops >= 0), numbers("tensor_size", size, size >= 0)]),
    )
    return Block(len(nodes), b"".join(encoded_nodes))
