"""Plan the sharding: pipeline layers, extents that tensor parallelism divides, and partial results.

Example: an MLP has weights of shape `(4h, h)` and `(h, 4h)`. The extent 4h is the first in one weight and the second in
the other weight, and no norm has it. So the plan divides 4h: the first layer is a column layer, the second a row layer.
The result of the second layer is partial and needs an all-reduce.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any

from ...trace.brief import brief
from ...trace.errors import UsageError
from .model import PRODUCTS, Model, Parameter, Unit, contracted
from .step_calls import VIEWS, Call, walked

_VERSION = 2
_FLUSH_AT = "ViewBackward0"


@dataclass(frozen=True)
class Division:
    extent: int
    size: int
    columns: tuple[int, ...]  # numbers of the parameters with this extent as first dimension
    rows: tuple[int, ...]  # numbers of the parameters with this extent as second dimension
    unit: int  # first unit that uses any of the parameters

    __repr__ = brief


@dataclass(frozen=True)
class Plan:
    """A plan that divides a model for tensor and pipeline parallelism."""

    divisions: tuple[Division, ...]
    layers: tuple[int, ...]  # if `stages` is None, these units are distributed evenly over the pipeline
    stages: tuple[int, ...] | None = None  # for each unit, its pipeline stage

    __repr__ = brief

    @property
    def divided(self) -> set[int]:
        return {division.extent for division in self.divisions}

    def to_dict(self, model: Model) -> dict[str, Any]:
        """Return a JSON-ready dict; docs/reference/reshard.md describes its keys."""
        return {
            "version": _VERSION,
            "batch": model.extents.value[model.batch] if model.batch >= 0 else None,
            "units": [
                {
                    "number": unit.number,
                    "first": unit.forward[0].name,
                    "last": unit.forward[-1].name,
                    "layer": unit.number in self.layers,
                    "stage": None if self.stages is None else self.stages[unit.number],
                    "output": model.extents.sizes(unit.output),
                    "parameters": [
                        {"number": parameter.number, "shape": model.extents.sizes(parameter.shape)}
                        for parameter in unit.parameters
                    ],
                }
                for unit in model.units
            ],
            "tensor_parallel": [
                {
                    "size": division.size,
                    "unit": division.unit,
                    "columns": list(division.columns),
                    "rows": list(division.rows),
                }
                for division in self.divisions
            ],
        }

    def stage_of(self, model: Model, stages: int) -> list[int]:
        if self.stages is not None:
            if len(self.stages) != len(model.units) or sorted(set(self.stages)) != list(range(stages)):
                raise UsageError(f"the plan's stages must be 0 to {stages - 1}; edit the plan")
            if list(self.stages) != sorted(self.stages):
                raise UsageError("the stages of the plan's units are not in ascending order; edit the plan")
            return list(self.stages)
        if len(self.layers) % stages:
            raise UsageError(f"{len(self.layers)} layers are not divisible by pp={stages} stages; choose another pp")
        per = len(self.layers) // stages
        if not per:
            raise UsageError(f"the model has no layers to divide into pp={stages} stages; choose pp=1")
        found, reached = [], 0
        order = {number: place for place, number in enumerate(self.layers)}
        for unit in model.units:
            if unit.number in order:
                reached = order[unit.number] // per
            found.append(reached)
        return found


def make_plan(model: Model, recorded_tp: int = 1) -> Plan:
    """Plan the sharding. If each recorded rank has a single attention head, the plan divides the width of the head."""
    return Plan(tuple(_divisions(model, recorded_tp)), tuple(_layers(model.units)))


def _layers(units: Sequence[Unit]) -> list[int]:
    counts = Counter(unit.kind for unit in units)
    repeated = [unit.number for unit in units if counts[unit.kind] > 1]
    return list(range(repeated[0], repeated[-1] + 1)) if repeated else []


def _divisions(model: Model, recorded_tp: int) -> list[Division]:
    """Find extents that are rows of one weight and columns of another, but occur in no norm or residual.

    A layer with a divided first extent is a column layer, and a layer with a divided second extent is a row layer
    (Megatron-LM: M. Shoeybi et al., 2019). Because a layer is never both, only every second extent in a chain of layers
    is divided. Key and value heads are divided like query heads.
    """
    leaves, biases = model.leaves, _biases(model)
    weights = [
        parameter
        for unit in model.units
        for parameter in unit.parameters
        if len(parameter.shape) == 2 and _multiplies(model, parameter)
    ]
    whole = {
        leaf
        for parameter in model.parameters
        if len(parameter.shape) == 1 and parameter not in biases
        for leaf in leaves(parameter.shape)
    } | {model.batch}
    residual = (unit for unit in model.units[:-1] if unit.forward[-1].name in ("aten::add", "aten::add_"))
    whole |= {leaf for unit in residual for leaf in leaves(unit.output)}
    heads, dims = _attention(model)
    whole |= dims - (single_heads(model) if recorded_tp > 1 else set())
    rows_of = {leaf for weight in weights for leaf in leaves(weight.shape[1:])} - whole
    rows_of |= {key for key, query in heads.items() if query in rows_of}
    chosen: dict[int, None] = {}
    roles: dict[int, str] = {}
    for weight in weights:
        firsts = [leaf for leaf in leaves(weight.shape[:1]) if leaf in rows_of]
        if not firsts or roles.get(weight.number) == "row":
            continue
        takers = [other for other in weights for first in firsts if heads.get(first, first) in leaves(other.shape[1:])]
        if any(roles.get(other.number) == "column" for other in takers):
            continue
        chosen |= dict.fromkeys(leaf for first in firsts for leaf in (first, heads.get(first, first)))
        roles[weight.number] = "column"
        roles |= {other.number: "row" for other in takers}
    return [_division(model, leaf) for leaf in chosen]


def _attention(model: Model) -> tuple[dict[int, int], set[int]]:
    """Map each class of key or value heads to the class of its query heads; also return the classes of head widths."""
    heads: dict[int, int] = {}
    dims: set[int] = set()
    for given in model.attentions():
        if len(given) == 3 and all(len(shape) == 4 for shape in given):
            of = [model.extents.leaves(shape[1:2])[0] for shape in given]
            heads |= {other: of[0] for other in of[1:] if other != of[0]}
            dims |= {leaf for shape in given for leaf in model.leaves(shape[3:])}  # these include rotary halves
    return heads, dims


def single_heads(model: Model) -> set[int]:
    value, leaves = model.extents.value, model.extents.leaves
    return {
        leaf
        for given in model.attentions()
        if len(given) == 3 and all(len(shape) == 4 for shape in given)
        if value[given[0][1]] == 1
        for shape in given
        for leaf in leaves(shape[3:])
    }


def _division(model: Model, leaf: int) -> Division:
    leaves = model.leaves
    columns = [parameter for parameter in model.parameters if leaf in leaves(parameter.shape[:1])]
    rows = [parameter for parameter in model.parameters if leaf in leaves(parameter.shape[1:])]
    unit = min((parameter.unit for parameter in (*columns, *rows)), default=-1)
    return Division(
        leaf,
        model.extents.value[leaf],
        tuple(column.number for column in columns),
        tuple(row.number for row in rows),
        unit,
    )


def _multiplies(model: Model, parameter: Parameter) -> bool:
    mine = model.parts(parameter.shape)
    products = (call for call in walked(model.units[parameter.unit].forward) if call.name in PRODUCTS)
    return any(model.parts(shape) in (mine, mine[::-1]) for call in products for shape in call.input_shapes)


def _biases(model: Model) -> set[Parameter]:
    found = set()
    for unit in model.units:
        added = {
            model.parts(shape)
            for call in walked(unit.forward)
            if call.name in ("aten::addmm", "aten::linear")
            for tensors in call.inputs[:: 2 if call.name == "aten::linear" else max(len(call.inputs), 1)]
            for shape in tensors
            if shape is not None and len(shape) == 1
        }
        found |= {
            parameter
            for parameter in unit.parameters
            if len(parameter.shape) == 1 and model.parts(parameter.shape) in added
        }
    return found


def plan_from_dict(given: Any, model: Model) -> Plan:
    """Read a plan that `Plan.to_dict` wrote and that a user may have edited."""
    try:
        if given["version"] != _VERSION:
            raise UsageError(f"the plan has version {given['version']}, expected {_VERSION}; regenerate it with --plan")
        units = given["units"]
        numbers = [[parameter["number"] for parameter in unit["parameters"]] for unit in units]
        layers = tuple(unit["number"] for unit in units if unit["layer"])
        stages = tuple(unit["stage"] for unit in units)
        divided = [
            (tuple(map(int, division["columns"])), tuple(map(int, division["rows"])), int(division["size"]))
            for division in given["tensor_parallel"]
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"the plan cannot be read ({type(error).__name__}: {error}); regenerate it with --plan"
        ) from None
    if numbers != [[parameter.number for parameter in unit.parameters] for unit in model.units]:
        raise UsageError(
            "the plan belongs to a different model: its units have different parameters; regenerate it with --plan"
        )
    found = list[Division]()
    for names in divided:
        found.append(_found(model, *names, {division.extent for division in found}))
    if any(type(stage) is not int for stage in stages) and any(stage is not None for stage in stages):
        raise UsageError("the plan gives a stage to some units only; give a stage to all units or to none")
    chosen = tuple(stage for stage in stages if type(stage) is int)
    return Plan(tuple(found), layers, chosen or None)


def _found(model: Model, columns: tuple[int, ...], rows: tuple[int, ...], size: int, taken: Set[int]) -> Division:
    """Find the division that a plan refers to.

    If several divisions match, such as query heads and key heads in one GEMM, return the first one not in `taken`.
    """
    by_number = {parameter.number: parameter for parameter in model.parameters}
    extents = [by_number[column].shape[0] for column in columns if column in by_number]
    extents += [by_number[row].shape[-1] for row in rows if row in by_number]
    value = model.extents.value
    leaves = dict.fromkeys(leaf for leaf in model.leaves(extents) if value[leaf] == size and leaf not in taken)
    alike = [_division(model, leaf) for leaf in leaves]
    exact = [division for division in alike if (division.columns, division.rows) == (columns, rows)]
    if alike:
        return (exact or alike)[0]
    raise UsageError(f"the plan divides a dimension of size {size}, but no parameter in {[*columns, *rows]} has it")


@dataclass(frozen=True)
class Partial:
    """A GEMM with a partial result, because its inner extent is divided."""

    call: Call
    after: Call  # the result is reduced after this call
    forward: bool  # True for the output of a row layer, False for an input gradient
    unit: int
    place: int  # index of the GEMM among the unit's forward or backward calls
    number: int = 0  # index of the pass


def partial_results(model: Model, plan: Plan) -> list[Partial]:
    divided = plan.divided
    found: list[Partial] = []
    for number, unit in ((number, unit) for number, one in enumerate(model.passes) for unit in one.units):
        flat = [(at, call) for at, top in enumerate(unit.forward) for call in top.walk()]
        for place, (at, call) in enumerate(flat):
            if _sums_over(model, call, divided):
                after = _after_forward(unit.forward, at, call)
                found.append(Partial(call, after, True, unit.number, place, number))
        back = [(top, call) for top in unit.backward for call in top.walk()]
        for place, (top, call) in enumerate(back):
            if _sums_over(model, call, divided):
                after = _after_backward(back[place:], top)
                found.append(Partial(call, after, False, unit.number, place, number))
    return found


def _sums_over(model: Model, call: Call, divided: Iterable[int]) -> bool:
    return not set(model.leaves(contracted(call))).isdisjoint(divided)


def _after_forward(forward: Sequence[Call], place: int, call: Call) -> Call:
    """Return the call after which the result can be reduced: the enclosing layer, or the view that follows it."""
    top = forward[place]
    following = forward[place + 1] if top is call and place + 1 < len(forward) else top
    return following if following.name in ("aten::_unsafe_view", "aten::view") else top


def _after_backward(flat: Sequence[tuple[Call, Call]], top: Call) -> Call:
    """Return the next view of the input gradient, or if there is none, the enclosing autograd call."""
    for other, call in flat:
        if other is top:
            continue
        if call.name == _FLUSH_AT:
            return call
        if call.name in VIEWS or not other.backward:
            continue
        if call.name in PRODUCTS or "Norm" in call.name or "Attention" in call.name:
            break
    return top
