"""Memory of a rank: parameters, gradients, optimizer state, activations, by the lives of tensors in its program."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import prod

from ..trace.brief import brief
from ..trace.intervals import most_at_once
from .items import RecordedOp, Shard
from .rank_program import Derivation
from .step_calls import VIEWS, Call, tensor_values
from .structure import ACCUMULATE

_STATES = {"Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "Adagrad": 1, "RMSprop": 1, "Adadelta": 2}
"""Tensors of the size of a parameter that an optimizer keeps for each (torch.optim); momentum is seen in its calls."""


@dataclass(frozen=True)
class Memory:
    """Bytes of one rank.

    Attributes:
        parameters, gradients, optimizer: what the rank keeps.
        activations: the most that other results of operators take together.
        buffers: DDP's buckets; with FSDP a unit's gathered parameters, and the next one's.
        total: at the moment that takes the most: gradients come while activations go.
    """

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    buffers: int
    total: int

    __repr__ = brief

    def to_dict(self) -> dict[str, int]:
        """JSON-ready, bytes."""
        return asdict(self)


def memory_of(derivation: Derivation, stage: int) -> Memory:
    """Estimate the memory of the first rank of a stage."""
    layout = derivation.layout
    sizes = {one.number: prod(derivation.sizes(one)) * one.itemsize for one in derivation.parameters(stage)}
    whole = sum(sizes.values())
    shard = Shard(layout.dp, 0, flat=layout.zero < 3)
    part = sum(shard.padded(derivation.sizes(one)) * one.itemsize for one in derivation.parameters(stage))
    gathers = layout.zero == 3 and layout.dp > 1
    buffers = 0
    if gathers:
        units = [sum(sizes[one.number] for one in unit.parameters) for unit in derivation.units(stage)]
        buffers = max(map(sum, zip(units, [0, *units], strict=False)), default=0)
    elif layout.dp > 1:
        buffers = sum(one.elements * one.itemsize for one in derivation.buckets(stage))
    blocks = _blocks(derivation, stage)
    others = [(one.begin, one.last, one.size) for one in blocks if not one.gradient]
    end = max((one.last for one in blocks), default=0)
    kept = [(one.begin, end, one.size // (layout.dp if gathers else 1)) for one in blocks if one.gradient]
    mine = part if gathers else whole
    states = _states(derivation) * (part if layout.zero and layout.dp > 1 else whole)
    moment = max(most_at_once([*others, *kept]), mine)
    return Memory(mine, mine, states, most_at_once(others), buffers, mine + states + buffers + moment)


def _states(derivation: Derivation) -> int:
    """Tensors of optimizer state for each parameter, by the optimizer's name and calls."""
    for step, _ in derivation.model.optimizer:
        name = step.name.partition("#")[2].partition(".")[0]
        if name in _STATES:
            return _STATES[name]
        if name == "SGD":
            return int(any("mul" in call.name for call in step.children))
    return 0


@dataclass
class _Block:
    """Memory that an operator allocated: the calls that use it first and last, bytes, whether it is a gradient's."""

    begin: int
    last: int
    size: int = 0
    gradient: bool = False


class _Lives:
    """Blocks of memory by the tensors' storages, whose numbers are addresses and used again.

    A new block begins where a call that is not a view returns a storage that neither it nor a call within was given.
    """

    def __init__(self, derivation: Derivation) -> None:
        self.model, self.place = derivation.model, 0
        self.blocks: list[_Block] = []
        self._current: dict[tuple[int, int], _Block] = {}

    def add(self, item: RecordedOp, call: Call) -> None:
        """Follow a call and those below it."""
        begin = self.place = self.place + 1
        given = {value[1] for value in tensor_values(call.record.get("inputs"))}
        for storage in given:
            block = self._current.get((storage, item.microbatch))
            if block is not None:
                block.last, block.gradient = begin, block.gradient or ACCUMULATE in call.name
        for child in call.children:
            self.add(item, child)
        for value, shape in zip(tensor_values(call.record.get("outputs")), call.output_shapes, strict=False):
            key = value[1], item.microbatch
            block = self._current.get(key)
            mine = block is not None and block.begin >= begin
            if value[1] not in given and not mine and ("empty" in call.name or call.name not in VIEWS):
                self._current[key] = block = _Block(begin, begin)
                self.blocks.append(block)
            if block is not None:
                block.size = max(block.size, prod(self.model.shape(shape, item.changed)) * value[4])
                block.last = self.place


def _blocks(derivation: Derivation, stage: int) -> list[_Block]:
    """The blocks that operators allocate before the optimizer's step."""
    lives = _Lives(derivation)
    for item in derivation.program(derivation.layout.rank(0, 0, stage)):
        if isinstance(item, RecordedOp) and not item.call.name.startswith("Optimizer."):
            lives.add(item, item.call)
    return lives.blocks
