"""Nodes for ASTRA-sim, and its file of them: what the simulator reads, and no more."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..schemas.chakra.et_def_pb2 import AttributeProto, GlobalMetadata, Node, NodeType
from ..schemas.chakra.stream import write_chakra
from ..trace.kinds import GPU
from ..trace.trace import Trace
from .chakra import CHAKRA_VERSION, comm_attributes, comm_node_type
from .chakra_attributes import make, shared
from .collectives import Communication
from .work import work_attributes

__all__ = ["DELAY", "SimNode", "write_nodes"]

DELAY = -1
"""`SimNode.row` of a node that stands for time in which the host kept the GPU waiting."""


class SimNode(NamedTuple):
    """A node as the simulator is to run it.

    Attributes:
        id: from 1 on, rising with the start.
        row: in the document, or DELAY.
        micros: how long it runs.
        needs: ids of the nodes that it waits for.
        comm: what it communicates, if it does.
        stream: of a delay, the stream that it occupies, −1 for none.
    """

    id: int
    row: int
    micros: int
    needs: list[int]
    comm: Communication | None = None
    stream: int = -1


def write_nodes(document: Trace, path: str | os.PathLike[str], nodes: Iterable[SimNode], rank: int) -> int:
    """Write a file; returns the number of nodes. Raises as `write_chakra` does."""
    work = work_attributes(document)
    messages = (_message(document, node, rank, work) for node in nodes)
    return write_chakra(path, GlobalMetadata(version=CHAKRA_VERSION), messages)


def _message(document: Trace, node: SimNode, rank: int, work: dict[int, list[AttributeProto]]) -> Node:
    return Node(
        id=node.id,
        name="delay" if node.row == DELAY else document.name_of(node.row),
        type=NodeType.COMP_NODE if node.comm is None else comm_node_type(node.comm),
        data_deps=[*dict.fromkeys(node.needs)],
        duration_micros=node.micros,
        attr=[shared("is_cpu_op", False), *_attributes(document, node, rank, work)],
    )


def _attributes(
    document: Trace, node: SimNode, rank: int, work: dict[int, list[AttributeProto]]
) -> Iterator[AttributeProto]:
    row = node.row
    if node.stream >= 0:
        yield shared("stream", node.stream)
    if row != DELAY:
        yield make("node_id", int(document.id[row]))
        yield make("start_ns", int(document.ts[row]))
        yield make("inclusive_ns", int(document.dur[row]))
        if document.kind[row] == GPU:
            yield shared("stream", int(document.stream[row]))
        else:
            yield shared("tid", int(document.thread[row]))
    if node.comm is not None:
        yield from comm_attributes(node.comm, rank)
    else:
        yield from work.get(row, ())
