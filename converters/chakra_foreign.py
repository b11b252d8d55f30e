"""Nodes of Chakra traces that other programs wrote, as ET+ nodes, as far as messages and attributes describe them."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from ..schemas.chakra.et_def_pb2 import CollectiveCommType, Node, NodeType
from ..trace.columns import IntColumn
from ..trace.comm_kernels import Comm
from ..trace.conventions import EDGE_KINDS
from .chakra_records import ET_ATTRIBUTES

__all__ = ["foreign_kinds", "foreign_lane", "foreign_record", "foreign_times"]

_COMM_TYPES = (NodeType.COMM_COLL_NODE, NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE)
_MEMORY_TYPES = (NodeType.MEM_LOAD_NODE, NodeType.MEM_STORE_NODE)
_METADATA_TYPES = (NodeType.METADATA_NODE, NodeType.INVALID_NODE)
_MAX_MICROS = 2**51
_LANES = 1 << 40
"""A lane is class · _LANES + stream or thread; the classes: host, GPU, communication."""
_HOST, _GPU, _COMM = 0, 1, 2


def foreign_record(node: Node, values: dict[str, Any]) -> dict[str, Any]:
    """Fields of an ET+ node."""
    on_host = _class_of(node, values) == _HOST
    attrs = [
        {"name": name, "type": kind, "value": values.get(name, none) if on_host else none}
        for name, (kind, none) in ET_ATTRIBUTES.items()
    ]
    record: dict[str, Any] = {
        "id": node.id,
        "name": node.name,
        "ctrl_deps": node.ctrl_deps[0] if node.ctrl_deps else 0,
        "inputs": {"values": [], "shapes": [], "types": []},
        "outputs": {"values": [], "shapes": [], "types": []},
        "attrs": attrs,
    }
    if node.type not in _METADATA_TYPES:
        ts, dur = (msgspec.Raw(b"%d.000" % us) for us in _micros(node))
        record |= {"ts": ts, "dur": dur, "inclusive_dur": dur, "exclusive_dur": dur}
    if not on_host:
        category = "gpu_memcpy" if node.type in _MEMORY_TYPES else "kernel"
        record |= {
            "cat": category,
            "ph": "X",
            "stream": values.get("stream", 0),
            "device": 0,
            "correlation": 0,
            "args": {},
        }
    if node.type in _COMM_TYPES:
        record["comm"] = _comm(node, values)
        record["pg_name"] = record["comm"].pg_name
    return record


def foreign_times(node: Node) -> tuple[int, int, int]:
    """`ts`, `dur` and `exclusive` of the record, ns."""
    if node.type in _METADATA_TYPES:
        return -1, 0, 0
    ts, dur = _micros(node)
    return 1000 * ts, 1000 * dur, 1000 * dur


def foreign_lane(node: Node, values: dict[str, Any]) -> int:
    """A number for where a node runs, for `foreign_kinds`."""
    runs = _class_of(node, values)
    return runs * _LANES + int(values.get("tid" if runs == _HOST else "stream", 0)) % _LANES


def _class_of(node: Node, values: dict[str, Any]) -> int:
    if node.type in _COMM_TYPES:
        return _COMM
    return _HOST if node.type in _METADATA_TYPES or values.get("is_cpu_op") else _GPU


def _micros(node: Node) -> tuple[int, int]:
    """Start, 0 where the file has none, and duration."""
    return min(node.start_time_micros, _MAX_MICROS), min(node.duration_micros, _MAX_MICROS)


def foreign_kinds(lanes: IntColumn, source: IntColumn, target: IntColumn) -> IntColumn:
    """Kinds of dependencies, a bit each, from where both ends run.

    Args:
        lanes: one entry a node, from `foreign_lane`.
        source, target: int64 indices of nodes.
    """
    a, b = lanes[source] // _LANES, lanes[target] // _LANES
    same = lanes[source] == lanes[target]
    kind = np.select(
        [(a == _HOST) & (b == _HOST) & same, (a == _HOST) & (b == _HOST), a == _HOST, b == _HOST,
         (a == _COMM) & (b == _COMM), same],
        [EDGE_KINDS.index(name) for name in ("thread", "thread_handoff", "launch", "sync", "comm", "stream")],
        EDGE_KINDS.index("event"),
    )  # fmt: skip
    return np.left_shift(1, kind.astype(np.int64))


def _comm(node: Node, values: dict[str, Any]) -> Comm:
    kind: int = values.get("comm_type", -1)
    names = {NodeType.COMM_SEND_NODE: "send", NodeType.COMM_RECV_NODE: "recv"}
    known = kind in CollectiveCommType.values()
    return Comm(
        collective=names.get(node.type) or (CollectiveCommType.Name(kind).lower() if known else None),
        bytes=values.get("comm_size"),
        pg_name=values.get("pg_name"),
        src_rank=values.get("comm_src"),
        dst_rank=values.get("comm_dst"),
    )
