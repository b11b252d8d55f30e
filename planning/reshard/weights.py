"""Parameters, their gradients and buffers of a recorded step, by the memory that the optimizer changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Literal, NamedTuple

from ...trace.brief import brief
from ...trace.dtypes import is_floating, itemsize
from ..reshape.shapes.followed_calls import Shapes
from ..reshape.shapes.terms import Shape, match
from .items import Shard
from .step_calls import Call, tensor_values, walked

if TYPE_CHECKING:
    from .wraps import RecordedWrap

ACCUMULATE = "torch::autograd::AccumulateGrad"
_BATCH_NORM = "aten::batch_norm"
Evidence = Literal["optimizer", "shapes", "use"]


@dataclass(eq=False)
class Parameter:
    """A parameter of the model; tied ones are one.

    Attributes:
        number: its place in the order of the optimizer (of `model.parameters()`).
        shape: extents. dtype: torch's name of the element type, as in ETs ("float").
        unit: which unit it belongs to. use: place of its first use in forward.
        storage: of the tensor in forward, −1 where it is not known.
        accumulates: it has a gradient. frozen: neither that nor an update, but FSDP gathers it with others.
    """

    number: int
    shape: Shape
    itemsize: int
    dtype: str
    unit: int = -1
    use: int = -1
    storage: int = -1
    elements: int = 0
    accumulates: bool = True
    frozen: bool = False

    __repr__ = brief


@dataclass(frozen=True)
class Buffer:
    """A tensor of the model that the optimizer does not change.

    Attributes:
        sizes: of the whole tensor. written: forward changes it (running statistics); else it is constant.
        dtype, itemsize: of an element.
    """

    sizes: tuple[int, ...]
    dtype: str
    itemsize: int
    written: bool

    __repr__ = brief


class GivenTensor(NamedTuple):
    """A tensor that a call takes: its number, extents, type, the size of an element, its storage and offset there."""

    number: int
    shape: Shape
    dtype: str
    itemsize: int
    storage: int = -1
    offset: int = 0


class Region(NamedTuple):
    """Elements [begin, end) of a storage that are a parameter's."""

    begin: int
    end: int
    parameter: Parameter


Owned = list[tuple[Call, list[tuple[Call, "Parameter | None"]]]]
Lists = Mapping[int, Sequence[Parameter]]
"""Of lists with so many entries, the parameter of each entry."""


@dataclass
class Weights:
    """What is known of the parameters of a step.

    Attributes:
        parameters: in the optimizer's order.
        optimizer: of each call of the optimizer's steps, whose parameter it is for (None: of all).
        evidence: how they were found: changed by the optimizer in the memory that forward reads ("optimizer"), of equal
            shapes with what it changes ("shapes"), or taken as weights by layers ("use").
        by_storage, by_number: of tensors in forward. by_shard: by the storage of a rank's part (FSDP).
        part: which part of parameters the recorded optimizer has, None for the whole ones.
        frozen: weights that the optimizer does not change, numbered after the parameters.
        lists: of the optimizer's calls on lists, by row, where these are of groups of parameters.
    """

    parameters: list[Parameter] = field(default_factory=list)
    optimizer: Owned = field(default_factory=list)
    evidence: Evidence = "optimizer"
    by_storage: dict[int, list[Region]] = field(default_factory=dict)
    by_number: dict[int, Parameter] = field(default_factory=dict)
    by_shard: dict[int, Parameter] = field(default_factory=dict)
    part: Shard | None = None
    frozen: list[Parameter] = field(default_factory=list)
    lists: dict[int, Lists] = field(default_factory=dict)

    __repr__ = brief

    def lists_of(self, call: Call) -> Lists:
        """Whose the entries of an optimizer's lists are; without groups a list has one entry a parameter."""
        return self.lists.get(call.row, {len(self.parameters): self.parameters})

    def taken(self, call: Call) -> Iterator[Parameter]:
        """The parameters among what a call takes, views of them included."""
        return (parameter for parameter in self.read(call) if not parameter.frozen)

    def read(self, call: Call) -> Iterator[Parameter]:
        """The same, with frozen ones."""
        for value in tensor_values(call.record.get("inputs")):
            yield from self.within(value)

    def freeze(self, found: Iterable[Parameter]) -> None:
        """Add frozen weights."""
        self.frozen += found
        self.by_storage |= {one.storage: [Region(0, 1 << 62, one)] for one in self.frozen}

    def within(self, value: Sequence[int]) -> Sequence[Parameter]:
        """The parameters that a tensor in an ET ([number, storage, offset, elements, …]) is, is a view of, or has."""
        regions = self.by_storage.get(value[1])
        if regions is None:
            known = self.by_number.get(value[0])
            return () if known is None else (known,)
        if len(regions) == 1:
            return (regions[0].parameter,)
        at, count = value[2], value[3]
        return [
            region.parameter for region in regions
            if region.begin <= at < region.end or at <= region.begin < region.end <= at + count
        ]  # fmt: skip

    def of(self, value: Sequence[int]) -> Parameter | None:
        """The first of them, None for any other tensor."""
        return next(iter(self.within(value)), None)


def find_weights(
    steps: Sequence[Call], shapes: Shapes, forward: Sequence[Call], gathered: Sequence[RecordedWrap] = (),
    part: Shard | None = None,
) -> Weights:  # fmt: skip
    """Find parameters: memory that comes from outside, that forward reads and the optimizer changes in place.

    A storage is of one parameter however many operators use it, so tied weights count once, and views of packed ones
    are theirs. Where the optimizer changes other memory (distributed tensors) the weights of layers with equal shapes
    are taken; without any call of the optimizer all that layers take as weights.
    """
    children = [child for step in steps for child in step.children]
    if gathered:
        return _of_shards(steps, shapes, forward, gathered, part)
    outside = outside_tensors(forward)
    weights = Weights()
    known = set[tuple[int, int]]()
    for given in _changed(children):
        if given.storage in outside and (given.storage, given.offset) not in known:
            known.add((given.storage, given.offset))
            shape = _shape_of(given, outside[given.storage][0], shapes)
            elements = prod(shapes.extents.sizes(given.shape))
            parameter = Parameter(
                len(weights.parameters), shape, given.itemsize, given.dtype, storage=given.storage, elements=elements
            )
            weights.parameters.append(parameter)
            end = given.offset + elements
            weights.by_storage.setdefault(given.storage, []).append(Region(given.offset, end, parameter))
    if weights.parameters:
        weights.optimizer = [(step, list(_owners(step, weights.of))) for step in steps]
        for step in steps:
            weights.lists |= lists_of(step.children, weights.of, weights.parameters)
        return weights
    taken, owners = _by_shapes(steps, shapes, forward)
    numbered = sorted(taken.values(), key=lambda parameter: parameter.number)
    return Weights(numbered, owners, "shapes" if children else "use", by_number=taken)


def _shape_of(changed: GivenTensor, used: GivenTensor, shapes: Shapes) -> Shape:
    """Extents of a parameter: those of forward where it is used whole, with those of the optimizer."""
    extents = shapes.extents
    if extents.sizes(changed.shape) != extents.sizes(used.shape):
        return changed.shape
    for left, right in zip(used.shape, changed.shape, strict=True):
        extents.same(left, right)
    return used.shape


def _of_shards(
    steps: Sequence[Call], shapes: Shapes, forward: Sequence[Call], gathered: Sequence[RecordedWrap],
    part: Shard | None,
) -> Weights:  # fmt: skip
    """Parameters of FSDP2: forward reads them in memory that was gathered last out of the ranks' parts.

    Their memory is used again by others, but the tensors themselves stay, so they are known by number.
    """
    made = {number for call in walked(forward) for number in call.tensor_ids("outputs")}
    used: dict[int, GivenTensor] = {}
    events = [(ts, storages, unit) for unit in gathered for ts, storages in unit.gathered]
    events.sort(key=lambda event: event[0])
    reads = sorted((call for call in walked(forward)), key=lambda call: call.ts)
    current: dict[int, int] = {}  # gathered storage -> shard
    at = 0
    for call in reads:
        while at < len(events) and events[at][0] <= call.ts:
            current |= dict(zip(events[at][1], events[at][2].shards, strict=False))
            at += 1
        for given in given_tensors(call):
            shard = current.get(given.storage)
            if shard is not None and given.number not in made:
                used.setdefault(shard, given)
    order = [given.storage for child in (child for step in steps for child in step.children) for given in _first(child)]
    order += [shard for unit in gathered for shard in unit.shards]
    found = Weights(part=part)
    for shard in dict.fromkeys(order):
        if shard in used:
            given = used[shard]
            sizes = shapes.extents.sizes(given.shape)
            elements = prod(sizes if part is None else part.of(sizes))
            parameter = Parameter(
                len(found.parameters), given.shape, given.itemsize, given.dtype, elements=elements
            )  # fmt: skip
            found.parameters.append(parameter)
            found.by_shard[shard] = found.by_number[given.number] = parameter
    for step in steps:
        found.optimizer.append((step, list(_owners(step, lambda value: found.by_shard.get(value[1])))))
        found.lists |= lists_of(step.children, lambda value: found.by_shard.get(value[1]), found.parameters)
    for _, owned in found.optimizer:
        for call, owner in owned:
            make_whole(call, found.lists_of(call) if owner is None else owner, found, shapes)
    return found


def relate_gathered(weights: Weights, calls: Iterable[Call], shapes: Shapes) -> None:
    """Where FSDP gathers again what it had freed a parameter has other memory: its extents are those of before."""
    for call in walked(calls):
        for given in given_tensors(call):
            known = weights.by_number.get(given.number)
            if known is not None:
                match(known.shape, given.shape, shapes.extents)


def _first(child: Call) -> Iterator[GivenTensor]:
    yield from _changed([child])


def make_whole(call: Call, owner: Parameter | Lists, weights: Weights, shapes: Shapes) -> None:
    """Give a call on parts of parameters, and those below it, the extents of the whole ones.

    Args:
        owner: of the parameter that the call is for, or of each in its lists; what it calls for one entry of a list
            is known by its memory.
    """
    extents, part = shapes.extents, weights.part
    lists = {} if isinstance(owner, Parameter) else owner
    entries = {
        (value[1], value[2]): parameter for side in ("outputs", "inputs")
        for values in lists_in(call, side) for value, parameter in zip(values, lists.get(len(values), ()), strict=False)
    }  # fmt: skip

    def whole(shape: Shape | None, parameter: Parameter | None) -> Shape | None:
        if shape is None or part is None or parameter is None:
            return shape
        return parameter.shape if extents.sizes(shape) == part.of(extents.sizes(parameter.shape)) else shape

    def side(
        arguments: tuple[tuple[Shape | None, ...], ...], own: Parameter | None
    ) -> tuple[tuple[Shape | None, ...], ...]:
        return tuple(
            tuple(map(whole, tensors, lists.get(len(tensors), (own,) * len(tensors)))) for tensors in arguments
        )

    for inner in call.walk():
        values = [value for name in ("inputs", "outputs") for value in tensor_values(inner.record.get(name))]
        known = (entries[value[1], value[2]] for value in values if (value[1], value[2]) in entries)
        own = owner if isinstance(owner, Parameter) else next(known, None)
        inner.inputs, inner.results = side(inner.inputs, own), side(inner.results, own)
        for name in ("input_shapes", "output_shapes"):
            inner.__dict__.pop(name, None)


def lists_in(call: Call, side: str = "inputs") -> Iterator[list[list[int]]]:
    """The lists of tensors, as in ETs, that a call takes or returns."""
    given = call.record.get(side)
    for values in given.get("values", ()) if isinstance(given, dict) else ():
        if isinstance(values, list) and values and all(isinstance(value, list) for value in values):
            yield values


def lists_of(
    calls: Sequence[Call], owner_of: Callable[[Sequence[int]], Parameter | None], parameters: Sequence[Parameter]
) -> dict[int, Lists]:  # fmt: skip
    """Of calls on lists, by row, whose the entries are: those of the parameters that it takes, or that the next such
    call takes, since an optimizer works through one group of parameters after the other.

    Args:
        parameters: of lists with as many entries, where no call takes them.
    """
    found, current = dict[int, Lists](), {len(parameters): parameters}
    for call in reversed(calls):
        for values in lists_in(call):
            owners = [owner for owner in map(owner_of, values) if owner is not None]
            if 1 < len(owners) == len(values):
                current = {**current, len(owners): owners}
        found[call.row] = current
    return found


def outside_tensors(forward: Sequence[Call]) -> dict[int, list[GivenTensor]]:
    """By storage the tensors that forward takes and nothing in it has made, the largest first; not its expanded views.

    Beside the largest one those count that have other elements: parts of one tensor that a model keeps apart.
    """
    found: dict[int, dict[int, tuple[int, GivenTensor]]] = {}
    made, views = set[int](), set[int]()

    def visit(call: Call) -> None:
        for given in given_tensors(call):
            numel, at = _numel(call, given), found.get(given.storage, {})
            known = given.storage in made or (at and given.number in views)
            if not known and (given.offset not in at or numel > at[given.offset][0]):
                found.setdefault(given.storage, {})[given.offset] = numel, given
        for child in call.children:
            visit(child)
        own = {value[1] for value in tensor_values(call.record.get("inputs"))}
        for value in tensor_values(call.record.get("outputs")):
            (views if value[1] in own else made).add(value[0] if value[1] in own else value[1])

    for call in forward:
        visit(call)
    return {storage: _apart(list(at.values())) for storage, at in found.items() if storage not in made}


def _apart(sized: list[tuple[int, GivenTensor]]) -> list[GivenTensor]:
    """Of tensors in one storage, each with its elements, the largest one and those that are not a part of it."""
    most, largest = max(sized, key=lambda one: one[0])
    end = largest.offset + most
    others = [
        given for numel, given in sized
        if given is not largest and (numel == most or given.offset >= end or given.offset + numel <= largest.offset)
    ]  # fmt: skip
    return [largest, *others]


def _numel(call: Call, given: GivenTensor) -> int:
    return next((v[3] for v in tensor_values(call.record.get("inputs")) if v[0] == given.number), 0)


def _changed(children: Iterable[Call]) -> Iterator[GivenTensor]:
    """The tensors that the optimizer's calls change in place, in order: the first argument, of lists all in it."""
    for child in children:
        given = given_tensors(child)
        if not given or not (child.name.endswith("_") or "_fused" in child.name):
            continue
        count = len(child.inputs[0]) if child.inputs else 0
        yield from given[: max(count, 1)]


def _owners(
    step: Call, owner_of: Callable[[Sequence[int]], Parameter | None]
) -> Iterator[tuple[Call, Parameter | None]]:
    """Calls of an optimizer for one parameter each end with the one that changes it; None for calls on lists."""
    waiting: list[Call] = []
    for child in step.children:
        waiting.append(child)
        first = next(tensor_values(child.record.get("inputs")), None)
        on_lists = any(len(tensors) > 1 for tensors in child.inputs)
        owner = None if first is None else owner_of(first)
        if on_lists or owner is not None:
            yield from ((earlier, None if on_lists else owner) for earlier in waiting)
            waiting = []
    yield from ((earlier, None) for earlier in waiting)


def _by_shapes(steps: Sequence[Call], shapes: Shapes, forward: Sequence[Call]) -> tuple[dict[int, Parameter], Owned]:
    """Parameters by number of their tensor in forward, among what layers take as weights."""
    made = {number for call in walked(forward) for number in call.tensor_ids("outputs")}
    used: dict[int, GivenTensor] = {}
    for call in walked(forward):
        for tensor in given_tensors(call):
            if tensor.number not in made and is_floating(tensor.dtype):
                used.setdefault(tensor.number, tensor)
    candidates = [number for number in _weight_like(forward, made) if number in used]
    children = [child for step in steps for child in step.children]
    if not children:
        known = enumerate(used[number] for number in candidates)
        made_up = {tensor.number: Parameter(k, tensor.shape, tensor.itemsize, tensor.dtype) for k, tensor in known}
        return made_up, [(step, []) for step in steps]
    lists = [child for child in children if child.inputs and len(child.inputs[0]) > 1]
    entries = [
        tensor for child in (lists or children)
        for tensor in (given_tensors(child) if lists else given_tensors(child)[:1])
    ]  # fmt: skip
    taken: dict[int, Parameter] = {}
    by_tensor: dict[int, Parameter] = {}
    direct = [entry for entry in entries if entry.number in candidates]
    for entry in direct or entries:
        match: int | None = entry.number
        if match in by_tensor:
            continue
        if match not in candidates:
            sizes = shapes.extents.sizes(entry.shape)
            alike = (k for k in candidates if k not in taken and shapes.extents.sizes(used[k].shape) == sizes)
            if (match := next(alike, None)) is None:
                continue
            for extent, other in zip(used[match].shape, entry.shape, strict=True):
                shapes.extents.same(extent, other)
        taken[match] = Parameter(len(by_tensor), used[match].shape, entry.itemsize, entry.dtype)
        by_tensor[entry.number] = taken[match]
    return taken, [(step, list(_owners(step, lambda value: by_tensor.get(value[0])))) for step in steps]


def _weight_like(forward: Sequence[Call], made: set[int]) -> dict[int, None]:
    """Numbers of tensors that layers take as weights or biases, in order of use."""
    found: dict[int, None] = {}
    for call in walked(forward):
        values = call.record.get("inputs", {}).get("values", [])
        for place in _weight_places(call.name):
            for tensor in tensor_values(values[place : place + 1]):
                if tensor[0] not in made:
                    found.setdefault(tensor[0])
    return found


def _weight_places(name: str) -> Iterable[int]:
    """Positions of the weights and biases of an operator."""
    if "norm" in name:
        return range(1, 5)
    if name == "aten::linear" or "conv" in name:
        return 1, 2
    if "embedding" in name or name in ("aten::t", "aten::div"):
        return (0,)
    return (0, 1, 2) if name in ("aten::addmm", "aten::mm") else ()


def accumulations(calls: Iterable[Call]) -> Iterator[Call]:
    """The calls that accumulate gradients, also within a call of backward that runs another backward pass, as reentrant
    checkpointing does."""
    for call in calls:
        if ACCUMULATE in call.name:
            yield call
        else:
            yield from accumulations(call.children)


def given_tensors(call: Call) -> list[GivenTensor]:
    """The tensors that a call takes; none where they are not recorded whole."""
    values = list(tensor_values(call.record.get("inputs")))
    signature = call.signature.tensors if call.signature is not None else ()
    if not len(values) == len(call.input_shapes) == len(signature):
        return []
    return [
        GivenTensor(value[0], shape, tensor.dtype, itemsize(tensor.dtype) or value[4], value[1], value[2])
        for value, shape, tensor in zip(values, call.input_shapes, signature, strict=True)
    ]


def gradients_of(weights: Weights) -> dict[tuple[int, int], Parameter]:
    """By storage and offset, the tensors that the optimizer takes beside a parameter: its gradient is among them."""
    found: dict[tuple[int, int], Parameter] = {}
    made = set[int]()  # in the optimizer: memory that may have been any tensor's before
    for _, owned in weights.optimizer:
        for call, owner in owned:
            if owner is not None:
                rows: list[tuple[Sequence[int], Parameter]] = [
                    (value, owner) for value in tensor_values(call.record.get("inputs"))
                ]
            else:
                known = weights.lists_of(call)
                lists = [values for values in lists_in(call) if len(values) in known]
                rows = [row for values in lists for row in zip(values, known[len(values)], strict=True)]
            for value, parameter in rows:
                alike = not parameter.elements or value[3] == parameter.elements
                if alike and value[1] not in weights.by_storage and value[1] not in made:
                    found.setdefault((value[1], value[2]), parameter)
            for inner in call.walk():
                own = {value[1] for value in tensor_values(inner.record.get("inputs"))}
                made |= {value[1] for value in tensor_values(inner.record.get("outputs"))} - own
    return found


def find_buffers(
    weights: Weights, forward: Sequence[Call], batch: set[int], shapes: Shapes
) -> tuple[list[Buffer], list[Parameter]]:  # fmt: skip
    """Tensors from outside that are neither parameters nor of a sample: what forward writes (running statistics), and
    constants without an extent of the batch, in order of use.

    Returns:
        the buffers; and frozen weights, which are what layers take as weights.
    """
    written = _written(forward)
    found, frozen = list[Buffer](), list[Parameter]()
    of_layers = _weights_of_layers(walked(forward))
    made = {
        number for call in walked(forward)
        for number in set(call.tensor_ids("outputs")) - set(call.tensor_ids("inputs"))
    }  # fmt: skip
    value = shapes.extents.value
    recorded = {value[root] for root in batch}
    recorded.add(sum(value[root] for root in batch))
    data = [source.shape for source in shapes.sources if source.data]
    known = shapes.extents.solve({root: 2 * value[root] for root in batch}, data)
    for storage, given in ((storage, one) for storage, some in outside_tensors(forward).items() for one in some):
        sizes = tuple(shapes.extents.sizes(given.shape))
        if storage in weights.by_storage or given.number in weights.by_number or given.number in made:
            continue
        stays = all(known.get(root) == value[root] for root in shapes.extents.leaves(given.shape[:1]))
        alike = bool(sizes) and sizes[0] in recorded and not stays
        of_samples = alike or not batch.isdisjoint(shapes.extents.leaves(given.shape))
        if storage in written or (sizes and not of_samples):
            if storage in of_layers and storage not in written:
                frozen.append(Parameter(
                    len(weights.parameters) + len(frozen), given.shape, given.itemsize, given.dtype, storage=storage,
                    accumulates=False, frozen=True,
                ))  # fmt: skip
            else:
                found.append(Buffer(sizes, given.dtype, given.itemsize, storage in written))
    return [*found, *_counters(forward)], frozen


def _counters(forward: Sequence[Call]) -> list[Buffer]:
    """The counters of batch norms in evaluation, which take their statistics, and not the counter that the module has
    beside them (`num_batches_tracked`)."""
    norms = [call.record.get("inputs", {}).get("values", []) for call in walked(forward) if call.name == _BATCH_NORM]
    evaluated = {tensor[1] for values in norms if values[5:6] == [False] for tensor in tensor_values(values[3:4])}
    return [Buffer((), "int64", 8, written=True)] * len(evaluated)


def unreached_weights(passes: Sequence[tuple[Sequence[Call], Sequence[Call]]], weights: Weights) -> set[int]:
    """Storages of weights without a gradient in layers for which autograd kept a node that no backward call belongs to.

    What such a layer computes does not reach the loss. Its weights may be frozen, or parameters that happen to have no
    gradient, which DDP and FSDP communicate all the same; the recording does not say which.

    Args:
        passes: calls of forward and of backward; none of inference.
    """
    reached = {call.sequence for _, backward in passes for call in walked(backward)}
    forward = [call for part, _ in passes for call in walked(part)]
    if not reached:
        return set()
    unreached = _weights_of_layers(call for call in forward if call.sequence >= 0 and call.sequence not in reached)
    unreached -= _weights_of_layers(call for call in forward if call.sequence in reached)
    unreached -= {storage for storage, of in weights.by_storage.items() if not of[0].parameter.frozen}
    return unreached & set(outside_tensors(forward)) if unreached else unreached


def _weights_of_layers(calls: Iterable[Call]) -> set[int]:
    """Storages of the weights and biases of layers; a batch norm's statistics are none."""
    found = set[int]()
    for call in calls:
        values = call.record.get("inputs", {}).get("values", [])
        for place in (1, 2) if "batch_norm" in call.name else _weight_places(call.name):
            found |= {tensor[1] for tensor in tensor_values(values[place : place + 1])}
    return found


def _written(forward: Sequence[Call]) -> set[int]:
    """Storages that forward changes in place: first arguments of such operators, running statistics of batch norms."""
    found: set[int] = set()
    for call in walked(forward):
        values = call.record.get("inputs", {}).get("values", [])
        places = [0] if call.name.startswith("aten::") and call.name.endswith("_") else []
        places += [3, 4] if "batch_norm" in call.name and "backward" not in call.name else []
        for place in places:
            found |= {tensor[1] for tensor in tensor_values(values[place : place + 1])}
    return found
