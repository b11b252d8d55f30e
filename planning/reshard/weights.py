"""Find the parameters of a recorded step by the memory that the optimizer changes.

A parameter is memory that exists before the step, that forward reads, and that the optimizer changes in place. An ET
records each tensor as [number, storage, offset, elements, …]; storages are addresses.

Example: forward calls `aten::linear([7, 100, 0, 32, …], [8, 200, 0, 16, …])`, and the optimizer calls `aten::add_([9,
200, 0, 16, …], …)`. Storage 200 existed before and is changed, so it is parameter 0; storage 100 is data.

`find_weights` uses the first method that finds parameters, and reports the method in `Weights.evidence`:

1. With FSDP2, the optimizer changes only the shards of this rank. Forward reads memory that was gathered from the
   shards shortly before. The calls of the all-gather locate each shard (`_of_shards`).
2. Parameters are found by memory, as in the example (`_by_memory`).
3. If the optimizer changes other memory, as with distributed tensors, weights of layers are matched with the shapes
   that the optimizer changes. If no optimizer was recorded, all weights of layers are parameters (`_by_shapes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod

from ...trace.dtypes import is_floating
from ..reshape.shapes.followed_calls import Shapes
from ..reshape.shapes.terms import Shape, match
from .items import Shard
from .model import GivenTensor, Lists, Owned, Parameter, RecordedWrap, Region, Weights, given_tensors
from .step_calls import Call, tensor_values, walked

OwnerOf = Callable[[Sequence[int]], Parameter | None]  # finds the parameter that an ET tensor belongs to


def find_weights(
    steps: Sequence[Call],
    shapes: Shapes,
    forward: Sequence[Call],
    gathered: Sequence[RecordedWrap] = (),
    part: Shard | None = None,
) -> Weights:
    """Find the parameters of a step.

    Tied weights share a storage, so they are a single parameter. Views of packed weights belong to the packed weights.
    """
    if gathered:
        return _of_shards(steps, shapes, forward, gathered, part)
    found = _by_memory(steps, shapes, forward)
    return found if found.parameters else _by_shapes(steps, shapes, forward)


def _by_memory(steps: Sequence[Call], shapes: Shapes, forward: Sequence[Call]) -> Weights:
    outside, found, known = outside_tensors(forward), Weights(), set[tuple[int, int]]()
    for given in _changed(child for step in steps for child in step.children):
        if given.storage in outside and (given.storage, given.offset) not in known:
            known.add((given.storage, given.offset))
            shape = _shape_of(given, outside[given.storage][0], shapes)
            elements = prod(shapes.extents.sizes(given.shape))
            number = len(found.parameters)
            parameter = Parameter(number, shape, given.itemsize, given.dtype, storage=given.storage, elements=elements)
            found.parameters.append(parameter)
            region = Region(given.offset, given.offset + elements, parameter)
            found.by_storage.setdefault(given.storage, []).append(region)
    if found.parameters:
        _set_optimizer(found, steps, found.of)
    return found


def _shape_of(changed: GivenTensor, used: GivenTensor, shapes: Shapes) -> Shape:
    extents = shapes.extents
    if extents.sizes(changed.shape) != extents.sizes(used.shape):
        return changed.shape
    for left, right in zip(used.shape, changed.shape, strict=True):
        extents.same(left, right)
    return used.shape


def _set_optimizer(weights: Weights, steps: Sequence[Call], owner_of: OwnerOf) -> None:
    weights.optimizer = [(step, list(_owners(step, owner_of))) for step in steps]
    for step in steps:
        weights.lists |= lists_of(step.children, owner_of, weights.parameters)


def _of_shards(
    steps: Sequence[Call], shapes: Shapes, forward: Sequence[Call], gathered: Sequence[RecordedWrap], part: Shard | None
) -> Weights:
    """Find the parameters of an FSDP2 job. Tensor numbers identify them (`by_number`), because memory is reused."""
    used = _gathered_reads(forward, gathered)
    order = [given.storage for given in _changed(child for step in steps for child in step.children)]
    order += [shard for unit in gathered for shard in unit.shards]
    found = Weights(part=part)
    for shard in dict.fromkeys(order):
        if shard in used:
            given = used[shard]
            sizes = shapes.extents.sizes(given.shape)
            elements = prod(sizes if part is None else part.of(sizes))
            parameter = Parameter(len(found.parameters), given.shape, given.itemsize, given.dtype, elements=elements)
            found.parameters.append(parameter)
            found.by_shard[shard] = found.by_number[given.number] = parameter
    _set_optimizer(found, steps, lambda value: found.by_shard.get(value[1]))
    for _, owned in found.optimizer:
        for call, owner in owned:
            make_whole(call, found.lists_of(call) if owner is None else owner, found, shapes)
    return found


def _gathered_reads(forward: Sequence[Call], gathered: Sequence[RecordedWrap]) -> dict[int, GivenTensor]:
    made = {number for call in walked(forward) for number in call.tensor_ids("outputs")}
    events = [(ts, storages, unit) for unit in gathered for ts, storages in unit.gathered]
    events.sort(key=lambda event: event[0])
    used: dict[int, GivenTensor] = {}
    shard_in: dict[int, int] = {}  # for each storage of gathered memory, the shard that it currently contains
    reached = 0
    for call in sorted(walked(forward), key=lambda call: call.ts):
        while reached < len(events) and events[reached][0] <= call.ts:
            _, storages, unit = events[reached]
            shard_in |= dict(zip(storages, unit.shards, strict=False))
            reached += 1
        for given in given_tensors(call):
            shard = shard_in.get(given.storage)
            if shard is not None and given.number not in made:
                used.setdefault(shard, given)
    return used


def relate_gathered(weights: Weights, calls: Iterable[Call], shapes: Shapes) -> None:
    for call in walked(calls):
        for given in given_tensors(call):
            known = weights.by_number.get(given.number)
            if known is not None:
                match(known.shape, given.shape, shapes.extents)


def make_whole(call: Call, owner: Parameter | Lists, weights: Weights, shapes: Shapes) -> None:
    """Replace the extents of parameter shards in a call and its callees with extents of whole parameters.

    `owner` is the parameter of the call, or the parameter of each entry in its lists.
    """
    extents, part = shapes.extents, weights.part
    lists = {} if isinstance(owner, Parameter) else owner
    entries = {
        (value[1], value[2]): parameter
        for side in ("outputs", "inputs")
        for values in lists_in(call, side)
        for value, parameter in zip(values, lists.get(len(values), ()), strict=False)
    }

    def whole(shape: Shape | None, parameter: Parameter | None) -> Shape | None:
        if shape is None or part is None or parameter is None:
            return shape
        return parameter.shape if extents.sizes(shape) == part.of(extents.sizes(parameter.shape)) else shape

    def side(
        arguments: tuple[tuple[Shape | None, ...], ...], own: Parameter | None
    ) -> tuple[tuple[Shape | None, ...], ...]:
        return tuple(tuple(map(whole, given, lists.get(len(given), (own,) * len(given)))) for given in arguments)

    for inner in call.walk():
        values = [value for name in ("inputs", "outputs") for value in inner.tensors(name)]
        known = (entries[value[1], value[2]] for value in values if (value[1], value[2]) in entries)
        own = owner if isinstance(owner, Parameter) else next(known, None)
        inner.inputs, inner.results = side(inner.inputs, own), side(inner.results, own)
        for name in ("input_shapes", "output_shapes"):
            inner.__dict__.pop(name, None)


def lists_in(call: Call, side: str = "inputs") -> Iterator[list[list[int]]]:
    given = call.record.get(side)
    for values in given.get("values", ()) if isinstance(given, dict) else ():
        if isinstance(values, list) and values and all(isinstance(value, list) for value in values):
            yield values


def lists_of(calls: Sequence[Call], owner_of: OwnerOf, parameters: Sequence[Parameter]) -> dict[int, Lists]:
    """Map the row of a call on lists to {length of the list: parameters of the list entries}.

    A call on gradients has the same parameters as the next call on parameters, because an optimizer processes its
    groups in order.
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
    """Map storages to the external tensors that forward reads: the largest first, then equal or disjoint ones."""
    found: dict[int, dict[int, tuple[int, GivenTensor]]] = {}  # maps storages to {offset: (elements, tensor)}
    made, views = set[int](), set[int]()

    def visit(call: Call) -> None:
        for given in given_tensors(call):
            numel = next((v[3] for v in call.tensors("inputs") if v[0] == given.number), 0)
            known = found.get(given.storage, {})
            skipped = given.storage in made or (known and given.number in views)
            if not skipped and (given.offset not in known or numel > known[given.offset][0]):
                found.setdefault(given.storage, {})[given.offset] = numel, given
        for child in call.children:
            visit(child)
        own = {value[1] for value in call.tensors("inputs")}
        for value in call.tensors("outputs"):
            (views if value[1] in own else made).add(value[0] if value[1] in own else value[1])

    for call in forward:
        visit(call)
    return {storage: _apart(list(sized.values())) for storage, sized in found.items() if storage not in made}


def _apart(sized: list[tuple[int, GivenTensor]]) -> list[GivenTensor]:
    most, largest = max(sized, key=lambda pair: pair[0])
    end = largest.offset + most
    others = [
        given
        for numel, given in sized
        if given is not largest and (numel == most or given.offset >= end or given.offset + numel <= largest.offset)
    ]
    return [largest, *others]


def _changed(children: Iterable[Call]) -> Iterator[GivenTensor]:
    for child in children:
        given = given_tensors(child)
        if given and (child.name.endswith("_") or "_fused" in child.name):
            count = len(child.inputs[0]) if child.inputs else 0
            yield from given[: max(count, 1)]


def _owners(step: Call, owner_of: OwnerOf) -> Iterator[tuple[Call, Parameter | None]]:
    """Assign each call to the parameter that is changed next; calls on lists belong to all parameters (None)."""
    waiting: list[Call] = []
    for child in step.children:
        waiting.append(child)
        on_lists = any(len(tensors) > 1 for tensors in child.inputs)
        owner = next(map(owner_of, child.tensors("inputs")), None)
        if on_lists or owner is not None:
            yield from ((earlier, None if on_lists else owner) for earlier in waiting)
            waiting = []
    yield from ((earlier, None) for earlier in waiting)


def _by_shapes(steps: Sequence[Call], shapes: Shapes, forward: Sequence[Call]) -> Weights:
    made = {number for call in walked(forward) for number in call.tensor_ids("outputs")}
    used: dict[int, GivenTensor] = {}
    for call in walked(forward):
        for tensor in given_tensors(call):
            if tensor.number not in made and is_floating(tensor.dtype):
                used.setdefault(tensor.number, tensor)
    candidates = [number for number in _weight_like(forward, made) if number in used]
    children = [child for step in steps for child in step.children]
    if not children:
        tensors = [used[number] for number in candidates]
        made_up = {t.number: Parameter(k, t.shape, t.itemsize, t.dtype) for k, t in enumerate(tensors)}
        return Weights(list(made_up.values()), [(step, []) for step in steps], "use", by_number=made_up)
    taken, by_tensor = _matched_shapes(children, candidates, used, shapes)
    owned: Owned = [(step, list(_owners(step, lambda value: by_tensor.get(value[0])))) for step in steps]
    numbered = sorted(taken.values(), key=lambda parameter: parameter.number)
    return Weights(numbered, owned, "shapes", by_number=taken)


def _matched_shapes(
    children: Sequence[Call], candidates: Sequence[int], used: dict[int, GivenTensor], shapes: Shapes
) -> tuple[dict[int, Parameter], dict[int, Parameter]]:
    """Match tensors of the optimizer one-to-one with forward weights of the same sizes."""
    lists = [child for child in children if child.inputs and len(child.inputs[0]) > 1]
    entries = [
        tensor
        for child in (lists or children)
        for tensor in (given_tensors(child) if lists else given_tensors(child)[:1])
    ]
    taken: dict[int, Parameter] = {}
    by_tensor: dict[int, Parameter] = {}
    direct = [entry for entry in entries if entry.number in candidates]
    for entry in direct or entries:
        number = entry.number
        if number in by_tensor:
            continue
        if number not in candidates:
            sizes = shapes.extents.sizes(entry.shape)
            equal = [k for k in candidates if k not in taken and shapes.extents.sizes(used[k].shape) == sizes]
            if not equal:
                continue
            number = equal[0]
            for extent, other in zip(used[number].shape, entry.shape, strict=True):
                shapes.extents.same(extent, other)
        taken[number] = Parameter(len(by_tensor), used[number].shape, entry.itemsize, entry.dtype)
        by_tensor[entry.number] = taken[number]
    return taken, by_tensor


def _weight_like(forward: Sequence[Call], made: set[int]) -> dict[int, None]:
    found: dict[int, None] = {}
    for call in walked(forward):
        values = call.record.get("inputs", {}).get("values", [])
        for place in _weight_places(call.name):
            for tensor in tensor_values(values[place : place + 1]):
                if tensor[0] not in made:
                    found.setdefault(tensor[0])
    return found


def _weight_places(name: str) -> Iterable[int]:
    if "norm" in name:
        return range(1, 5)
    if name == "aten::linear" or "conv" in name:
        return 1, 2
    if "embedding" in name or name in ("aten::t", "aten::div"):
        return (0,)
    return (0, 1, 2) if name in ("aten::addmm", "aten::mm") else ()


def weights_of_layers(calls: Iterable[Call]) -> set[int]:
    """Return the storages of layers' weights and biases, without the statistics of batch norms."""
    found = set[int]()
    for call in calls:
        values = call.record.get("inputs", {}).get("values", [])
        for place in (1, 2) if "batch_norm" in call.name else _weight_places(call.name):
            found |= {tensor[1] for tensor in tensor_values(values[place : place + 1])}
    return found


def gradients_of(weights: Weights) -> dict[tuple[int, int], Parameter]:
    """Map tensors (storage, offset), such as gradients, to the parameters that the optimizer uses them with."""
    found: dict[tuple[int, int], Parameter] = {}
    made = set[int]()  # the optimizer allocates these storages; earlier tensors may have had the same addresses
    for _, owned in weights.optimizer:
        for call, owner in owned:
            if owner is not None:
                rows: list[tuple[Sequence[int], Parameter]] = [(value, owner) for value in call.tensors("inputs")]
            else:
                known = weights.lists_of(call)
                lists = [values for values in lists_in(call) if len(values) in known]
                rows = [row for values in lists for row in zip(values, known[len(values)], strict=True)]
            for value, parameter in rows:
                same_size = not parameter.elements or value[3] == parameter.elements
                if same_size and value[1] not in weights.by_storage and value[1] not in made:
                    found.setdefault((value[1], value[2]), parameter)
            for inner in call.walk():
                own = {value[1] for value in inner.tensors("inputs")}
                made |= {value[1] for value in inner.tensors("outputs")} - own
    return found
