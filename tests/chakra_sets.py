"""Chakra sets as generators and text converters write them: plain protobuf without start times.

Unless said otherwise, no node names a group: all ranks of the set communicate.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from etplus.schemas.chakra import et_def_pb2 as pb
from etplus.schemas.chakra.attributes import attribute
from etplus.schemas.chakra.encode import delimited

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


def roofline(ranks: int, layers: int = 6) -> Ranks:
    """Computations without durations: FLOPs and bytes for ASTRA-sim's roofline."""
    nodes: list[pb.Node] = []
    last: list[int] = []
    for layer in range(layers):
        work = {"num_ops": 10**9 * (layer + 1), "tensor_size": MB * (layer + 1)}
        last = _add(nodes, compute(len(nodes), 0, *last, **work))
        last = _add(nodes, collective(len(nodes), "all_gather", MB, *last, pg_name="1"))
    return [nodes] * ranks


def pipeline(ranks: int, microbatches: int = 4, micros: int = 200, size: int = MB) -> Ranks:
    """A pipeline stage a rank: each microbatch is received, computed and sent on; then an all-reduce of all ranks."""
    found = []
    for rank in range(ranks):
        nodes: list[pb.Node] = []
        last: list[int] = []
        for tag in range(microbatches):
            if rank:
                last = [*last, *_add(nodes, message(len(nodes), rank - 1, rank, tag, size, is_send=False))]
            last = _add(nodes, compute(len(nodes), micros + 10 * rank, *last))
            if rank < ranks - 1:
                _add(nodes, message(len(nodes), rank, rank + 1, tag, size, *last, is_send=True))
        _add(nodes, collective(len(nodes), "all_reduce", size, *last))
        found.append(nodes)
    return found


def message(number: int, source: int, target: int, tag: int, size: int, *deps: int, is_send: bool) -> pb.Node:
    """A send or receive."""
    kind = pb.COMM_SEND_NODE if is_send else pb.COMM_RECV_NODE
    what = {"is_cpu_op": False, "comm_src": source, "comm_dst": target, "comm_tag": tag, "comm_size": size}
    return _node(number, kind, f"{'send' if is_send else 'receive'}_{number}", deps, 0, **what)


def symbolic(ranks: int) -> Ranks:
    """As the symbolic generator writes sets: `is_cpu_op` and sizes in other integer members, outputs without a value,
    and two groups whose collectives stand in another order in each half of the ranks."""
    found = []
    for rank in range(ranks):
        own = "1" if rank < ranks // 2 else "2"
        nodes = [compute(0, 50), compute(1, 400, 0)]
        nodes += [collective(2, "all_reduce", 2 * MB, 0, pg_name=own), collective(3, "all_gather", MB, 1, pg_name=own)]
        for node in nodes:
            for given in node.attr:
                if given.name == "is_cpu_op":
                    given.int32_val = 0
                if given.name == "comm_size":
                    given.uint64_val = given.int64_val
            node.attr.append(pb.AttributeProto(name="outputs"))
        found.append(nodes)
    return found


def _add(nodes: list[pb.Node], node: pb.Node) -> list[int]:
    """Append a node; its id, as dependencies of the next one."""
    nodes.append(node)
    return [node.id]


def write_set(
    folder: Path, ranks: Ranks, name: str = "t", *, version: str = "0.0.4",
    groups: Mapping[int, Sequence[int]] | None = None,
) -> Path:  # fmt: skip
    """Write `<name>.<rank>.et` and, if there are groups, `<name>.comm_groups.json`; the prefix of the files. The
    version "" writes an empty GlobalMetadata, which our own writer refuses."""
    for rank, nodes in enumerate(ranks):
        messages = [pb.GlobalMetadata(version=version), *nodes]
        data = b"".join(delimited(message.SerializeToString()) for message in messages)
        (folder / f"{name}.{rank}.et").write_bytes(data)
    if groups is not None:
        text = json.dumps({str(group): list(members) for group, members in groups.items()})
        (folder / f"{name}.comm_groups.json").write_text(text, encoding="utf-8")
    return folder / name
