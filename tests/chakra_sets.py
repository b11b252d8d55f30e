"""Chakra sets as generators and text converters write them: plain protobuf without start times.

Each set is one list of nodes a rank; `write_set` makes the files. Unless said otherwise, no node names a group: all
ranks of the set communicate.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from etplus.schemas.chakra import et_def_pb2 as pb
from etplus.schemas.chakra.attributes import attribute
from etplus.schemas.chakra.encode import delimited

__all__ = [
    "COLLECTIVES",
    "MB",
    "Ranks",
    "collective",
    "compute",
    "data_parallel",
    "model_parallel",
    "single_collective",
    "write_set",
]

Ranks = Sequence[Sequence[pb.Node]]
MB = 1 << 20
COLLECTIVES = {
    "all_reduce": pb.ALL_REDUCE, "all_gather": pb.ALL_GATHER, "reduce_scatter": pb.REDUCE_SCATTER,
    "all_to_all": pb.ALL_TO_ALL,
}  # fmt: skip


def compute(number: int, micros: int, *deps: int, name: str = "", **values: Any) -> pb.Node:
    """A computation on the device; `values` are further attributes."""
    return _node(number, pb.COMP_NODE, name or f"layer_{number}", deps, micros, is_cpu_op=False, **values)


def collective(number: int, kind: str, size: int, *deps: int, micros: int = 0, **values: Any) -> pb.Node:
    """A collective of one of COLLECTIVES; without `pg_name` in `values`, one of all ranks."""
    what = {"is_cpu_op": False, "comm_type": COLLECTIVES[kind], "comm_size": size}
    return _node(number, pb.COMM_COLL_NODE, f"{kind}_{number}", deps, micros, **what, **values)


def _node(number: int, kind: int, name: str, deps: Sequence[int], micros: int, **values: Any) -> pb.Node:
    attributes = [attribute(key, value) for key, value in values.items()]
    return pb.Node(id=number, name=name, type=kind, data_deps=deps, duration_micros=micros, attr=attributes)  # type: ignore[arg-type]


def single_collective(kind: str, ranks: int, size: int = MB) -> Ranks:
    """One collective, as microbenchmarks are written: no duration, no group."""
    return [[collective(0, kind, size)]] * ranks


def data_parallel(ranks: int, layers: int = 8, steps: int = 2, micros: int = 300, size: int = 4 * MB) -> Ranks:
    """Gradients of each layer are all-reduced next to the rest of the backward pass; the layer's next forward pass
    waits for them."""
    nodes: list[pb.Node] = []
    reduced: list[list[int]] = [[] for _ in range(layers)]
    last: list[int] = []
    for _ in range(steps):
        for layer in range(layers):
            last = _add(nodes, compute(len(nodes), micros + 10 * layer, *last, *reduced[layer]))
        for layer in reversed(range(layers)):
            last = _add(nodes, compute(len(nodes), micros + 20 * layer, *last))
            reduced[layer] = _add(nodes, collective(len(nodes), "all_reduce", size + layer * MB, *last))
            last = _add(nodes, compute(len(nodes), micros, *last))
    return [nodes] * ranks


def model_parallel(ranks: int, layers: int = 8, micros: int = 300, size: int = MB) -> Ranks:
    """Activations are gathered after each layer and their gradients are reduced on the way back, next to the
    computation of the layer's weight gradients; the next layer waits for them."""
    nodes: list[pb.Node] = []
    last: list[int] = []
    for layer in range(layers):
        last = _add(nodes, compute(len(nodes), micros + 10 * layer, *last))
        last = _add(nodes, collective(len(nodes), "all_gather", size, *last))
    for layer in reversed(range(layers)):
        gradient = _add(nodes, compute(len(nodes), micros + 20 * layer, *last))
        last = _add(nodes, collective(len(nodes), "all_reduce", size + layer * MB, *gradient))
        _add(nodes, compute(len(nodes), micros, *gradient))
    return [nodes] * ranks


def _add(nodes: list[pb.Node], node: pb.Node) -> list[int]:
    """Append a node; its id, as dependencies of the next one."""
    nodes.append(node)
    return [node.id]


def write_set(
    folder: Path, ranks: Ranks, name: str = "t", *, version: str = "0.0.4",
    groups: Mapping[int, Sequence[int]] | None = None,
) -> Path:  # fmt: skip
    """Write `<name>.<rank>.et` and, if there are groups, `<name>.comm_groups.json`; the prefix of the files.

    Args:
        version: "" writes an empty GlobalMetadata, which our own writer refuses.
    """
    for rank, nodes in enumerate(ranks):
        messages = [pb.GlobalMetadata(version=version), *nodes]
        data = b"".join(delimited(message.SerializeToString()) for message in messages)
        (folder / f"{name}.{rank}.et").write_bytes(data)
    if groups is not None:
        text = json.dumps({str(group): list(members) for group, members in groups.items()})
        (folder / f"{name}.comm_groups.json").write_text(text, encoding="utf-8")
    return folder / name
