"""Made calls of a step, with their tensors, and models of such calls."""

from collections.abc import Sequence
from math import prod
from typing import Any

from etplus.planning.reshape.shapes.extents import Extents
from etplus.planning.reshard.model import Model, Parameter, Unit, Weights
from etplus.planning.reshard.step_calls import Call
from etplus.trace.index import CallIndex
from etplus.trace.tensors import Argument, Signature, Tensor


class Made:
    """Makes calls: rows are numbered as they are made, an extent is one for each letter of a shape, with its size."""

    def __init__(self, **sizes: int) -> None:
        self.extents, self.rows = Extents(), 0
        self.of = {name: self.extents.new(size) for name, size in sizes.items()}

    def shape(self, letters: str) -> tuple[int, ...]:
        return tuple(self.of[letter] for letter in letters)

    def _value(self, number: int, letters: str) -> list[Any]:
        """A tensor as ETs name it."""
        return [number, number + 100, 0, prod(self.extents.sizes(self.shape(letters))), 4, "cpu"]

    def call(
        self, name: str, inputs: Sequence[Any] = (), outputs: Sequence[Any] = (), *children: Call, sequence: int = -1,
        operator: bool = True, dtype: str = "float32",
    ) -> Call:  # fmt: skip
        """A call; its sides are of (number of a tensor, letters of its shape), or lists of such."""
        self.rows += 1
        sides = [[one if isinstance(one, list) else [one] for one in side] for side in (inputs, outputs)]
        shapes = [tuple(tuple(self.shape(letters) for _, letters in one) for one in side) for side in sides]
        arguments, results = (
            tuple(Argument(tuple(Tensor(tuple(self.extents.sizes(shape)), dtype) for shape in one)) for one in side)
            for side in shapes
        )
        record = {
            key: {
                "values": [
                    [self._value(number, letters) for number, letters in one]
                    if isinstance(given, list) else self._value(*one[0])
                    for given, one in zip(whole, side, strict=True)
                ]
            }
            for key, whole, side in zip(("inputs", "outputs"), (inputs, outputs), sides, strict=True)
        }  # fmt: skip
        signature = Signature(arguments, tuple(tensor for one in results for tensor in one.tensors))
        row = self.rows
        return Call(
            row, CallIndex(row), name, operator, row * 10, row * 10 + 5, sequence, shapes[0], shapes[1], signature,
            record, "", list(children),
        )  # fmt: skip


def made_model(made: Made, units: Sequence[Unit], **more: Any) -> Model:
    parameters = sorted((p for unit in units for p in unit.parameters), key=lambda one: one.number)
    rest: dict[str, Any] = {
        "trace": None, "before": [], "loss_forward": [], "loss_backward": [], "after": [], "optimizer": [],
        "batch": -1, "given": (), "parameters": parameters, "weights": Weights(parameters),
    }  # fmt: skip
    return Model(extents=made.extents, units=list(units), **(rest | more))


def parameter(made: Made, number: int, letters: str, unit: int = 0) -> Parameter:
    return Parameter(number, made.shape(letters), 4, "float32", unit)
