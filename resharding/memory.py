"""Memory of a rank: parameters, optimizer state, and the lives of the tensors of its program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from ..trace.brief import brief
from ..trace.intervals import most_at_once
from .items import CommOp, CommWait, Item, RecordedOp, Shard, SyntheticOp
from .rank_program import Derivation
from .step_calls import VIEWS, Call, tensor_values
from .weights import ACCUMULATE

_STATES = {"Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "Adagrad": 1, "RMSprop": 1, "Adadelta": 2}
"""Tensors of the size of a parameter that an optimizer keeps for each (torch.optim); momentum is seen in its calls."""


@dataclass(frozen=True)
class Memory:
    """Bytes of one rank.

    Attributes:
        parameters, gradients, optimizer: what the rank keeps.
        activations: the most that other results of operators take together.
        buffers: DDP's buckets; with FSDP the most that gathered parameters and what is communicated take together.
        total: at the moment that takes the most: gradients come while activations go.
    """

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    buffers: int
    total: int

    __repr__ = brief


def memory_of(derivation: Derivation, stage: int) -> Memory:
    """Estimate the memory of the first rank of a stage."""
    layout = derivation.layout
    parameters = derivation.parameters(stage)
    whole = sum(prod(derivation.sizes(parameter)) * parameter.itemsize for parameter in parameters)
    shard = Shard(layout.dp, 0, flat=layout.zero < 3)
    part = sum(shard.padded(derivation.sizes(parameter)) * parameter.itemsize for parameter in parameters)
    gathers = layout.zero == 3 and layout.dp > 1
    buckets = 0
    if layout.dp > 1 and not gathers:
        buckets = sum(bucket.elements * bucket.itemsize for bucket in derivation.buckets(stage))
    lives = _lives(derivation, stage)
    end = lives.place
    others = [(block.begin, block.last, block.size) for block in lives.blocks if block.owner is None]
    kept = [
        (block.begin, end if block.last_use is None else block.last_use, block.size)
        for block in lives.blocks if block.owner is not None
    ]  # fmt: skip
    around = [(block.begin, block.last, block.size) for block in lives.communicated]
    mine = part if gathers else whole
    states = _states(derivation) * (part if layout.zero and layout.dp > 1 else whole)
    gradients = mine if derivation.model.trains else 0
    moment = max(most_at_once([*others, *kept, *around]), gradients)
    buffers = most_at_once(around) if gathers else buckets
    return Memory(mine, gradients, states, most_at_once(others), buffers, mine + states + buckets + moment)


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
    """Memory that an operator allocated: the calls that use it first and last, bytes; of a gradient the row of the call
    that accumulates it, and where FSDP has reduced it."""

    begin: int
    last: int
    size: int = 0
    owner: int | None = None
    last_use: int | None = None


class _Lives:
    """Blocks of memory by the tensors' storages, whose numbers are addresses and used again.

    A new block begins where a call that is not a view returns a storage that neither it nor a call within was given.
    """

    def __init__(self, derivation: Derivation) -> None:
        self.model, self.place = derivation.model, 0
        self.blocks: list[_Block] = []
        self.communicated: list[_Block] = []
        self._current: dict[tuple[int, int], _Block] = {}
        self._gathered: dict[str, list[_Block]] = {}
        self._whole: dict[str, list[_Block]] = {}
        self._reduced: list[_Block] = []
        self._kept: list[_Block] = []
        self._added = False
        self._ends = {
            one.units[wrap.units[1]].forward[-1].row: wrap.label
            for one in self.model.passes for wrap in (derivation.wraps if derivation.layout.zero == 3 else ())
            if not wrap.root and wrap.units[1] >= 0
        }  # fmt: skip
        self._wrap_of = {number: wrap.label for wrap in derivation.wraps for number in wrap.parameters}
        self._ready = {
            row: self._wrap_of.get(parameter.number, "")
            for one in self.model.passes for unit in one.units for row, parameter in unit.ready.items()
        }  # fmt: skip

    def follow(self, items: Iterable[Item]) -> None:
        """Follow the items of a program up to the optimizer's step."""
        for item in items:
            if isinstance(item, RecordedOp):
                if item.call.name.startswith("Optimizer."):
                    continue
                self.add(item, item.call)
                if item.call.row in self._ends:
                    self._close(self._whole.pop(self._ends[item.call.row], []))
            elif isinstance(item, CommOp) and item.kind == "all_gather" and item.key is not None:
                self._gather(item)
            elif isinstance(item, CommWait):
                for key in item.keys:
                    self._copy_out(key)
            elif isinstance(item, SyntheticOp) and item.wrap is not None:
                self._reduce(item)
            elif isinstance(item, SyntheticOp) and item.name == "aten::add_" and self._reduced:
                self._added = True  # to the part of an earlier microbatch
        if self._added:
            self._kept.pop().last = self.place
        for block in self._kept:
            block.last = self.place

    def _gather(self, comm: CommOp) -> None:
        """The output of an all-gather lives until it is copied to the parameters."""
        self.place += 1
        block = _Block(self.place, self.place, comm.out_elements * comm.itemsize)
        self.communicated.append(block)
        self._gathered.setdefault(str(comm.key), []).append(block)

    def _copy_out(self, key: str) -> None:
        outputs = self._gathered.pop(key, [])
        self.place += 1
        label = key.removeprefix("gather ").removeprefix("again ").rpartition(" ")[0]
        for output in outputs:
            output.last = self.place
            block = _Block(self.place, self.place, output.size)
            self.communicated.append(block)
            self._whole.setdefault(label, []).append(block)

    def _reduce(self, item: SyntheticOp) -> None:
        """Gradients are copied to be reduced; then they go, with the whole parameters. The copy stays until the next
        unit's."""
        self.place += 1
        self._close(self._reduced)
        if self._added:
            self._kept.pop().last = self.place
            self._added = False
        size = prod(item.inputs[-1]) * item.itemsize
        self._reduced = [_Block(self.place, self.place, size)]
        part = _Block(self.place, self.place, size // max(item.inputs[-1][0], 1))
        self.communicated += [*self._reduced, part]
        self._kept.append(part)
        self._close(self._whole.pop(item.wrap or "", []))
        for block in self.blocks:
            if block.owner is not None and block.last_use is None and self._ready.get(block.owner) == item.wrap:
                block.last_use = self.place

    def _close(self, blocks: list[_Block]) -> None:
        for block in blocks:
            block.last = self.place

    def add(self, item: RecordedOp, call: Call) -> None:
        """Follow a call and those below it."""
        begin = self.place = self.place + 1
        given = {value[1] for value in tensor_values(call.record.get("inputs"))}
        steals = ACCUMULATE in call.name and not any(inner.name == "aten::add_" for inner in call.walk())
        for storage in given:
            block = self._current.get((storage, item.microbatch))
            if block is not None:
                block.last = begin
                if steals and block.owner is None:
                    block.owner = item.call.row
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


def _lives(derivation: Derivation, stage: int) -> _Lives:
    """The blocks that are allocated before the optimizer's step."""
    lives = _Lives(derivation)
    lives.follow(derivation.program(derivation.layout.rank(0, 0, stage)))
    return lives
