"""The attributes that etplus itself puts on Chakra nodes, beside those that readers know: what the way back needs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ..schemas.chakra.attributes import MEMBERS, attribute
from ..schemas.chakra.encode import Cells, attribute_cells
from ..schemas.chakra.et_def_pb2 import AttributeProto, Int32List, Int64List, Node
from ..trace.columns import IntColumn

OWN_MEMBERS = {
    "start_ns": "int64_val",  # exact, where Node.start_time_micros is rounded
    "inclusive_ns": "int64_val",  # as measured; absent if it equals duration_ns
    "exclusive_ns": "int64_val",  # the same
    "data_dep_kinds": "int32_list",  # one entry a data_deps entry: the kinds of edges it stands for, a bit each
    "call_parent": "int64_val",  # id of the caller where ctrl_deps cannot hold it
    "cat": "string_val",  # Kineto's category of a GPU event; "runtime" for a runtime or driver call
    "device": "int64_val",
    "correlation": "int64_val",
    "kineto_event": "int64_val",
    "link": "string_val",
    "inter_thread_dep": "int64_val",
    "sync_dep": "int64_list",
    "kineto_tid": "string_val",  # of a runtime call, as JSON
    "args": "string_val",  # Kineto's, as JSON
    "comm": "string_val",  # the whole `comm` object of ET+, as JSON
    "captured_by": "string_val",  # that of ET+, as JSON; `captured_graphs` is in the header
    "captured_op": "string_val",  # name of the operator that launched a replayed graph's kernel when it was captured
    "input_strides": "string_val",
    "output_strides": "string_val",
    "et_attrs": "string_val",  # further attributes of the ET node, as JSON
    "et_fields": "string_val",  # further fields of the ET+ node, as JSON
    "node_id": "int64_val",  # in a file with numbers of its own: the ET+ id
}
"""Attribute name to member, as `MEMBERS`."""


def make(name: str, value: Any) -> AttributeProto:
    """An attribute of either table.

    Raises:
        KeyError: a name that is in neither.
    """
    member = OWN_MEMBERS.get(name)
    if member is None:
        return attribute(name, value)
    if member == "int32_list":
        value = Int32List(values=value)
    elif member == "int64_list":
        value = Int64List(values=value)
    return AttributeProto(name=name, **{member: value})


def encoded(*attributes: AttributeProto) -> bytes:
    """Attributes as `Node` has them in its wire format.

    Example:
        >>> encoded(make("stream", 7))
        b'R\\n\\n\\x06streamH\\x07'
    """
    return Node(attr=attributes).SerializeToString()


@lru_cache(maxsize=1 << 14)
def shared(name: str, value: int | str | bytes | tuple[int, ...]) -> bytes:
    """One attribute, encoded, of a value that many nodes have; a text may be given as UTF-8."""
    return encoded(make(name, value))


def numbers(name: str, values: IntColumn, present: npt.NDArray[np.bool_] | None = None) -> Cells:
    """A numeric attribute of many nodes, see `attribute_cells`."""
    return attribute_cells(make(name, 0), values, present)


def values_of(attributes: Sequence[AttributeProto]) -> dict[str, Any]:
    """Values by name; of lists the list; those in another member than the tables say are left out."""
    values: dict[str, Any] = {}
    for one in attributes:
        member = OWN_MEMBERS.get(one.name) or MEMBERS.get(one.name)
        if member is not None and one.WhichOneof("value") == member:
            value = getattr(one, member)
            values[one.name] = list(value.values) if member.endswith("_list") else value
    return values
