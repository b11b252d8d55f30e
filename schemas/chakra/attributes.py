"""The attributes of Chakra nodes: the one member of the oneof that readers take each from."""

from __future__ import annotations

from collections.abc import Sequence

from .et_def_pb2 import AttributeProto, BoolList, CollectiveCommType

MEMBERS = {
    "is_cpu_op": "bool_val",
    "num_ops": "int64_val",
    "tensor_size": "uint64_val",
    "comm_type": "int64_val",  # a CollectiveCommType
    "comm_size": "int64_val",  # bytes; of an all-gather the input of one rank
    "comm_src": "int32_val",
    "comm_dst": "int32_val",
    "comm_tag": "int32_val",
    "comm_priority": "int32_val",
    "pg_name": "string_val",  # a decimal integer from 1 on; "" and "0" are all ranks
    "involved_dim": "bool_list",
    "stream": "int64_val",
    "tid": "int64_val",
    "seq_id": "int64_val",
    "scope": "int64_val",
    "rf_id": "int64_val",
    "fw_parent": "int64_val",
    "fw_tid": "int64_val",
    "op_schema": "string_val",
    "duration_ns": "int64_val",  # exact, where Node.duration_micros is rounded
}
"""Attribute name to the member that holds its value. The feeder of mlcommons/chakra reads exactly this member
and reads whatever that field holds if it is another one; ASTRA-sim's takes any integer and throws on the others."""

SIMULATED_COLLECTIVES = frozenset(
    {
        CollectiveCommType.ALL_REDUCE,
        CollectiveCommType.ALL_GATHER,
        CollectiveCommType.ALL_TO_ALL,
        CollectiveCommType.REDUCE_SCATTER,
    }
)
"""What ASTRA-sim simulates (`Workload::issue_coll_comm`); it replays broadcasts by their duration, others end it."""


def attribute(name: str, value: int | str | bool | Sequence[bool]) -> AttributeProto:
    """An attribute with its value in the right member.

    Raises:
        KeyError: a name that is not in `MEMBERS`.
        TypeError, ValueError: a value of another type, or out of the member's range.
    """
    member = MEMBERS[name]
    content = BoolList(values=value) if member == "bool_list" else value  # type: ignore[arg-type]
    return AttributeProto(name=name, **{member: content})  # type: ignore[arg-type]
