"""The model of one recorded training step on one device, as typed data for the other modules of this package.

`structure.read_model` builds a `Model` of `Unit`s (a block with a residual connection, or a single layer)
with their forward and backward calls, `Parameter`s numbered as in the optimizer, `Buffer`s, and FSDP units (`Wrap`).
Sizes are classes of equal extents (`Extents`): the batch size is such a class, and a layout assigns new values to
classes.

Example: a two-layer MLP has two units with one `aten::linear` each, four parameters (0 to 3), and `batch`, the class of
the first extent of both activations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from math import prod
from typing import Literal, NamedTuple

from ...trace.brief import brief
from ...trace.dtypes import itemsize
from ...trace.trace import Trace
from ..reshape.shapes.extents import Extents
from ..reshape.shapes.terms import Shape
from .items import Shard
from .step_calls import Call, walked

ACCUMULATE = "torch::autograd::AccumulateGrad"
# For each GEMM operator, the argument positions of its two factors.
PRODUCTS = {"aten::mm": (0, 1), "aten::addmm": (1, 2), "aten::bmm": (0, 1), "aten::baddbmm": (1, 2)}
Evidence = Literal["optimizer", "shapes", "use"]


@dataclass(eq=False)
class Parameter:
    """A parameter of the model. Tied weights are a single parameter."""

    number: int  # index in optimizer order (`model.parameters()`)
    shape: Shape
    itemsize: int
    dtype: str
    unit: int = -1  # number of the first unit that uses the parameter; −1 if unknown
    use: int = -1  # index of the first use; −1 if unknown
    storage: int = -1  # storage in the forward pass; −1 if unknown
    elements: int = 0
    accumulates: bool = True  # True if the parameter has a gradient
    frozen: bool = False  # True if the parameter has no gradient and no update; FSDP still gathers it

    __repr__ = brief


@dataclass(frozen=True)
class Buffer:
    """A tensor of the model that the optimizer does not change."""

    sizes: tuple[int, ...]
    dtype: str
    itemsize: int
    written: bool  # True if the forward pass changes the buffer (running statistics)

    __repr__ = brief


class GivenTensor(NamedTuple):
    """An input or output tensor of a call: its extents, and its place in a storage."""

    number: int
    shape: Shape
    dtype: str
    itemsize: int
    storage: int = -1
    offset: int = 0


class Region(NamedTuple):
    """A range [begin, end) of a storage's elements that belongs to a parameter."""

    begin: int
    end: int
    parameter: Parameter


# A list of optimizer steps and their calls. Each call has its parameter, or None if it applies to all parameters.
Owned = list[tuple[Call, list[tuple[Call, "Parameter | None"]]]]
Lists = Mapping[int, Sequence[Parameter]]  # maps a list length to the parameters of the list's entries


@dataclass
class Weights:
    parameters: list[Parameter] = field(default_factory=list)  # in optimizer order
    optimizer: Owned = field(default_factory=list)
    # Evidence that these are parameters. "optimizer" means that the optimizer changes memory that forward reads.
    # "shapes" means that it changes tensors of the same shapes. "use" means that layers use the tensors as weights.
    evidence: Evidence = "optimizer"
    by_storage: dict[int, list[Region]] = field(default_factory=dict)  # keyed by storage in the forward pass
    by_number: dict[int, Parameter] = field(default_factory=dict)  # keyed by tensor number in the forward pass
    by_shard: dict[int, Parameter] = field(default_factory=dict)  # keyed by the storage of the parameter's shard (FSDP)
    part: Shard | None = None  # the recorded optimizer updates this part of every parameter; None means all
    frozen: list[Parameter] = field(default_factory=list)  # numbered after the last of `parameters`
    # If the optimizer has several parameter groups, maps the row of each call on lists to the parameters in the lists.
    lists: dict[int, Lists] = field(default_factory=dict)

    __repr__ = brief

    @property
    def every(self) -> list[Parameter]:
        return [*self.parameters, *self.frozen]

    def lists_of(self, call: Call) -> Lists:
        """For the lists in an optimizer call, map the length of a list to the parameters of its entries."""
        return self.lists.get(call.row, {len(self.parameters): self.parameters})

    def taken(self, call: Call) -> Iterator[Parameter]:
        return (parameter for parameter in self.read(call) if not parameter.frozen)

    def read(self, call: Call) -> Iterator[Parameter]:
        """Yield the parameters and frozen weights among the inputs of a call."""
        for value in call.tensors("inputs"):
            yield from self.within(value)

    def takes(self, call: Call) -> bool:
        return any(True for inner in call.walk() for _ in self.taken(inner))

    def freeze(self, found: Iterable[Parameter]) -> None:
        self.frozen += found
        self.by_storage |= {weight.storage: [Region(0, 1 << 62, weight)] for weight in self.frozen}

    def within(self, value: Sequence[int]) -> Sequence[Parameter]:
        """Return the parameters that contain, or are in, an ET tensor [number, storage, offset, elements, …]."""
        regions = self.by_storage.get(value[1])
        if regions is None:
            known = self.by_number.get(value[0])
            return () if known is None else (known,)
        if len(regions) == 1:
            return (regions[0].parameter,)
        begin, count = value[2], value[3]
        return [r.parameter for r in regions if r.begin <= begin < r.end or begin <= r.begin < r.end <= begin + count]

    def of(self, value: Sequence[int]) -> Parameter | None:
        return next(iter(self.within(value)), None)


@dataclass
class RecordedWrap:
    """A recorded FSDP2 unit: the storages of its shards, and timestamped storages of its parameters and gradients."""

    label: str
    shards: tuple[int, ...] = ()
    gathered: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    gradients: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)

    __repr__ = brief


@dataclass(eq=False)
class Wrap:
    """An FSDP unit: parameters that FSDP gathers and reduces together."""

    label: str  # module name or block number; "" for the root
    parameters: list[int] = field(default_factory=list)
    units: tuple[int, int] = (-1, -1)  # the first and the last `Unit` that use the parameters
    again: bool | None = None  # True if the recorded job gathers the parameters again in backward; None if unknown

    __repr__ = brief

    @property
    def root(self) -> bool:
        return not self.label


@dataclass(eq=False)
class Unit:
    """A part of the model with one tensor at each end: a block with a residual connection, or a single layer."""

    number: int
    forward: list[Call]  # topmost forward calls
    backward: list[Call] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)  # in order of first use
    ready: dict[int, Parameter] = field(default_factory=dict)  # maps rows of AccumulateGrad calls to parameters
    # units with the same operators and parameter shapes have the same kind
    kind: str = ""
    output: Shape = ()  # extents of the output tensor
    dtype: str = "float"
    itemsize: int = 4
    alone: bool = True  # True if no other activation is live at the unit's end, so that a pipeline can be cut there

    __repr__ = brief


@dataclass(eq=False)
class Pass:
    """A forward and backward pass: one recorded microbatch."""

    units: list[Unit]
    loss_forward: list[Call]
    loss_backward: list[Call]
    batch: int  # extent class of the pass's batch size; −1 if unknown

    __repr__ = brief


@dataclass(eq=False)
class Model:
    trace: Trace
    extents: Extents
    units: list[Unit]
    parameters: list[Parameter]
    before: list[Call]
    loss_forward: list[Call]
    loss_backward: list[Call]
    after: list[Call]  # calls between backward and the optimizer
    optimizer: Owned
    batch: int  # extent class of the batch size; −1 if unknown
    given: tuple[int, ...]  # extents of all external tensors
    further: list[Pass] = field(default_factory=list)  # further passes of a step that accumulates gradients
    weights: Weights = field(default_factory=Weights)
    buffers: list[Buffer] = field(default_factory=list)  # buffers that DDP broadcasts
    wraps: list[Wrap] = field(default_factory=list)  # recorded FSDP units
    blocks: list[Wrap] = field(default_factory=list)  # FSDP units inferred from repeated calls
    # buffers that had to be inferred because no broadcast was recorded
    inferred: list[Buffer] = field(default_factory=list)
    sink: Shape | None = None  # extents of the model output; if `find_unused_parameters` is set, DDP copies the output
    finds_unused: bool = False
    loose_blocks: bool = False  # True if a different division into `blocks` is equally likely
    own_buffers: bool = False  # True if DDP's broadcast of `buffers` was recorded
    unreached: int = 0  # number of weights that the loss does not depend on
    optimizer_parts: int = 1  # the recorded optimizer's state is sharded over this many ranks
    unmatched: int = 0  # number of gradients that belong to no known parameter
    data: list[Shape] = field(default_factory=list)  # external tensors that may have a batch dimension
    left_out: list[Call] = field(default_factory=list)  # calls around gradient norms that a new layout omits
    step: list[Call] = field(default_factory=list)  # topmost calls of the step
    window: tuple[int, int] = (0, 0)  # start and end of the step, in ns

    __repr__ = brief

    @property
    def trains(self) -> bool:
        return any(unit.backward for unit in self.units)

    @property
    def passes(self) -> list[Pass]:
        return [Pass(self.units, self.loss_forward, self.loss_backward, self.batch), *self.further]

    @property
    def batches(self) -> list[int]:
        return [one.batch for one in self.passes if one.batch >= 0]

    @property
    def samples(self) -> int:
        return sum(self.extents.value[batch] for batch in self.batches)

    def calls(self) -> Iterator[Call]:
        parts = [self.before]
        for one in self.passes:
            parts += [*(unit.forward for unit in one.units), one.loss_forward, one.loss_backward]
            parts += [unit.backward for unit in reversed(one.units)]
        parts += [self.after, [call for call, _ in self.optimizer]]
        return walked(chain.from_iterable(parts))

    def forward_calls(self) -> Iterator[Call]:
        return walked(call for unit in self.units for call in unit.forward)

    def attentions(self) -> Iterator[list[Shape]]:
        """Yield the extents of query, key and value of each attention in the forward pass."""
        for call in self.forward_calls():
            if "attention" in call.name:
                yield [shape for tensors in call.inputs[:3] for shape in tensors if shape is not None]

    def users(self, parameter: Parameter) -> set[int]:
        """Return the numbers of the units that use a parameter in forward."""
        takes = self.weights.taken
        return {unit.number for unit in self.units for call in walked(unit.forward) if parameter in takes(call)}

    def elements(self, parameters: Iterable[Parameter] | None = None) -> int:
        chosen = self.parameters if parameters is None else parameters
        return sum(prod(self.extents.sizes(parameter.shape)) for parameter in chosen)

    def size(self, extent: int, changed: Mapping[int, int]) -> int:
        return prod(self._size(leaf, changed) for leaf in self.extents.leaves([extent]))

    def _size(self, leaf: int, changed: Mapping[int, int]) -> int:
        if leaf in changed or leaf not in self._sums:
            return changed.get(leaf, self.extents.value[leaf])
        parts = self._sums[leaf]
        if changed.keys().isdisjoint(self.extents.leaves(parts)):
            return self.extents.value[leaf]
        return sum(self.size(part, changed) for part in parts)

    def shape(self, shape: Iterable[int], changed: Mapping[int, int]) -> list[int]:
        return [self.size(extent, changed) for extent in shape]

    def leaves(self, extents: Iterable[int]) -> list[int]:
        """Return the classes that make up extents: factors of products, and terms of sums (q, k and v of one GEMM)."""
        found: dict[int, None] = {}
        stack = self.extents.leaves(extents)[::-1]
        while stack:
            root = stack.pop()
            parts = self._sums.get(root, ()) if root not in found else ()
            found[root] = None
            stack += self.extents.leaves(parts)[::-1]
        return list(found)

    def leaves_of(self, call: Call) -> set[int]:
        return {leaf for shape in call.shapes for leaf in self.leaves(shape)}

    def parts(self, shape: Iterable[int]) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(self.extents.leaves([extent])) for extent in shape)

    @cached_property
    def _sums(self) -> dict[int, tuple[int, ...]]:
        return dict(self.extents.sums)


def contracted(call: Call) -> tuple[int, ...]:
    """Return the extents that a GEMM sums over; () for other calls."""
    if call.name not in PRODUCTS:
        return ()
    left = PRODUCTS[call.name][0]
    tensors = call.inputs[left] if left < len(call.inputs) else ()
    shape = tensors[0] if tensors else None
    return shape[-1:] if shape else ()


def given_tensors(call: Call) -> list[GivenTensor]:
    """Return the input tensors of a call; an empty list if some are not recorded."""
    values = list(call.tensors("inputs"))
    signature = call.signature.tensors if call.signature is not None else ()
    if not len(values) == len(call.input_shapes) == len(signature):
        return []
    return [
        GivenTensor(value[0], shape, tensor.dtype, itemsize(tensor.dtype) or value[4], value[1], value[2])
        for value, shape, tensor in zip(values, call.input_shapes, signature, strict=True)
    ]


def accumulations(calls: Iterable[Call]) -> Iterator[Call]:
    """Yield AccumulateGrad calls, including calls inside reentrant checkpointing."""
    for call in calls:
        if ACCUMULATE in call.name:
            yield call
        else:
            yield from accumulations(call.children)
