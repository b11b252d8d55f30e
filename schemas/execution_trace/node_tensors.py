"""What ET nodes of all schemas have: attributes, and inputs and outputs as undecoded texts, in either layout."""

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


class Tensors(msgspec.Struct, gc=False, omit_defaults=True):
    """In the layout of schema 1.0.2 and later: objects with `values`, `shapes` and `types`."""

    inputs: msgspec.Raw = msgspec.Raw(b"{}")
    outputs: msgspec.Raw = msgspec.Raw(b"{}")


class FlatTensors(msgspec.Struct, gc=False):
    """In the layout of schema 1.0.1."""

    inputs: msgspec.Raw = msgspec.Raw(b"[]")
    input_shapes: msgspec.Raw = msgspec.Raw(b"[]")
    input_types: msgspec.Raw = msgspec.Raw(b"[]")
    outputs: msgspec.Raw = msgspec.Raw(b"[]")
    output_shapes: msgspec.Raw = msgspec.Raw(b"[]")
    output_types: msgspec.Raw = msgspec.Raw(b"[]")

    def nested(self) -> Tensors:
        """The same values in the later layout."""
        inputs = self.inputs, self.input_shapes, self.input_types
        outputs = self.outputs, self.output_shapes, self.output_types
        texts = (b'{"values":%b,"shapes":%b,"types":%b}' % tuple(map(bytes, one)) for one in (inputs, outputs))
        return Tensors(*map(msgspec.Raw, texts))
