"""What of a layout is not derived: extents that stay, communication that is not known, with their shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Literal

from ...trace.brief import brief
from .rank_program import Derivation
from .step_calls import BOOKKEEPING, VIEWS, Call, walked
from .structure import PRODUCTS, Model

if TYPE_CHECKING:
    from .job import Resharded

_NAMED = 4
LEAST = 0.01
"""Operators that are not derived make a result doubtful from this share of the time on."""


@dataclass(frozen=True)
class NotDerived:
    """Something that stays as it was recorded, or is taken in proportion.

    Attributes:
        what: the operator, or the kind of parameters. reason: why.
        count: calls or parameters. share: of the recorded operators' own time, or of the parameters' elements.
        kind: of what it is: "operators", "parameters" or "communication".
    """

    what: str
    reason: str
    count: int
    share: float
    kind: Literal["operators", "parameters", "communication"] = "operators"

    __repr__ = brief


_UNKNOWN = "follows from what is divided in an unknown way"
_OF_DATA = "depends on values: in proportion"
_WHOLE = "whole on every tensor-parallel rank"


def not_derived(derivation: Derivation) -> tuple[NotDerived, ...]:
    """Operators with an extent that follows from divided ones in an unknown way; parameters that stay whole; and
    communication that the layout needs and that is not known."""
    model = derivation.model
    leaves = model.leaves
    stated = derivation.experts.stated if derivation.layout.routing is not None else frozenset()
    of_data = (derivation.extents.of_data | derivation.experts.rooms) - stated
    unknown = (derivation.extents.unknown | _loose(derivation)) - stated
    count, time = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    stay = _whole_products(derivation)
    whole = 0
    for call in model.calls():
        own = int(model.trace.self_ns[call.index])
        whole += own
        if "::" not in call.name and call.children:
            continue  # a node of autograd, whose work is in what it calls
        if call.name in VIEWS:
            continue
        classes = {leaf for shape in call.shapes for leaf in leaves(shape)}
        reason = (
            _OF_DATA if not classes.isdisjoint(of_data)
            else _UNKNOWN if not classes.isdisjoint(unknown)
            else _WHOLE if call.row in stay else None
        )  # fmt: skip
        if reason is not None:
            count[call.name, reason] += 1
            time[call.name, reason] += own
    found = [
        NotDerived(name, reason, number, time[name, reason] / max(whole, 1))
        for (name, reason), number in count.items()
    ]  # fmt: skip
    found += [*_whole_parameters(derivation), *_communication(derivation)]
    return tuple(sorted(found, key=lambda row: (-row.share, row.what, row.reason)))


def _loose(derivation: Derivation) -> set[int]:
    """Classes that follow extents which tensor parallelism divides, in an unknown way."""
    model, divided = derivation.model, derivation.plan.divided if derivation.layout.tp > 1 else set()
    extents, changed = model.extents, derivation.changed
    loose: set[int] = set()
    firm = set[int]()  # they keep their values if others do, and those do
    related = {leaf for whole, parts in extents.sums for leaf in extents.leaves([whole, *parts])}
    for some, basis in extents.following:
        moved = [leaf for leaf in extents.leaves(basis) if leaf in divided]
        if moved:
            loose |= {
                leaf for leaf in extents.leaves(some)
                if leaf not in changed and leaf not in related
                and any(extents.value[leaf] % extents.value[root] == 0 for root in moved) and extents.value[leaf] > 1
            }  # fmt: skip
        elif basis:
            firm |= set(extents.leaves(some))
    return loose - firm - set(extents.leaves([*model.given, *extents.numbers]))


def _whole_products(derivation: Derivation) -> set[int]:
    """Rows of the products of samples with a weight that tensor parallelism divides nowhere; not those outside of the
    repeated blocks, such as the output layer, which are whole as tensor parallelism leaves them."""
    if derivation.layout.tp == 1:
        return set()
    model, leaves, divided = derivation.model, derivation.model.leaves, derivation.plan.divided
    batch, outside = set(model.batches), _outside_blocks(model)
    return {
        call.row for call in model.calls()
        if call.name in PRODUCTS
        and call.row not in outside
        and divided.isdisjoint(known := {leaf for shape in call.shapes for leaf in leaves(shape)})
        and (not batch or not batch.isdisjoint(known))
    }  # fmt: skip


def _outside_blocks(model: Model) -> set[int]:
    """Rows of the calls of units before and after the repeated blocks; none where nothing repeats."""
    blocks = [wrap.units for wrap in model.blocks if not wrap.root]
    if len(blocks) < 2:
        return set()
    first, last = min(begin for begin, _ in blocks), max(end for _, end in blocks)
    parts = [
        part for one in model.passes for unit in one.units if not first <= unit.number <= last
        for part in (unit.forward, unit.backward)
    ]  # fmt: skip
    return {call.row for part in parts for call in walked(part)}


def _whole_parameters(derivation: Derivation) -> Iterator[NotDerived]:
    model = derivation.model
    if derivation.layout.tp == 1:
        return
    divided, extents = derivation.plan.divided, model.extents
    kept = [parameter for parameter in model.parameters
            if len(parameter.shape) > 1 and divided.isdisjoint(model.leaves(parameter.shape))]  # fmt: skip
    elements = sum(prod(extents.sizes(parameter.shape)) for parameter in model.parameters)
    if kept:
        mine = sum(prod(extents.sizes(parameter.shape)) for parameter in kept)
        yield NotDerived("parameters", _WHOLE, len(kept), mine / max(elements, 1), "parameters")


def _communication(derivation: Derivation) -> Iterator[NotDerived]:
    """Communication that the layout needs and that is not known."""
    model, layout = derivation.model, derivation.layout

    def row(what: str, reason: str, count: int) -> NotDerived:
        return NotDerived(what, reason, count, 0.0, "communication")

    if layout.ep > 1 and layout.routing is None and not all(one.layer.padded for one in derivation.experts.layers):
        yield row("tokens of experts", "they depend on values, and all ranks are taken to route as the recorded "
                  "one: say so with --routing recorded, or give --routing uniform",
                  len(derivation.experts.layers))  # fmt: skip
    if derivation.experts.layers and (layout.tp > 1 or (layout.ep > 1 and layout.pp > 1)):
        beside = "with tensor parallelism" if layout.tp > 1 else "divided within a pipeline"
        yield row("experts", f"routed ones {beside} were not compared with a recording",
                  len(derivation.experts.layers))  # fmt: skip
    if model.unmatched and layout.dp > 1 and derivation.recorded.dp == 1:
        yield row("gradients", "no parameter is known for them", model.unmatched)
    lost = [parameter for parameter in model.parameters if not parameter.accumulates]
    if lost and layout.dp > 1 and derivation.recorded.dp == 1 and model.weights.evidence == "optimizer":
        yield row("gradients", "the optimizer changes parameters for which none is accumulated", len(lost))
    if layout.dp > 1 and layout.zero == 3 and layout.fsdp_wrap is None and not model.wraps and not model.blocks[1:]:
        yield row("units of FSDP", "no block repeats, so all parameters are in the root: give --fsdp-wrap", 1)
    if layout.dp > 1 and layout.zero == 3 and layout.fsdp_wrap is None and not model.wraps and model.loose_blocks:
        yield row("units of FSDP", "it is not known whether some layers belong to blocks or to the root: give "
                  "--fsdp-wrap", 1)  # fmt: skip
    yield from _of_recorded_calls(derivation)
    clipping = derivation.clipping
    if clipping.joined and (layout.tp > 1 or layout.pp > 1 or layout.ep > 1):
        yield row("clipping", "the sum of norms over tensor-parallel ranks, stages or experts is left out",
                  len(clipping.joined))  # fmt: skip
    if clipping.joined and layout.zero in (1, 2) and layout.dp > 1:
        yield row("clipping", "norms are taken of whole gradients", len(clipping.joined))
    if clipping.scaled and (
        layout.tp > 1 or layout.pp > 1 or layout.ep > 1 or (layout.zero in (1, 2) and layout.dp > 1)
    ):
        yield row("gradient scaling", "whether gradients are finite is not shared over ranks", len(clipping.scaled))
    again = _run_again(derivation) if layout.zero == 3 and layout.dp > 1 else set()
    if again:
        yield row("units of FSDP", "run several times in a forward pass, each time gathered; gathered once here",
                  len(again))  # fmt: skip
    constants = [buffer for buffer in model.buffers if not buffer.written]
    frozen = model.weights.frozen
    if frozen and constants and not model.own_buffers and layout.dp > 1:
        yield row("buffers", "as there are frozen weights, these may be such, which FSDP gathers and DDP does not "
                  "broadcast", len(constants))  # fmt: skip
    elif derivation.buffers and not model.own_buffers and layout.dp > 1 and layout.zero < 3 and _runs_apart(model):
        yield row("buffers", "as there are frozen weights without autograd, these may be of another model, which DDP "
                  "does not broadcast", len(derivation.buffers))  # fmt: skip
    if frozen and layout.zero == 3 and layout.dp > 1 and _unplaced(derivation):
        yield row("frozen weights", "FSDP gathers them with others, and it is not known with which", len(frozen))
    if model.unreached and layout.dp > 1 and derivation.recorded.dp == 1:
        yield row("weights without a gradient", "what their layers compute does not reach the loss: if they are "
                  "parameters, they are reduced with the others", model.unreached)  # fmt: skip
    divides = layout.zero == 3 or layout.tp > 1 or layout.pp > 1 or layout.ep > 1
    if clipping.unknown and divides and layout.ranks > 1:
        yield row("gradients", "what is made of them before the optimizer's step is not summed over ranks",
                  len(clipping.unknown))  # fmt: skip
    if layout.pp > 1:
        tied = [p for p in model.parameters if len({derivation.stages[unit] for unit in _users(derivation, p)}) > 1]
        if tied:
            yield row("tied parameters", "their gradients are not summed over stages", len(tied))
        at = [k for k in range(len(model.units) - 1) if derivation.stages[k] != derivation.stages[k + 1]]
        open_cuts = [k for k in at if not model.units[k].alone]
        if open_cuts:
            yield row("stages", "several activations pass between them, one is sent", len(open_cuts))


def _of_recorded_calls(derivation: Derivation) -> Iterator[NotDerived]:
    """Communication that is not known since the recording has other calls than a layout is derived of."""
    model, layout = derivation.model, derivation.layout

    def row(what: str, reason: str, count: int) -> NotDerived:
        return NotDerived(what, reason, count, 0.0, "communication")

    if layout.dp > 1 and derivation.recorded.dp == 1:
        sparse = {call.row for call in model.calls() if call.name.startswith("aten::_sparse_coo_tensor")}
        if sparse and model.trains:
            yield row("gradients", "sparse ones, whose elements depend on values", len(sparse))
    compiled = [call for call in model.calls() if call.name.startswith(_COMPILED)]
    if (
        compiled
        and layout.dp > 1
        and ((layout.zero == 3 and not model.wraps) or (model.buffers and not model.own_buffers))
    ):
        yield row("compiled regions", "what is a parameter or buffer in them is not recorded", len(compiled))
    divided = (layout.zero and layout.dp > 1) or layout.tp > 1
    whole = [call for step, _ in model.optimizer for call in step.walk() if _reduces(call)] if divided else []
    if whole:
        yield row("optimizer", "what it sums over the elements of a parameter is not summed over ranks", len(whole))


_COMPILED = ("Torch-Compiled Region", "CompiledFunction", "## Call CompiledFxGraph")


def _reduces(call: Call) -> bool:
    """A call makes one tensor of fewer elements than it takes, or multiplies matrices."""
    signature = call.signature
    if signature is None or not signature.outputs or call.name in VIEWS | BOOKKEEPING or "::" not in call.name:
        return False
    given = max((tensor.numel for tensor in signature.tensors), default=0)
    return call.name in PRODUCTS or (given > 1 and max(output.numel for output in signature.outputs) < given)


def _unplaced(derivation: Derivation) -> bool:
    """Frozen weights may not be in the units of FSDP that have them, or be another model's, which runs without
    autograd; or a unit but the root has no others."""
    model = derivation.model
    if derivation.layout.pp > 1 or model.weights.evidence != "optimizer":
        return True
    wraps, wanted = [wrap for wrap in derivation.wraps if not wrap.root], derivation.layout.fsdp_wrap or ""
    known = {one.number for one in model.parameters}
    if wanted == "each" or wanted.isdecimal() or any(known.isdisjoint(wrap.parameters) for wrap in wraps):
        return True
    return not model.wraps and _runs_apart(model)


def _runs_apart(model: Model) -> bool:
    """Some frozen weights are taken without autograd alone: perhaps another model's, such as a teacher's."""
    differentiated = {
        one.number for part in (*(unit.forward for unit in model.units), model.loss_forward) for call in walked(part)
        if call.sequence >= 0 for one in model.weights.read(call)
    }  # fmt: skip
    return not differentiated.issuperset(one.number for one in model.weights.frozen)


def _run_again(derivation: Derivation) -> set[str]:
    """Units of FSDP whose parameters forward takes again after those of another unit."""
    model = derivation.model
    label_of = {number: wrap.label for wrap in derivation.wraps if not wrap.root for number in wrap.parameters}
    found, seen, current = set[str](), set[str](), ""
    parts = [*(unit.forward for unit in model.units), model.loss_forward]
    for call in walked(call for part in parts for call in part):
        for parameter in model.weights.taken(call):
            label = label_of.get(parameter.number, current)
            if label != current and label in seen:
                found.add(label)
            seen.add(label)
            current = label
    return found


def _users(derivation: Derivation, parameter: object) -> set[int]:
    model = derivation.model
    return {
        unit.number for unit in model.units for call in walked(unit.forward)
        for taken in model.weights.taken(call) if taken is parameter
    }  # fmt: skip


def assumptions(derivation: Derivation) -> list[str]:
    """What the recording does not show and data parallelism depends on, a line each."""
    model, layout = derivation.model, derivation.layout
    shown = model.wraps if layout.zero == 3 else model.own_buffers  # recorded with FSDP, or DDP
    if layout.dp == 1 or shown or not model.trains:
        return []
    if layout.zero < 3:
        options = "copies what the loss takes" if derivation.finds_unused else "without find_unused_parameters"
        found = [f"every parameter is used in the step; DistributedDataParallel {options}"]
        if layout.broadcast_buffers is not False:
            found.append(f"buffers are what forward takes and no optimizer changes: {len(derivation.buffers)}")
        return found
    found = ["every parameter is used in the step (FSDP gathers others, too); reshard_after_forward is not changed"]
    if layout.reshard_after_forward is not None:
        found = [found[0].partition(";")[0]]
    constants = sum(not buffer.written for buffer in model.inferred)
    if constants:
        found.append(f"constants that forward takes are not frozen parameters: {constants}")
    blocks = sum(not wrap.root for wrap in derivation.wraps)
    if layout.fsdp_wrap is None and blocks:
        found.append(f"FSDP wraps each of {blocks} repeated blocks and the whole model; --fsdp-wrap chooses others")
    return found


def doubts(job: Resharded) -> list[str]:
    """Why a result is not to be relied upon."""
    found = []
    share = sum(row.share for row in job.not_derived if row.kind == "operators")
    if share > LEAST:
        rows = [row.what for row in job.not_derived if row.kind == "operators"]
        names = ", ".join(rows[:_NAMED]) + (f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else "")
        found.append(f"{share:.1%} of the time is in operators with extents that are not derived: {names}")
    elif guessed := [row.what for row in job.not_derived if row.reason == _UNKNOWN and row.what not in BOOKKEEPING]:
        found.append(f"extents are taken in proportion, of operators with {share:.2%} of the time: "
                     + ", ".join(guessed[:_NAMED]))  # fmt: skip
    found += [
        f"communication is not derived: {row.what}: {row.reason} ({row.count})"
        for row in job.not_derived if row.kind == "communication"
    ]  # fmt: skip
    found += [
        f"stage {one.stage} communicates {one.communicated:,} elements of gradients, its parameters have "
        f"{one.parameters:,}" + (f" and {one.padding:,} of padding" if one.padding else "")
        for one in job.gradients if not one.whole
    ]  # fmt: skip
    proof = job.proof
    if proof.missing or proof.extra:
        found.append(
            f"the recorded layout derived from itself lacks {proof.missing.total():,} and adds "
            f"{proof.extra.total():,} of {proof.operators:,} operators ({proof.share:.1%} of the time)"
        )
    of_fsdp = proof.gathers and job.derivation.layout.zero < 3 and bool(job.derivation.model.wraps)
    if proof.other_communications and not of_fsdp:
        found.append(
            "the recorded layout derived from itself has other communication: " + proof.other_communications[0]
        )
    return found
