"""Attributes of Chakra nodes, both standard and added by etplus, and the oneof member that stores each value."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ...trace.columns import IntColumn
from ...trace.conventions import EDGE_KINDS
from ..wire_format import Cells
from .encode import attribute_cells
from .et_def_pb2 import AttributeProto, BoolList, CollectiveCommType, Int32List, Int64List, Node, NodeType, StringList

# MESSAGES is the number of messages at the end of a kernel's `data_deps`. MESSAGE_OF is the id of a message's kernel.
MESSAGES, MESSAGE_OF = "messages", "message_of"
# Chakra's own feeder (mlcommons/chakra) reads an attribute only from the member listed here, even if others are set.
# ASTRA-sim's feeder accepts any integer member and throws an exception for other members.
MEMBERS = {
    "is_cpu_op": "bool_val",
    "num_ops": "int64_val",
    "tensor_size": "uint64_val",
    "comm_type": "int64_val",  # a CollectiveCommType
    "comm_size": "int64_val",  # in bytes; for an all-gather, the size of one rank's input
    "comm_src": "int32_val",
    "comm_dst": "int32_val",
    "comm_tag": "int32_val",
    "comm_priority": "int32_val",
    "pg_name": "string_val",  # a decimal integer ≥ 1; "" and "0" mean all ranks
    "involved_dim": "bool_list",
    "stream": "int64_val",
    "tid": "int64_val",
    "seq_id": "int64_val",
    "scope": "int64_val",
    "rf_id": "int64_val",
    "fw_parent": "int64_val",
    "fw_tid": "int64_val",
    "op_schema": "string_val",
    "duration_ns": "int64_val",  # exact duration, because `Node.duration_micros` is rounded
    "inputs": "string_list",  # names and sizes of the tensors that the node reads; ASTRA-sim's memory tracker uses them
    "outputs": "string_list",  # names and sizes of the tensors that the node writes
}

# ASTRA-sim reads these members of an attribute as integers.
INTEGERS = frozenset(
    (
        "int32_val int64_val uint32_val uint64_val sint32_val sint64_val fixed32_val fixed64_val sfixed32_val "
        "sfixed64_val bool_val"
    ).split()
)

# ASTRA-sim simulates these collectives (`Workload::issue_coll_comm`), replays broadcasts and aborts on all others.
_SIMULATED = ("ALL_REDUCE", "ALL_GATHER", "ALL_TO_ALL", "REDUCE_SCATTER")
SIMULATED_COLLECTIVES = frozenset(map(CollectiveCommType.Value, _SIMULATED))

# Only etplus reads these attributes, when it converts a file back to ET+.
OWN_MEMBERS = {
    "start_ns": "int64_val",  # exact start time, because `Node.start_time_micros` is rounded
    "inclusive_ns": "int64_val",  # measured duration including callees; omitted if it equals duration_ns
    "exclusive_ns": "int64_val",  # measured self time; omitted if it equals duration_ns
    "data_dep_kinds": "int32_list",  # one number per entry of `data_deps`, with one bit per kind of edge
    "call_parent": "int64_val",  # id of the caller, written only if ctrl_deps cannot contain it
    "cat": "string_val",  # Kineto's category of a GPU event; "runtime" for a runtime or driver call
    "device": "int64_val",
    "correlation": "int64_val",
    "kineto_event": "int64_val",
    "pid": "int64_val",
    "link": "string_val",
    "inter_thread_dep": "int64_val",
    "sync_dep": "int64_list",
    "kineto_tid": "string_val",  # thread of a runtime call, encoded as JSON
    "args": "string_val",  # arguments of the Kineto event, encoded as JSON
    "comm": "string_val",  # the whole `comm` object of ET+, encoded as JSON
    "captured_by": "string_val",  # same JSON object as in ET+; the file's metadata contains `captured_graphs`
    "counterpart": "string_val",  # same JSON object as in ET+
    "captured_op": "string_val",  # name of the operator that launched the kernel when its graph was captured
    "captured_shapes": "string_val",  # input shapes of `captured_op`, encoded as JSON
    "captured_types": "string_val",  # input dtypes of `captured_op`, encoded as JSON
    "input_strides": "string_val",
    "output_strides": "string_val",
    "et_attrs": "string_val",  # additional attributes of the ET node, encoded as JSON
    "et_fields": "string_val",  # additional fields of the ET+ node, encoded as JSON
    MESSAGES: "int64_val",
    MESSAGE_OF: "int64_val",
    "node_id": "int64_val",  # the node's id in ET+; written only if this file renumbers the nodes
}

# Maps edge kinds to bits in `data_dep_kinds`. Kinds after the eighth skip ORDER's bit, so older files stay valid.
KIND_BITS: IntColumn = np.array([1 << (k + (k >= 8)) for k in range(len(EDGE_KINDS))], np.int64)
ORDER = 1 << 8  # Marks a dependency that only keeps the order of events on a thread or stream; ET+ has no edge for it.

_MESSAGE_TYPES = (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE)
_LISTS: dict[str, Any] = {
    "bool_list": BoolList,
    "int32_list": Int32List,
    "int64_list": Int64List,
    "string_list": StringList,
}


def attribute(name: str, value: Any) -> AttributeProto:
    member = MEMBERS.get(name) or OWN_MEMBERS[name]
    return AttributeProto(name=name, **{member: _LISTS[member](values=value) if member in _LISTS else value})


def is_message(node: Node) -> bool:
    """Return True if the node is one of several messages that a kernel sends or receives."""
    return node.type in _MESSAGE_TYPES and any(attr.name == MESSAGE_OF for attr in node.attr)


def encoded(*attributes: AttributeProto) -> bytes:
    return Node(attr=attributes).SerializeToString()


@lru_cache(maxsize=1 << 14)
def shared(name: str, value: int | str | bytes | tuple[int, ...]) -> bytes:
    """Encode an attribute that occurs often with the same value, and cache the result; a string may be UTF-8 bytes."""
    return encoded(attribute(name, value))


def numbers(name: str, values: IntColumn, present: npt.NDArray[np.bool_] | None = None) -> Cells:
    return attribute_cells(attribute(name, 0), values, present)


def values_of(attributes: Sequence[AttributeProto]) -> dict[str, Any]:
    """Return the values by name. An integer in an unusual member is converted to the type of the usual member."""
    values: dict[str, Any] = {}
    for given in attributes:
        member, actual = OWN_MEMBERS.get(given.name) or MEMBERS.get(given.name), given.WhichOneof("value")
        if member is None or actual is None:
            continue
        value = getattr(given, actual)
        if actual == member:
            values[given.name] = list(value.values) if member.endswith("_list") else value
        elif actual in INTEGERS and abs(value) < 1 << 63 and (member in INTEGERS or member == "string_val"):
            values[given.name] = {"bool_val": bool, "string_val": str}.get(member, int)(value)
    return values
