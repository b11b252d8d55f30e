"""Inputs and outputs of an ET node as undecoded texts, in either layout."""

from __future__ import annotations

import msgspec

__all__ = ["FlatTensors", "Tensors"]


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
