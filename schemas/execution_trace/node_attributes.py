"""The attributes that ET nodes of all schemas have."""

from __future__ import annotations

from typing import Any

import msgspec

ATTRIBUTES = {"rf_id": 0, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 0, "fw_tid": 0}
"""The attributes that are columns, in the order in which PyTorch writes them, with the value for "none"."""


class Attr(msgspec.Struct, gc=False):
    """Any attribute of a node."""

    name: str
    value: Any = None


def attribute_type(name: str, number: Any = int) -> Any:
    """A type whose tag is the attribute's name, so that in its place no other attribute decodes.

    Args:
        number: type of the value of those in ATTRIBUTES.
    """
    kind = number if name in ATTRIBUTES else Any
    return msgspec.defstruct(name, [("value", kind)], tag_field="name", tag=name, gc=False)
