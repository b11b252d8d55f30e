"""Estimate the memory of a rank: parameters, optimizer state, and the peak over the tensors in its program.

Example: with AdamW and FSDP over 4 ranks, a model with 1 GB of parameters needs 0.25 GB for parameters and 0.5 GB for
optimizer state per rank. The estimate then follows the calls in order: a result lives until its last use, and the
gathered parameters of a unit live until the next gather. The peak of the live bytes is added.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass
from math import prod

from ...trace.brief import brief
from ...trace.intervals import most_at_once
from .derivation import Derivation
from .items import CommOp, CommWait, Item, RecordedOp, Shard, SyntheticOp
from .model import ACCUMULATE, Parameter, accumulations
from .rank_program import program
from .resized_calls import ResizedCalls
from .step_calls import VIEWS, Call, walked

# Maps torch.optim's optimizers to their number of state tensors per parameter. SGD's momentum is detected from calls.
_STATES = {"Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "Adagrad": 1, "RMSprop": 1, "Adadelta": 2}


@dataclass(frozen=True)
class Memory:  # all fields are in bytes
    parameters: int
    gradients: int
    optimizer: int
    activations: int  # peak of all live results except gradients
    buffers: int  # DDP's buckets, or FSDP's communication buffers
    total: int  # overall peak; less than the sum of the parts, because gradients grow while activations shrink

    __repr__ = brief


def memory_of(derivation: Derivation, stage: int) -> Memory:
    layout = derivation.layout
    parameters = derivation.parameters(stage)
    whole = sum(prod(derivation.sizes(parameter)) * parameter.itemsize for parameter in parameters)
    shard = Shard(layout.dp, 0, flat=layout.zero < 3)
    part = sum(shard.padded(derivation.sizes(parameter)) * parameter.itemsize for parameter in parameters)
    gathers = layout.zero == 3 and layout.dp > 1
    buckets = 0
    if layout.dp > 1 and not gathers:
        buckets = sum(bucket.elements * bucket.itemsize for bucket in derivation.buckets(stage))
    lives = _Lives(derivation, stage)
    lives.follow(program(derivation, derivation.layout.rank(0, 0, stage)))
    end = lives.place
    others = [(block.begin, block.last, block.size) for block in lives.blocks if block.owner is None]
    kept = [
        (block.begin, end if block.last_use is None else block.last_use, block.size)
        for block in lives.blocks
        if block.owner is not None
    ]
    around = [(block.begin, block.last, block.size) for block in lives.communicated]
    frozen = sum(
        (shard.padded(sizes) if gathers else prod(sizes)) * parameter.itemsize
        for parameter, sizes in ((one, derivation.sizes(one)) for one in _frozen(derivation, stage))
    )
    mine = part if gathers else whole
    states = _states(derivation) * (part if layout.zero and layout.dp > 1 else whole)
    gradients = mine if derivation.model.trains else 0
    moment = max(most_at_once([*others, *kept, *around]), gradients)
    buffers = most_at_once(around) if gathers else buckets
    total = mine + frozen + states + buckets + moment
    return Memory(mine + frozen, gradients, states, most_at_once(others), buffers, total)


def _frozen(derivation: Derivation, stage: int) -> set[Parameter]:
    calls = walked(call for unit in derivation.units(stage) for call in unit.forward)
    return {one for call in calls for one in derivation.model.weights.read(call) if one.frozen}


def _states(derivation: Derivation) -> int:
    for step, _ in derivation.model.optimizer:
        name = step.name.partition("#")[2].partition(".")[0]
        if name in _STATES:
            return _STATES[name]
        if name == "SGD":
            return int(any("mul" in call.name for call in step.children))
    return 0


@dataclass
class _Block:
    begin: int
    last: int
    size: int = 0
    owner: int | None = None  # if the block holds a gradient, the row of the call that accumulates it
    last_use: int | None = None  # position at which FSDP finishes reducing the gradient


class _Lives:
    """Tracks the lifetimes of memory blocks. Several blocks may have the same storage number, one after another.

    A block starts when a call that is not a view returns a storage that was not among its inputs. Blocks for FSDP2
    follow `FSDPParamGroup` (torch/distributed/fsdp/_fully_shard).
    """

    def __init__(self, derivation: Derivation, stage: int) -> None:
        self.place, self._sizes = 0, ResizedCalls(derivation)
        self._copies = not len(derivation.model.trace.gpu)  # Gloo copies the inputs of gathers and reductions
        self.blocks: list[_Block] = []
        self.communicated: list[_Block] = []
        self._current: dict[tuple[int, int], _Block] = {}
        self._gathered: dict[str, list[_Block]] = {}
        self._whole: dict[str, list[_Block]] = {}
        self._forward: list[_Block] = []
        self._reduced: list[_Block] = []
        self._kept: list[_Block] = []
        self._added = False
        passes, last = derivation.model.passes, derivation.units(stage)[-1].number
        self._last_rows = {one.units[last].forward[-1].row for one in passes}
        wraps = derivation.wraps if derivation.layout.zero == 3 else []
        self._ends = {
            calls[-1].row: wrap.label
            for one in passes
            for wrap in wraps
            if not wrap.root and wrap.units[1] >= 0
            for calls in (
                one.units[wrap.units[1]].forward if derivation.gathered_again(wrap) else [],
                one.units[wrap.units[0]].backward,
            )
            if calls
        }
        self._wrap_of = {number: wrap.label for wrap in derivation.wraps for number in wrap.parameters}
        self._ready = {
            inner.row: self._wrap_of.get(unit.ready[call.row].number, "")
            for one in passes
            for unit in one.units
            for call in accumulations(unit.backward)
            if call.row in unit.ready
            for inner in call.walk()
        }

    def follow(self, items: Iterable[Item]) -> None:
        for item in items:
            if isinstance(item, RecordedOp):
                if item.call.name.startswith("Optimizer.") and self._reduced:
                    self._close(self._reduced)
                    self._reduced = []
                self.add(item, item.call)
                if item.call.row in self._ends:
                    self._close(self._whole.pop(self._ends[item.call.row], []))
                if item.call.row in self._last_rows:
                    self._close(self._forward)
                    self._forward = []
            elif isinstance(item, CommOp) and item.kind == "all_gather" and item.key is not None:
                gathered = self._communicate(item.out_elements * item.itemsize)
                self._gathered.setdefault(str(item.key), []).append(gathered)
            elif isinstance(item, CommWait):
                for key in item.keys:
                    self._copy_out(key)
            elif isinstance(item, SyntheticOp) and item.wrap is not None:
                self._reduce(item)
            elif isinstance(item, SyntheticOp) and item.name == "aten::add_" and self._reduced:
                self._added = True  # the call adds gradients to an earlier microbatch's gradients
        if self._added:
            self._kept.pop().last = self.place
        self._close(self._kept)

    def _allocate(self, size: int) -> _Block:
        self.place += 1
        self.communicated.append(_Block(self.place, self.place, size))
        return self.communicated[-1]

    def _communicate(self, size: int) -> _Block:
        """Allocate the memory of a collective. Gloo needs twice the memory while the collective runs."""
        block = self._allocate(size)
        if self._copies:
            self._allocate(size)
        return block

    def _copy_out(self, key: str) -> None:
        """Copy gathered parameters out. In backward the old memory is freed at once, in forward at the next gather."""
        outputs, (_, _, rest) = self._gathered.pop(key, []), key.partition(" ")
        again, label = rest.startswith("again "), rest.removeprefix("again ").rpartition(" ")[0]
        if outputs and not again:
            self._close(self._forward + self._whole.pop(label, []))
            self._forward = outputs
        self._whole.setdefault(label, []).extend([self._allocate(output.size) for output in outputs])
        self._close(outputs)

    def _reduce(self, item: SyntheticOp) -> None:
        """Free the unit's unsharded parameters and the previous unit's copy, then copy and free the gradients."""
        self._close(self._whole.pop(item.wrap or "", []))
        self._close(self._reduced)
        if self._added:
            self._kept.pop().last = self.place
            self._added = False
        size = prod(item.inputs[-1]) * item.itemsize
        self._reduced = [self._allocate(size)]
        for block in self.blocks:
            if block.owner is not None and block.last_use is None and self._ready.get(block.owner) == item.wrap:
                block.last_use = self.place
        self._kept.append(self._allocate(size // max(item.inputs[-1][0], 1)))
        if self._copies:
            self._allocate(size)
        self._close(self._reduced)

    def _close(self, blocks: list[_Block]) -> None:
        for block in blocks:
            block.last = self.place

    def add(self, item: RecordedOp, call: Call, returned: Set[int] = frozenset()) -> None:
        begin = self.place = self.place + 1
        given = {value[1] for value in call.tensors("inputs")}
        steals = ACCUMULATE in call.name and not any(inner.name == "aten::add_" for inner in call.walk())
        for storage in given - returned:
            block = self._current.get((storage, item.microbatch))
            if block is not None:
                block.last = begin
                if steals and block.owner is None:
                    block.owner = call.row
        made = {value[1] for value in call.tensors("outputs")} - given if call.children else set()
        for child in call.children:
            self.add(item, child, returned | made)
        sizes = self._sizes.new_sizes(item, call, "outputs")
        for value, shape in zip(call.tensors("outputs"), sizes, strict=False):
            key = value[1], item.microbatch
            block = self._current.get(key)
            mine = block is not None and block.begin >= begin
            if value[1] not in given and not mine and ("empty" in call.name or call.name not in VIEWS):
                self._current[key] = block = _Block(begin, begin)
                self.blocks.append(block)
            elif value[1] in returned:
                continue
            if block is not None:
                block.size = max(block.size, prod(shape) * value[4])
                block.last = self.place
