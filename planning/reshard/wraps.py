"""Determine FSDP units (parameters that FSDP gathers together) from a recording, repeated blocks or a user's request.

A recording with FSDP2 has calls such as `fsdp::all_gather_copy_in`, inside annotations with the module name, such as
`FSDP::all_gather (layers.0)`. `recorded_wraps` reads these calls. If the recording has no FSDP calls, each repeated
block (`blocks.py`) is a unit, and the root takes the remaining parameters. `chosen_wraps` applies `--fsdp-wrap`.

Example: two blocks have parameters 1 to 4 and 5 to 8, and an embedding has parameter 0. The units are `Wrap("", [0])`
(the root), `Wrap("block 0", [1, 2, 3, 4])` and `Wrap("block 1", [5, 6, 7, 8])`.

`start_gather`, `gathered` and `scattered` yield the communication of a unit. Example: two parameters with 6 and 4 rows
are sharded over 4 ranks. A rank keeps up to 2 rows and 1 row, so communication is padded to 4 × (2 rows + 1 row).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ...schemas.execution_trace.arguments import call_records
from ...trace.errors import UsageError
from ...trace.trace import Trace
from .items import CommOp, CommWait, Item, Shard, SyntheticOp
from .layout import Layout
from .model import ACCUMULATE, Model, Parameter, RecordedWrap, Unit, Weights, Wrap
from .step_calls import SUM, SUM_IN_PLACE, VIEWS, Call, calls_named, tensor_values, walked

if TYPE_CHECKING:
    from .derivation import Derivation

_LABEL = re.compile(r"FSDP::[a-z_]+(?: for)?(?: \((?P<label>[^)]*)\))?")
_MODULE = "nn.Module: "
_CANDIDATES = 3
# These calls copy shards before the all-gather, full parameters after it, and gradients before the reduction.
_COPY_IN, _COPY_OUT, _CHUNK_CAT = "fsdp::all_gather_copy_in", "fsdp::split_with_sizes_copy", "fsdp::chunk_cat"


def recorded_wraps(trace: Trace, begin: int, end: int) -> list[RecordedWrap]:
    calls, names = trace.calls, trace.names
    chosen = calls_named(trace, lambda name: name.startswith((_COPY_IN, _COPY_OUT, _CHUNK_CAT)), begin, end)
    found: dict[str, RecordedWrap] = {}
    for call, record in zip(chosen.tolist(), call_records(trace, calls.source[chosen]), strict=True):
        unit = found.setdefault(label := _label(trace, call), RecordedWrap(label))
        lists = [value for value in record.inputs.values if isinstance(value, list) and value]
        lists = [value for value in lists if isinstance(value[0], list)]
        storages = [tuple(tensor[1] for tensor in tensor_values(value)) for value in lists]
        name, ts = names[calls.name[call]], int(calls.ts[call])
        if not storages:
            continue
        if name.startswith(_COPY_IN):
            unit.shards = unit.shards or storages[0]
        elif name.startswith(_COPY_OUT):
            unit.gathered.append((ts, storages[-1]))
        else:
            unit.gradients.append((ts, storages[0]))
    return [unit for unit in found.values() if unit.shards]


def _label(trace: Trace, call: int) -> str:
    while call >= 0:
        matched = _LABEL.match(trace.names[trace.calls.name[call]])
        if matched is not None:
            return matched["label"] or ""
        call = int(trace.calls.parent[call])
    return ""


def boundaries(forward: Sequence[Call], weights: Weights, label_of: Mapping[int, str]) -> set[int]:
    """Return indices of topmost calls that start another FSDP unit, or that return to the root's parameters.

    `label_of` is the label of each parameter's unit, "" for the root.
    """
    found, current, seen = set[int](), "", set[int]()
    for place, call in enumerate(forward):
        for parameter in (p for inner in call.walk() for p in weights.read(inner)):
            label = label_of.get(parameter.number, "")
            if parameter.number not in seen and label != current:
                found.add(place)
                current = label
            seen.add(parameter.number)
    return found


def sums_of_units(model: Model, wraps: Sequence[Wrap]) -> set[int]:
    """Return the rows of gradient sums that autograd computes in place either only with FSDP or only without FSDP.

    If several units use the same activation, each FSDP unit first sums the gradients of its own calls. Then the sums of
    the units are added, and the first of these additions is not in place.
    """
    label_of = {k: wrap.label for wrap in wraps if not wrap.root for k in range(wrap.units[0], wrap.units[1] + 1)}
    found = set[int]()
    for one in model.passes:
        made = dict[int, tuple[Call, str]]()  # for each storage, the call that created it, and the call's unit
        added, read = dict[tuple[str, int], int](), set[tuple[str, int]]()  # keyed by (unit, storage)
        for unit in reversed(one.units):
            label = label_of.get(unit.number, "")
            for call in walked(unit.backward):
                storages = [value[1] for value in call.tensors("inputs")]
                sums = call.name == SUM_IN_PLACE.name and bool(storages)
                key = label, storages[0] if sums else -1
                if sums and key not in read and key[1] in made and made[key[1]][1] not in ("", label):
                    added[key] = added.get(key, 0) + 1
                    own = made.get(storages[-1])
                    if model.wraps and own is not None and own[0].name == SUM.name:
                        found |= {own[0].row} if own[1] not in ("", made[key[1]][1]) else set()
                    elif not model.wraps and added[key] == 2 and made[key[1]][0].name == SUM.name:
                        found.add(call.row)
                    storages = storages[1:]
                elif call.operator and call.name.startswith("aten::"):
                    made |= {value[1]: (call, label) for value in call.tensors("outputs")}
                read |= {(label, storage) for storage in storages}
    return found


def chosen_wraps(model: Model, wanted: str | None, sizes: Callable[[Parameter], Sequence[int]]) -> list[Wrap]:
    if wanted is None:
        everything = [parameter.number for parameter in model.weights.every]
        return model.wraps or model.blocks or [Wrap("", everything, (0, len(model.units) - 1))]
    if wanted in ("each", "") or wanted.isdecimal():
        least = int(wanted) if wanted.isdecimal() else 0
        found = []
        for unit in model.units:
            if unit.parameters and sum(prod(sizes(parameter)) for parameter in unit.parameters) >= least:
                numbers = sorted(parameter.number for parameter in unit.parameters)
                found.append(Wrap(f"unit {unit.number}", numbers, (unit.number, unit.number)))
    else:
        found = _of_modules(model, wanted)
    taken = {number for wrap in found for number in wrap.parameters}
    root = [parameter.number for parameter in model.weights.every if parameter.number not in taken]
    return [*([Wrap("", root, (0, len(model.units) - 1))] if root else []), *found]


def _of_modules(model: Model, name: str) -> list[Wrap]:
    found: dict[str, Wrap] = {}
    seen = set[int]()
    for unit in model.units:
        for call in walked(unit.forward):
            label = next((module for module in _modules_around(model, call) if _class_of(module) == name), None)
            for parameter in model.weights.read(call) if label is not None else ():
                if parameter.number not in seen:
                    seen.add(parameter.number)
                    wrap = found.setdefault(str(label), Wrap(str(label), [], (unit.number, unit.number)))
                    wrap.parameters.append(parameter.number)
                    wrap.units = wrap.units[0], unit.number
    if not found:
        raise UsageError(
            f"{model.trace.file}: no recorded module has the class {name}; choose --fsdp-wrap from: {candidates(model)}"
        )
    for wrap in found.values():
        wrap.parameters.sort()
    return list(found.values())


def _modules_around(model: Model, call: Call) -> list[str]:
    hierarchy = model.trace.hierarchy
    names = (model.trace.names[code] for code in hierarchy.regions(int(hierarchy.path[call.index])))
    return [name for name in names if name.startswith(_MODULE)]


def _class_of(module: str) -> str:
    return re.sub(r"_\d+$", "", module.removeprefix(_MODULE))


def candidates(model: Model) -> str:
    """Return suggested values for `--fsdp-wrap`: module classes that occur several times, largest modules first."""
    numbers: dict[str, dict[str, set[int]]] = {}  # maps module classes to {module name: parameter numbers}
    for call in model.forward_calls():
        read = {parameter.number for parameter in model.weights.read(call)}
        for module in _modules_around(model, call) if read else ():
            numbers.setdefault(_class_of(module), {}).setdefault(module, set()).update(read)
    sizes = {parameter.number: model.elements([parameter]) for parameter in model.weights.every}
    largest = {name: max(sum(sizes[n] for n in own) for own in modules.values()) for name, modules in numbers.items()}
    repeated = sorted((name for name in largest if len(numbers[name]) > 1), key=lambda name: -largest[name])
    if repeated:
        return " or ".join(f"{name} ({len(numbers[name])} modules)" for name in repeated[:_CANDIDATES])
    units = sum(bool(unit.parameters) for unit in model.units)
    return f"each ({units} units) or a minimum number of elements; record with with_stack=True to wrap modules by class"


# ---- communication of a unit ----


class _Group(NamedTuple):
    dtype: str
    itemsize: int
    sizes: list[tuple[int, ...]]  # for each parameter, its sizes
    parts: list[int]  # for each parameter, the number of elements in its largest shard


def _by_dtype(derivation: Derivation, wrap: Wrap, *, reduced: bool = False) -> Iterator[_Group]:
    by_number = {parameter.number: parameter for parameter in derivation.model.weights.every}
    shard = Shard(derivation.layout.dp, 0, flat=False)
    found: dict[tuple[str, int], list[tuple[int, ...]]] = {}
    for parameter in (by_number[number] for number in wrap.parameters):
        if parameter.accumulates or not reduced:
            found.setdefault((parameter.dtype, parameter.itemsize), []).append(derivation.sizes(parameter))
    for (dtype, itemsize), sizes in found.items():
        yield _Group(dtype, itemsize, sizes, [shard.padded(size) for size in sizes])


def start_gather(derivation: Derivation, wrap: Wrap, what: str) -> Iterator[Item]:
    count = derivation.layout.dp
    for group in _by_dtype(derivation, wrap):
        part, dtype, size = sum(group.parts), group.dtype, group.itemsize
        copied = tuple((elements,) for elements in group.parts)
        yield SyntheticOp("fsdp::all_gather_copy_in", (*copied, (part * count,)), ((part,),), dtype, size)
        yield CommOp("all_gather", "dp", (part,), part * count, dtype, size, key=f"{what} {wrap.label} {dtype}")


def gathered(derivation: Derivation, wrap: Wrap, what: str) -> Iterator[Item]:
    count = derivation.layout.dp
    for group in _by_dtype(derivation, wrap):
        yield CommWait((f"{what} {wrap.label} {group.dtype}",))
        given = ((count, sum(group.parts)), *((count, part) for part in group.parts))
        yield SyntheticOp("fsdp::split_with_sizes_copy", given, (), group.dtype, group.itemsize)


def scattered(derivation: Derivation, wrap: Wrap, shard: Shard | None, *, added: bool) -> Iterator[Item]:
    assert shard is not None
    count = derivation.layout.dp
    for dtype, size, own, parts in _by_dtype(derivation, wrap, reduced=True):
        copied = (*own, (count, sum(parts)))
        yield SyntheticOp("fsdp::chunk_cat_mixed_dtype", copied, (), dtype, size, wrap=wrap.label)
        yield CommOp("reduce_scatter", "dp", (sum(parts) * count,), sum(parts), dtype, size)
        for sizes in own if added else ():
            part = tuple(shard.of(sizes))
            yield SyntheticOp("aten::add_", (part, part), (part,), dtype, size)


def late_units(units: Sequence[Unit], wraps: Sequence[Wrap], weights: Weights, recorded: Layout) -> list[Wrap]:
    """Return the FSDP units that have only data as input, so that their inputs have no gradient.

    FSDP finishes backward of these units after the root, in module order (`_root_post_backward_final_callback` in
    torch/distributed/fsdp/_fully_shard/_fsdp_state.py).
    """
    data = (call for unit in units for call in unit.backward if call.row not in unit.ready)
    if not wraps or any(ACCUMULATE in call.name for call in data):
        return []
    calls = [call for unit in units for call in unit.forward]
    read = [{p.number for inner in call.walk() for p in weights.taken(inner)} for call in calls]
    wrap_of: dict[int, Wrap] = {}  # for each call between the first and the last use of a unit's parameters, the unit
    for wrap in wraps:
        uses = [place for place, numbers in enumerate(read) if not numbers.isdisjoint(wrap.parameters)]
        wrap_of |= dict.fromkeys(range(uses[0], uses[-1] + 1) if uses and not wrap.root else (), wrap)
    made: dict[int, Wrap | None] = {}  # for each storage that depends on parameters, the unit that created it
    takes = set[Wrap | None]()
    for place, call in enumerate(calls):
        wrap_here = wrap_of.get(place)
        given, new = ({value[1] for value in call.tensors(side)} for side in ("inputs", "outputs"))
        new -= given if call.name in VIEWS else set()
        of_others = given & made.keys()
        if any(made[storage] is not wrap_here for storage in of_others):
            takes.add(wrap_here)
        if of_others or read[place]:
            made |= {storage: made[storage] if storage in of_others else wrap_here for storage in new}
        else:
            made = {storage: by for storage, by in made.items() if storage not in new}
    found = [wrap for wrap in wraps if not wrap.root]
    if recorded.tp > 1:  # a reduction returns another tensor, so units do not share storages
        found = found[:1]
    return sorted((wrap for wrap in found if wrap not in takes), key=lambda wrap: wrap.parameters)
