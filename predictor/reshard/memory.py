"""Memory of a rank: parameters, gradients, optimizer state, and activations that backward keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from .calls import VIEWS, Call
from .program import Derivation
from .schedule import actions
from .structure import Unit

__all__ = ["Memory", "memory_of"]

_STATES = {"Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "Adagrad": 1, "RMSprop": 1, "Adadelta": 2}
"""Tensors of the size of a parameter that an optimizer keeps for each (torch.optim); momentum is seen in its calls."""


@dataclass(frozen=True)
class Memory:
    """Bytes of one rank at the peak of a step.

    Attributes:
        parameters, gradients, optimizer: of what the rank keeps all the time.
        activations: results of forward that backward needs, of all microbatches that are in flight together.
        gathered: parameters and gradients of units that FSDP has whole, and buckets of DDP.
    """

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    gathered: int

    @property
    def total(self) -> int:
        """All together."""
        return self.parameters + self.gradients + self.optimizer + self.activations + self.gathered

    def to_dict(self) -> dict[str, int]:
        """JSON-ready, bytes."""
        return {
            "parameters": self.parameters, "gradients": self.gradients, "optimizer": self.optimizer,
            "activations": self.activations, "gathered": self.gathered, "total": self.total,
        }  # fmt: skip


def memory_of(derivation: Derivation, stage: int) -> Memory:
    """Estimate the memory of a rank of a stage.

    Activations are the results of operators that forward makes, other than views, and that are alive at the end of
    forward: those that backward takes.
    """
    layout = derivation.layout
    parameters = derivation.parameters(stage)
    sizes = {one.number: prod(derivation.sizes(one)) * one.itemsize for one in parameters}
    whole = sum(sizes.values())
    part = -(-whole // layout.dp)
    states = _states(derivation)
    flights = _in_flight(derivation, stage)
    activations = sum(_activations(derivation, unit) for unit in derivation.units(stage)) * flights
    if stage == layout.pp - 1:
        activations += _of_loss(derivation)
    units = [sum(sizes[one.number] for one in unit.parameters) for unit in derivation.units(stage)]
    sharded = layout.dp > 1
    gathered = 0
    if sharded and layout.zero == 3:
        gathered = 2 * max(units, default=0)
    elif sharded:
        gathered = sum(one.elements * one.itemsize for one in derivation.buckets(stage))
    return Memory(
        parameters=part if sharded and layout.zero == 3 else whole,
        gradients=part if sharded and layout.zero == 3 else 0 if sharded else whole,
        optimizer=states * (part if sharded and layout.zero else whole),
        activations=activations,
        gathered=gathered,
    )


def _states(derivation: Derivation) -> int:
    """Tensors of optimizer state for each parameter, by the optimizer's name and calls."""
    for step, _ in derivation.model.optimizer:
        name = step.name.partition("#")[2].partition(".")[0]
        if name in _STATES:
            return _STATES[name]
        if name == "SGD":
            return int(any("mul" in call.name for call in step.children))
    return 0


def _in_flight(derivation: Derivation, stage: int) -> int:
    """The most microbatches whose activations a stage holds together."""
    layout = derivation.layout
    most = held = 0
    for action in actions(layout.schedule, stage, layout.pp, layout.steps_of_pipeline):
        held += {"forward": 1, "backward": -1}.get(action.what, 0)
        most = max(most, held)
    return most


def _activations(derivation: Derivation, unit: Unit) -> int:
    """Bytes that a unit's forward makes and its backward takes, in one microbatch."""
    return _kept(derivation, unit.forward, [one for call in unit.backward for one in call.walk()])


def _of_loss(derivation: Derivation) -> int:
    model = derivation.model
    return _kept(derivation, model.loss_forward, [one for call in model.loss_backward for one in call.walk()])


def _kept(derivation: Derivation, forward: list[Call], backward: list[Call]) -> int:
    """Bytes of storages that forward calls make and backward calls take."""
    changed: Mapping[int, int] = derivation.changed
    model = derivation.model
    made: dict[int, int] = {}
    for call in forward:
        for one in call.walk():
            if one.name in VIEWS:
                continue
            shapes = [shape for tensors in one.results for shape in tensors if shape is not None]
            for value, shape in zip(one.storages("outputs"), shapes, strict=False):
                made[value[0]] = prod(model.shape(shape, changed)) * value[1]
    taken = {value[0] for one in backward for value in one.storages("inputs")}
    return sum(size for storage, size in made.items() if storage in taken)
