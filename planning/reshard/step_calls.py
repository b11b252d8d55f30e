"""Read the calls of a recorded step as a tree, without communication and without distributed-tensor wrappers.

`split_step` splits a step into forward and backward passes, one pair per microbatch if gradients are accumulated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...schemas.execution_trace.arguments import CallRecord, call_records
from ...trace.brief import brief
from ...trace.columns import IntColumn, distinct, matching
from ...trace.conventions import PROFILER_STEP
from ...trace.errors import UsageError
from ...trace.index import CallIndex
from ...trace.tables import OP
from ...trace.tensors import Signature
from ...trace.trace import Trace
from ..reshape.shapes.followed_calls import Shapes
from ..reshape.shapes.terms import Shape

_MOST_REPLAYED = 0.1  # replayed CUDA graphs may take at most this share of the GPU time
_BACKWARD = "autograd::engine::evaluate_function: "
# These calls communicate, or prepare communication, in the recorded layout.
COMMUNICATES = re.compile(
    r"(?:c10d|_c10d_functional|torch::distributed::reducer|torch\.distributed\.ddp\.reducer|fsdp)::?.*"
    r"|(?:gloo|mpi|ucc|nccl):.*|record_param_comms|FSDP::.*|torch::distributed::reducer.*"
)
_ISSUE = re.compile(r"c10d::(?!barrier|monitored)\w+")
_SUBCLASS = "PythonSubclass"
# These calls convert between distributed and local tensors, and are replaced by their callees.
_WRAPPERS = re.compile(
    rf"{_SUBCLASS}|(?:{_BACKWARD})?(?:_FromTorchTensor|_ToTorchTensor|(?:Nested)?Redistribute"
    r"|RegisterPostBackwardFunction)(?:Backward)?"
)
_VIEWS = (
    "view _unsafe_view reshape t transpose permute as_strided expand expand_as flatten unflatten detach alias"
    " resolve_conj resolve_neg view_as squeeze unsqueeze slice select narrow split chunk unbind split_with_sizes"
    " lift_fresh empty empty_like empty_strided new_empty broadcast_tensors numpy_T"
)
VIEWS = frozenset({"detach", *(f"aten::{name}" for name in _VIEWS.split())})  # operators that view or allocate
# Operators that copy tensors or work on scalars; each layout adds such calls as needed.
BOOKKEEPING = frozenset({
    "aten::to", "aten::_to_copy", "aten::copy_", "aten::zero_", "aten::fill_", "aten::item", "aten::resize_",
    "aten::_local_scalar_dense", "aten::result_type", "aten::flatten_dense_tensors", "aten::unflatten_dense_tensors",
})  # fmt: skip


class NamedSchema(NamedTuple):
    name: str
    schema: str


SUM = NamedSchema("aten::add", "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor")
# Autograd adds gradients in place unless another object holds a reference to the gradient.
SUM_IN_PLACE = NamedSchema(
    "aten::add_", "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
)

_Tensors = tuple[tuple[Shape | None, ...], ...]


@dataclass(eq=False)
class Call:
    row: int  # row in the trace's node table
    index: CallIndex  # position in `Trace.calls`
    name: str
    operator: bool  # False for an annotation
    ts: int  # recorded start time in ns
    end: int  # recorded end time in ns
    sequence: int  # PyTorch's sequence number; it links a backward call to its forward call; −1 if there is none
    inputs: _Tensors  # extents of the tensors in each argument
    results: _Tensors
    signature: Signature | None
    record: dict[str, Any]  # "inputs" and "outputs" in the form of an ET
    schema: str
    children: list[Call] = field(default_factory=list)
    lead: int = 0  # time in ns since the previous call ended

    __repr__ = brief

    def walk(self) -> Iterator[Call]:
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def backward(self) -> bool:
        return self.name.startswith(_BACKWARD)

    def tensors(self, side: str) -> list[list[Any]]:
        """Return all tensors among the "inputs" or "outputs", as in an ET."""
        return self._sides[side]

    def tensor_ids(self, side: str) -> list[int]:
        return [value[0] for value in self.tensors(side)]

    @cached_property
    def _sides(self) -> dict[str, list[list[Any]]]:
        return {side: tensor_values(self.record.get(side)) for side in ("inputs", "outputs")}

    @cached_property
    def input_shapes(self) -> list[Shape]:
        return [shape for tensors in self.inputs for shape in tensors if shape is not None]

    @cached_property
    def output_shapes(self) -> list[Shape]:
        return [shape for tensors in self.results for shape in tensors if shape is not None]

    @property
    def shapes(self) -> list[Shape]:
        return [*self.input_shapes, *self.output_shapes]


def walked(calls: Iterable[Call]) -> Iterator[Call]:
    return chain.from_iterable(call.walk() for call in calls)


def is_tensor(value: list[Any]) -> bool:
    """Return whether a list from an ET is a tensor: [tensor, storage, offset, numel, itemsize, device]."""
    return len(value) == 6 and isinstance(value[5], str) and all(type(number) is int for number in value[:5])


def tensor_values(given: Any) -> list[list[Any]]:
    """Return all tensors in a value from an ET."""
    values = given.get("values") if isinstance(given, dict) else given
    if not isinstance(values, list):
        return []
    return [values] if is_tensor(values) else list(chain.from_iterable(map(tensor_values, values)))


def read_step(trace: Trace, shapes: Shapes, step: int | None = None) -> list[Call]:
    """Return the topmost calls of a step (by default, the median step), without annotations except the optimizer's."""
    calls = trace.calls
    begin, end = step_window(trace, step)
    inside = np.flatnonzero((calls.ts >= begin) & (calls.end <= end) & _of_program(trace))
    kept = [i for i in inside.tolist() if not PROFILER_STEP.fullmatch(trace.names[calls.name[i]])]
    records = call_records(trace, calls.source[kept])
    around = _around_by_time(trace, kept)
    made: dict[int, Call] = {}
    roots: list[Call] = []
    for i, record in zip(kept, records, strict=True):
        row = int(calls.source[i])
        made[i] = call = Call(
            row, CallIndex(i), trace.names[calls.name[i]], bool(calls.kind[i] == OP), int(calls.ts[i]),
            int(calls.end[i]), int(trace.nodes.seq_id[row]), shapes.inputs.get(row, ()), shapes.results.get(row, ()),
            trace.signature_of(CallIndex(i)), _sides(record), record.schema,
        )  # fmt: skip
        above = made.get(around.get(i, -1) if i in around else _around(trace, i))
        (roots if above is None else above.children).append(call)
    if not roots:
        raise UsageError(f"{trace.file}: no calls in the step; record a whole training step")
    _set_leads(roots, begin)
    return sorted(_opened(_kept(roots)), key=lambda call: call.ts)


def check_eager(trace: Trace) -> None:
    """Raise UsageError if much of the GPU time comes from replayed CUDA graphs, because they do not record tensors."""
    gpu, runtime = trace.gpu, trace.runtime
    named = matching(runtime.name, trace.names, lambda name: "GraphLaunch" in name)
    replayed = (gpu.captured_by >= 0) | np.append(named, False)[gpu.runtime]
    if gpu.dur[replayed].sum() > _MOST_REPLAYED * gpu.dur.sum():
        raise UsageError(
            f"{trace.file}: {np.count_nonzero(replayed):,} of {len(gpu):,} GPU events come from replayed CUDA graphs,"
            " in which no tensors are recorded; record the step eagerly (vLLM: enforce_eager, SGLang:"
            " --disable-cuda-graph) with its execution trace"
        )


def _of_program(trace: Trace) -> npt.NDArray[np.bool_]:
    """Return a mask of the calls that run on the program's threads, not on Gloo's own threads."""
    calls, names = trace.calls, trace.names
    if not any(name.startswith("gloo:") for name in names):
        return np.ones(len(calls), np.bool_)
    known = [code for code, name in enumerate(names) if name.startswith(_BACKWARD)]
    marks = [code for code, name in enumerate(names) if PROFILER_STEP.fullmatch(name) or name.startswith("Optimizer.")]
    thread = trace.nodes.thread[calls.source]
    mine = distinct(thread[np.isin(calls.name, [*known, *marks])])
    return np.isin(thread, mine) if len(mine) else np.ones(len(calls), np.bool_)


def _set_leads(calls: Sequence[Call], begin: int) -> None:
    for call in sorted(calls, key=lambda child: child.ts):
        call.lead = max(call.ts - begin, 0)
        begin = max(begin, call.end)
        if not call.operator:
            _set_leads(call.children, call.ts)


def _around_by_time(trace: Trace, kept: Sequence[int]) -> dict[int, int]:
    """Find the callers, by time, of calls that the ET wrongly places below a Gloo collective or an ended call."""
    calls, names = trace.calls, trace.names
    gloo = {code for code, name in enumerate(names) if name.startswith("gloo:")}
    if not gloo:
        return {}
    found: dict[int, int] = {}
    stacks: dict[int, list[int]] = {}
    for i in sorted(kept, key=lambda call: (calls.ts[call], -calls.end[call], call)):
        if int(calls.name[i]) in gloo:
            continue
        stack = stacks.setdefault(int(trace.nodes.thread[calls.source[i]]), [])
        while stack and calls.end[stack[-1]] < calls.end[i]:
            stack.pop()
        above = int(calls.parent[i])
        encloses = above < 0 or (calls.ts[above] <= calls.ts[i] and calls.end[i] <= calls.end[above])
        if above >= 0 and (int(calls.name[above]) in gloo or not encloses):
            found[i] = stack[-1] if stack else -1
        stack.append(i)
    return found


def _around(trace: Trace, call: int) -> int:
    """Return the innermost caller that encloses a call in time, or −1. CPU collectives can mix up callers in ETs."""
    calls = trace.calls
    above = int(calls.parent[call])
    while above >= 0 and not (calls.ts[above] <= calls.ts[call] and calls.end[call] <= calls.end[above]):
        above = int(calls.parent[above])
    return above


def step_window(trace: Trace, step: int | None) -> tuple[int, int]:
    calls = trace.calls
    marks = [
        (int(found[1]), i)
        for i in np.flatnonzero(calls.kind != OP).tolist()
        if (found := PROFILER_STEP.fullmatch(trace.names[calls.name[i]]))
    ]
    marks = marks or [(number, int(trace.steps.call[number])) for number in range(len(trace.steps.batches))]
    if step is not None:
        marks = [mark for mark in marks if mark[0] == step]
        if not marks:
            raise UsageError(f"{trace.file}: no ProfilerStep#{step}; leave --step out")
    if not marks:
        return trace.span
    marks.sort(key=lambda mark: (int(calls.end[mark[1]] - calls.ts[mark[1]]), mark[0]))
    chosen = marks[(len(marks) - 1) // 2][1]
    return int(calls.ts[chosen]), int(calls.end[chosen])


def calls_named(trace: Trace, fits: Callable[[str], object], begin: int, end: int) -> IntColumn:
    """Return the calls in a time range that have a name accepted by `fits`, in the order of their start."""
    calls = trace.calls
    return np.flatnonzero(matching(calls.name, trace.names, fits) & (calls.ts >= begin) & (calls.end <= end))


def recorded_issues(trace: Trace, begin: int, end: int) -> list[CallIndex]:
    """Return the calls in a time range that issue communication, without barriers."""
    return list(map(CallIndex, calls_named(trace, _ISSUE.fullmatch, begin, end).tolist()))


def _sides(record: CallRecord) -> dict[str, Any]:
    sides = {"inputs": record.inputs, "outputs": record.outputs}
    return {name: side.as_object() for name, side in sides.items() if side.whole}


def _kept(calls: Sequence[Call]) -> list[Call]:
    found: list[Call] = []
    for call in calls:
        if COMMUNICATES.fullmatch(call.name):  # ETs place calls of other threads below CPU collectives
            found += [child for child in _kept(call.children) if child.backward or not child.operator]
            continue
        wraps = _WRAPPERS.fullmatch(call.name) is not None or (call.name.startswith("aten::") and _dispatches(call))
        call.children = _kept(call.children)
        for child in call.children if wraps else ():
            child.sequence = call.sequence if child.sequence < 0 else child.sequence
        found += call.children if wraps else [call]
    return found


def _dispatches(call: Call) -> bool:
    """Return whether a tensor subclass handles this call by calling the same operator on its inner tensors."""
    return any(child.name == _SUBCLASS or _dispatches(child) for child in call.children)


def _opened(calls: Sequence[Call]) -> Iterator[Call]:
    """Yield the calls, replacing each annotation by its callees, except for the optimizer's annotations."""
    for call in calls:
        if call.operator or call.name.startswith("Optimizer."):
            yield call
        else:
            yield from _opened(call.children)


def pruned(call: Call, places: Sequence[int], count: int) -> Call:
    """Keep only the entries at `places` of a call on lists of `count` entries, and the callees for these entries."""
    if len(places) == count:
        return call

    def chosen(given: Sequence[Any]) -> Any:
        return type(given)(given[k] for k in places) if len(given) == count else given  # type: ignore[call-arg]

    record = {
        side: _pruned_side(given, places, count) if isinstance(given, dict) else given
        for side, given in call.record.items()
    }
    children = [pruned(child, places, count) for child in call.children]
    each = len(children) // count
    names = [child.name for child in children]
    if children and names == names[:each] * count:
        children = [child for k in places for child in children[k * each : (k + 1) * each]]
    inputs, results = (tuple(map(chosen, side)) for side in (call.inputs, call.results))
    return replace(call, inputs=inputs, results=results, record=record, children=children)


def _pruned_side(side: dict[str, Any], places: Sequence[int], count: int) -> dict[str, Any]:
    found = {key: list(value) for key, value in side.items()}
    for at, kind in enumerate(side.get("types", ())):
        outer, _, inner = kind.partition("[")
        kinds = inner.removesuffix("]").split(",")
        if inner and len(kinds) == count:
            for key in found:
                given = found[key][at]
                if key == "types":
                    found[key][at] = f"{outer}[{','.join(kinds[k] for k in places)}]"
                elif isinstance(given, (list, tuple)) and len(given) == count:
                    found[key][at] = [given[k] for k in places]
    return found


@dataclass
class RecordedStep:
    before: list[Call] = field(default_factory=list)
    passes: list[tuple[list[Call], list[Call]]] = field(default_factory=list)
    after: list[Call] = field(default_factory=list)  # calls after the last backward pass and before the optimizer step
    steps: list[Call] = field(default_factory=list)

    __repr__ = brief


_STEP = "Optimizer.step"
_SEED = "aten::ones_like"  # at the start of backward, this call creates the gradient of the loss


def split_step(top: Sequence[Call]) -> RecordedStep:
    """Split the topmost calls of a step into passes.

    Autograd calls belong to a backward pass. Calls between them are another forward pass if later backward calls have
    the same sequence numbers; otherwise they belong to the same backward pass.
    """
    top = last_step(top)
    found = RecordedStep(steps=[call for call in top if call.name.startswith(_STEP)])
    places = [at for at, call in enumerate(top) if call.backward]
    if not places:  # this is inference
        operators = [call for call in top if call.operator and call not in found.steps]
        found.before = [call for call in top if not call.operator]
        found.passes = [(operators, [])] if operators else []
        return found
    found.before = [call for call in top[: places[0]] if not call.operator]
    later = _sequences_from(top)
    forward, backward = [call for call in top[: places[0]] if call.operator], list[Call]()
    at = places[0]
    while at <= places[-1]:
        end = at
        while end <= places[-1] and not top[end].backward:
            end += 1
        between = [call for call in top[at:end] if call.operator]
        if any(call.sequence in later[end] for call in walked(between) if call.sequence >= 0):
            found.passes.append((forward, backward))
            forward, backward = between, []
        else:
            backward += between
        backward.append(top[end])
        at = end + 1
    found.passes.append((forward, backward))
    for before, behind in found.passes:
        if before and before[-1].name == _SEED:
            behind.insert(0, before.pop())
    found.after = [call for call in top[places[-1] + 1 :] if call not in found.steps]
    return found


def last_step(top: Sequence[Call]) -> Sequence[Call]:
    """Return the calls of the last complete training step, if there are several steps."""
    end = max((at for at, call in enumerate(top) if call.name.startswith(_STEP)), default=len(top))
    inner = [at for at, call in enumerate(top) if call.backward and at < end]
    before_it = [at for at, call in enumerate(top[: inner[-1] + 1 if inner else 0]) if call.name.startswith(_STEP)]
    return top[before_it[-1] + 1 :] if before_it and inner else top


def _sequences_from(top: Sequence[Call]) -> list[frozenset[int]]:
    """For each call, return the sequence numbers of the run of backward calls that starts there; empty if none does."""
    found: list[frozenset[int]] = [frozenset()] * (len(top) + 1)
    run = set[int]()
    for at in range(len(top) - 1, -1, -1):
        if top[at].backward:
            run |= {call.sequence for call in top[at].walk() if call.sequence >= 0}
            if at == 0 or not top[at - 1].backward:
                found[at] = frozenset(run)
                run = set()
    return found
