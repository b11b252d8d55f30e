"""Follow the extents (dimension sizes) of tensors from call to call through a trace."""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ....schemas.execution_trace.arguments import CallRecord, DecodedSide, call_records
from ....trace.index import Positions, Row, as_positions
from ....trace.kinds import CPU
from ....trace.trace import Trace
from .extents import Extents
from .layer_rules import LAYER_RULES
from .tensor_rules import FREE_SIZED, RANDOM, TENSOR_RULES
from .terms import OpCall, Operand, Shape

_RULES = TENSOR_RULES | LAYER_RULES
_ELEMENT = re.compile(r"Tensor\([^()]*(?:\([^()]*\))?[^()]*\)|\w+")
_BACKWARD = "autograd::engine::evaluate_function"
_ACCUMULATION = f"{_BACKWARD}: torch::autograd::AccumulateGrad"
# Calls with these prefixes use only parameters, their gradients and optimizer states.
_OF_PARAMETERS = "Optimizer.", "torch::distributed::reducer", "torch.distributed.ddp.reducer"
# Collectives with these prefixes belong to data parallelism if they reduce gradients.
_REDUCTIONS = "c10d::allreduce", "c10d::reduce", "c10d::_reduce_scatter"
_DIVIDES = "FSDP::"  # FSDP2 annotations start with this
_TRANSPOSES = "transpose_"  # the operator swaps extents in place; recorded sizes do not change if the extents are equal
LOADER = "DataLoader"  # PyTorch annotates the loading of a batch with this name


class _Tensor(NamedTuple):
    """A recorded tensor. The IDs of the tensor object and its storage are reused after the memory is freed."""

    id: int
    storage: int
    sizes: tuple[int, ...]
    mask: bool


class Source(NamedTuple):
    """A tensor with extents that do not follow from other tensors: an external tensor or one created from numbers."""

    shape: Shape
    # operator, argument position and sizes at the first use; the position is −1 if the operator creates the tensor
    use: tuple[str, int, tuple[int, ...]]
    forward: bool  # True if an operator uses the tensor in the forward pass
    data: bool = True  # True if the tensor is external or random, so that it may have a batch dimension


@dataclass
class Shapes:
    extents: Extents = field(default_factory=Extents)
    # Maps a call's row to the tensors in every argument or result. None represents an undefined tensor.
    inputs: dict[int, tuple[tuple[Shape | None, ...], ...]] = field(default_factory=dict)
    results: dict[int, tuple[tuple[Shape | None, ...], ...]] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)  # ordered by first use
    # for each forward call of an operator with weights, the extents that may be the batch size
    votes: list[Shape] = field(default_factory=list)
    voters: list[int] = field(default_factory=list)  # rows of the calls in `votes`
    # extents along which forward operators mix elements, such as sequences
    mixed: list[int] = field(default_factory=list)
    loaded: list[int] = field(default_factory=list)  # extents along which a data loader stacked samples


def shapes_of(trace: Trace) -> Shapes:
    """Follow the tensors of a trace through its calls, and relate their extents with the rules of the operators."""
    callers = _callers(trace)
    walk = _Walk(trace, callers.tolist())
    rows = np.flatnonzero(trace.nodes.kind == CPU)
    order = as_positions(rows[np.argsort(trace.nodes.id[rows], kind="stable")])  # IDs ascend in start order
    records = call_records(trace, order)
    open_records: dict[Row, CallRecord] = {}  # records of calls that have not ended
    for row, begins in _events(callers, order):
        if begins:
            open_records[row] = next(records)
            walk.begin(row, open_records[row])
        else:
            walk.end(row, open_records.pop(row))
    return walk.shapes


def _callers(trace: Trace) -> npt.NDArray[np.int64]:
    """Map rows to their callers. If an ET places a call below a call that has ended, use the ended call's caller."""
    calls, above = trace.calls, trace.nodes.parent_row
    begin, end = np.zeros(len(trace) + 1, np.int64), np.full(len(trace) + 1, np.iinfo(np.int64).max)
    begin[calls.source], end[calls.source] = calls.ts, calls.end
    found = np.array(above, np.int64)
    while True:
        ended = np.flatnonzero((found >= 0) & (end[found] <= begin[:-1]) & (end[found] < end[:-1]))
        if not len(ended):
            return found
        found[ended] = above[found[ended]]


def _events(callers: npt.NDArray[np.int64], rows: Positions[int, Row]) -> Iterator[tuple[Row, bool]]:
    place = np.full(len(callers) + 1, -1, np.int64)
    place[rows] = np.arange(len(rows))
    above = place[callers[rows]].tolist()  # if there is no caller, −1 selects the last entry
    last = list(range(len(rows)))
    for at in range(len(rows) - 1, -1, -1):
        if 0 <= above[at] < at:
            last[above[at]] = max(last[above[at]], last[at])
    ending = defaultdict[int, list[int]](list)
    for at, end in enumerate(last):
        ending[end].append(at)
    in_order = rows.tolist()
    for at, row in enumerate(in_order):
        yield row, True
        for ended in reversed(ending[at]):
            yield in_order[ended], False


@dataclass
class _Held:
    shape: Shape
    tensor: _Tensor
    time: int


@dataclass
class _Open:
    name: str
    arguments: tuple[Operand, ...]
    time: int
    basis: Shape  # input extents of the innermost enclosing call that has inputs and is not in `FREE_SIZED`
    backward: bool
    gathers: bool  # True inside gradient accumulation
    parameters: bool  # True if the call uses only parameters, gradients and optimizer states
    loads: bool  # True while a data loader loads a batch
    taken: frozenset[int]  # IDs of input tensors
    divides: bool = False  # True if FSDP gathers or reduces in this call: shard sizes are not layer sizes
    temporaries: list[Shape] = field(default_factory=list)  # tensors that the call creates with arbitrary sizes


class _Walk:
    """Follows tensors by tensor ID and storage. A storage is not enough to identify a tensor: memory is reused."""

    def __init__(self, trace: Trace, callers: Sequence[int]) -> None:
        self.shapes = Shapes()
        self._trace, self._callers = trace, callers
        self._extents = self.shapes.extents
        self._by_id: dict[int, _Held] = {}
        self._open: dict[int, _Open] = {}
        self._time = 0

    def begin(self, row: Row, record: CallRecord) -> None:
        self._time += 1
        name = self._trace.name_of(row).removeprefix("aten::")
        above = self._open.get(Row(self._callers[row]))
        backward = name.startswith(_BACKWARD) or (above is not None and above.backward)
        if above is None or name.startswith(_BACKWARD):  # a backward pass may start inside a hook or a recomputation
            gathers, parameters = name == _ACCUMULATION, False
        else:
            gathers, parameters = above.gathers, above.parameters
        if name.startswith(_DIVIDES) or (above is not None and above.divides and not name.startswith(_BACKWARD)):
            self._open[row] = _Open(
                name, (), self._time, (), backward, gathers, parameters, loads=False, taken=frozenset(), divides=True
            )
            return
        parameters |= name.startswith(_OF_PARAMETERS) or (gathers and name.startswith(_REDUCTIONS))
        arguments, given = list[Operand](), _arguments(record.inputs)
        taken = frozenset(tensor.id for tensors, _ in given for tensor in tensors if tensor is not None)
        forward = not (backward or parameters or (above is not None and above.basis))
        within = None if backward or parameters or above is None or not above.basis else above.temporaries
        for position, (tensors, value) in enumerate(given):
            found = [self._input(tensor, (name, position), forward, within) for tensor in tensors]
            arguments.append(
                Operand(tuple(found), value, tuple(tensor is not None and tensor.mask for tensor in tensors))
            )
        self.shapes.inputs[row] = tuple(argument.tensors for argument in arguments)
        mine = tuple(e for argument in arguments for shape in argument.tensors if shape is not None for e in shape)
        if parameters:
            self._extents.fix(mine)
        inherited = above.basis if above is not None else ()
        basis = mine if mine and name not in FREE_SIZED else inherited
        loads = LOADER in name or (above is not None and above.loads)
        self._open[row] = _Open(name, tuple(arguments), self._time, basis, backward, gathers, parameters, loads, taken)

    def end(self, row: Row, record: CallRecord) -> None:
        call = self._open.pop(row)
        if call.divides:
            for tensors, _ in _arguments(record.outputs):
                for tensor in tensors:
                    self._by_id.pop(tensor.id if tensor is not None else -1, None)
            return
        results = []
        for tensors, _ in _arguments(record.outputs):
            results.append(tuple(self._result(row, tensor, call) for tensor in tensors))
        self.shapes.results[row] = tuple(results)
        flat = tuple(shape for result in results for shape in result if shape is not None)
        made = [shape for shape in call.temporaries if shape not in flat]
        above = self._open.get(Row(self._callers[row]))
        if above is not None:
            above.temporaries += [*made, *(flat if call.name in FREE_SIZED else ())]
        if call.parameters:
            self._extents.fix(extent for shape in flat for extent in shape)
        with contextlib.suppress(IndexError, TypeError, ValueError):  # recorded arguments may not match the schema
            self._relate(row, OpCall(call.name, call.arguments, flat, tuple(made)), call)

    def _relate(self, row: int, made: OpCall, call: _Open) -> None:
        rule = _RULES.get(call.name) or _RULES.get(call.name.removesuffix("_"))
        if rule is not None:
            rule(made, self._extents)
        if call.name == "stack" and call.loads and made.results:
            self.shapes.loaded.append(made.results[0][int(call.arguments[1].value or 0)])
        if call.name == "select" and call.loads:
            self._extents.fix(roles(made)[1])  # the dataset's length is independent of the batch size
        inner = call.name in IN_OTHERS and any(outer.arguments for outer in self._around(row))
        if not (call.backward or call.parameters or inner):
            outer, mixed = roles(made)
            self.shapes.mixed += mixed
            if outer:
                self.shapes.votes.append(outer)
                self.shapes.voters.append(row)

    def _input(
        self, tensor: _Tensor | None, use: tuple[str, int], forward: bool, within: list[Shape] | None
    ) -> Shape | None:
        if tensor is None:
            return None
        held = self._by_id.get(tensor.id)
        if held is None or held.tensor != tensor:
            shape = self._new(tensor)
            self.shapes.sources.append(Source(shape, (*use, tensor.sizes), forward))
            if within is not None:  # the enclosing call created the tensor, because it did not receive it
                within.append(shape)
        else:
            shape = held.shape
        self._hold(tensor, shape)
        return shape

    def _result(self, row: int, tensor: _Tensor | None, call: _Open) -> Shape | None:
        if tensor is None:
            return None
        held = self._by_id.get(tensor.id)
        if (
            held is not None
            and not (call.name == _TRANSPOSES and held.shape == call.arguments[0].tensors[0])
            and held.tensor.sizes == tensor.sizes
            and (held.time >= call.time or any(tensor.id in outer.taken for outer in self._around(row)))
        ):
            self._hold(tensor, held.shape)
            return held.shape
        shape = self._new(tensor)
        if call.basis:
            self._extents.follow(shape, call.basis)
        elif call.name in FREE_SIZED:
            random = any(outer.name in RANDOM for outer in (call, *self._around(row)))
            use = (call.name, -1, tensor.sizes)
            self.shapes.sources.append(Source(shape, use, not (call.backward or call.parameters), random))
        self._hold(tensor, shape)
        return shape

    def _around(self, row: int) -> Iterator[_Open]:
        while (call := self._open.get(row := Row(self._callers[row]))) is not None:
            yield call

    def _new(self, tensor: _Tensor) -> Shape:
        return tuple(self._extents.new(size) for size in tensor.sizes)

    def _hold(self, tensor: _Tensor, shape: Shape) -> None:
        self._by_id[tensor.id] = _Held(shape, tensor, self._time)


def _arguments(side: DecodedSide) -> list[tuple[list[_Tensor | None], Any]]:
    with contextlib.suppress(TypeError, ValueError):  # a tool other than PyTorch may have written the record
        return [_argument(value, shape, kind) for value, shape, kind, _ in side.rows()]
    return []


def _argument(value: Any, shape: Any, kind: str) -> tuple[list[_Tensor | None], Any]:
    if kind.startswith("Tensor("):
        return [_tensor(value, shape, kind)], None
    if "Tensor(" not in kind:
        return [], value
    kinds = _ELEMENT.findall(kind.partition("[")[2])
    return [_tensor(*element) for element in zip(value, shape, kinds, strict=True)], value


def _tensor(value: Any, shape: Any, kind: str) -> _Tensor | None:
    if "nullptr" in kind or not kind.startswith("Tensor("):
        return None
    number, storage = value[:2]
    sizes = tuple(shape)
    if not all(type(integer) is int for integer in (number, storage, *sizes)) or min(sizes, default=0) < 0:
        raise ValueError("no tensor")
    return _Tensor(number, storage, sizes, "bool" in kind)


Roles = tuple[Shape, Shape]
_NONE: Roles = (), ()
# These calls are evidence only if no other operator makes them; for example, `index_select` calls `select` per row.
IN_OTHERS = frozenset(("select", "unbind", "sum", "mean", "amax", "max"))


def roles(call: OpCall) -> Roles:
    """Return a forward call's extents that may be the batch size, and the extents along which the call mixes elements.

    Samples of a batch are not mixed before the loss. Sequence elements are mixed in attention, recurrent layers,
    selections, and means over some dimensions. Features are mixed in every layer.
    """
    find = _ROLES.get(call.name)
    return _NONE if find is None else find(call)


def _data(position: int, outer: slice, mixed: slice = slice(0)) -> Callable[[OpCall], Roles]:
    def find(call: OpCall) -> Roles:
        shape = call.tensor(position) or ()
        return shape[outer], shape[mixed]

    return find


def _attention(call: OpCall) -> Roles:
    query, key = call.tensor(0) or (), call.tensor(1) or ()
    return query[:1], (*query[-2:-1], *key[-2:-1])


def _recurrent(call: OpCall) -> Roles:
    """The data are (sequence, batch, features), or (batch, sequence, features) with `batch_first`."""
    data, time = call.tensor(0) or (), int(call.value(8) is True)
    return data[:-1], (*data[time : time + 1], data[2]) if len(data) == 3 else ()


def _selected(call: OpCall) -> Roles:
    shape = call.tensor(0) or ()
    at = int(call.value(1) or 0) % max(len(shape), 1)
    return (), shape[at : at + 1]


def _reduced(call: OpCall) -> Roles:
    shape, dims = call.tensor(0) or (), call.value(1)
    if not isinstance(dims, list) or not dims or len(dims) >= len(shape):
        return _NONE
    return (), tuple(shape[int(dim) % len(shape)] for dim in dims)


_OUTER, _FIRST, _LAST = slice(-1), slice(1), slice(-1, None)
_ROLES: dict[str, Callable[[OpCall], Roles]] = {
    **dict.fromkeys(("linear", "mm", "matmul"), _data(0, _OUTER, _LAST)),
    "addmm": _data(1, _OUTER, _LAST),
    "bmm": _data(0, _FIRST, _LAST),
    "layer_norm": _data(0, _OUTER, _LAST),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution", "batch_norm"), _data(0, _FIRST, slice(1, 2))),
    "embedding": _data(1, slice(None)),
    "scaled_dot_product_attention": _attention,
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _recurrent),
    "select": _selected,
    "unbind": _selected,
    **dict.fromkeys(("mean", "sum", "amax", "max"), _reduced),
}
