"""List the gaps of a derived layout, and decide whether the result is reliable.

There are three kinds of gaps:

- An operator is not sharded, or its sizes depend on tensor values or in an unknown way on sharded dimensions.
- A parameter is not sharded, so every tensor-parallel rank has it in full.
- Some communication is missing from the recording. Each rule in `_RULES` looks for one such gap.

A gap lists the share of the time or of the parameters that it affects. `doubts` turns the list into reasons to
distrust the result. If there are any, the command exits with status 3.

Example: no block repeats in a CNN with different sizes at each layer. With FSDP, the rule `_fsdp_units` then asks for
`--fsdp-wrap` and lists the module classes that occur several times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from ...trace.brief import brief
from .derivation import Derivation
from .model import PRODUCTS, Model
from .proof import Gradients, SelfProof
from .step_calls import BOOKKEEPING, VIEWS, Call, walked
from .wraps import candidates

_NAMED = 4  # a doubt names at most this many operators; the report lists all of them
# A result is doubtful if operators that were not derived take more than this share of the time.
# For the recorded layout, operators that were not derived take less than this share.
LEAST = 0.01
# torch.compile hides parameters and buffers inside calls with these names.
_COMPILED = ("Torch-Compiled Region", "CompiledFunction", "## Call CompiledFxGraph")
_UNKNOWN = "depends on sharded dimensions in an unknown way"
_OF_DATA = "depends on tensor values; scaled in proportion"
_WHOLE = "not sharded: the same on every tensor-parallel rank"


@dataclass(frozen=True)
class NotDerived:
    what: str
    reason: str
    count: int
    share: float  # share of the operator self time or of the parameter elements
    kind: Literal["operators", "parameters", "communication"] = "operators"

    __repr__ = brief


def not_derived(derivation: Derivation) -> tuple[NotDerived, ...]:
    found = [*_operators(derivation), *_parameters(derivation)]
    for rule in _RULES:
        found += [NotDerived(what, reason, n, 0.0, "communication") for what, reason, n in rule(derivation) if n]
    return tuple(sorted(found, key=lambda row: (-row.share, row.what, row.reason)))


# ---- operators and parameters ----


def _operators(derivation: Derivation) -> Iterator[NotDerived]:
    model, layout = derivation.model, derivation.layout
    stated = derivation.experts.stated if layout.routing is not None else frozenset()
    of_data = (derivation.extents.of_data | derivation.experts.rooms) - stated
    unknown = (derivation.extents.unknown | _loose(derivation)) - stated
    whole_rows = _whole_products(derivation)
    count, time = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    whole = 0
    for call in model.calls():
        own = int(model.trace.self_ns[call.index])
        whole += own
        if ("::" not in call.name and call.children) or call.name in VIEWS:  # an autograd node's callees do its work
            continue
        classes = model.leaves_of(call)
        if not classes.isdisjoint(of_data):
            reason = _OF_DATA
        elif not classes.isdisjoint(unknown):
            reason = _UNKNOWN
        elif call.row in whole_rows:
            reason = _WHOLE
        else:
            continue
        count[call.name, reason] += 1
        time[call.name, reason] += own
    for (name, reason), number in count.items():
        yield NotDerived(name, reason, number, time[name, reason] / max(whole, 1))


def _loose(derivation: Derivation) -> set[int]:
    model, divided = derivation.model, derivation.plan.divided if derivation.layout.tp > 1 else set()
    extents, changed, value = model.extents, derivation.changed, model.extents.value
    loose: set[int] = set()
    firm = set[int]()  # classes that depend only on undivided extents
    related = {leaf for whole, parts in extents.sums for leaf in extents.leaves([whole, *parts])}
    for some, basis in extents.following:
        moved = [leaf for leaf in extents.leaves(basis) if leaf in divided]
        if moved:
            free = (leaf for leaf in extents.leaves(some) if leaf not in changed and leaf not in related)
            loose |= {
                leaf for leaf in free if value[leaf] > 1 and any(value[leaf] % value[root] == 0 for root in moved)
            }
        elif basis:
            firm |= set(extents.leaves(some))
    return loose - firm - set(extents.leaves([*model.given, *extents.numbers]))


def _whole_products(derivation: Derivation) -> set[int]:
    """Return the rows of GEMMs that process samples in repeated blocks, but that tensor parallelism does not shard.

    GEMMs outside the repeated blocks, such as the output layer, are not reported: implementations seldom shard them.
    """
    if derivation.layout.tp == 1:
        return set()
    model, divided = derivation.model, derivation.plan.divided
    batch, outside = set(model.batches), _outside_blocks(model)
    found = set[int]()
    for call in model.calls():
        if call.name in PRODUCTS and call.row not in outside:
            classes = model.leaves_of(call)
            if divided.isdisjoint(classes) and (not batch or not batch.isdisjoint(classes)):
                found.add(call.row)
    return found


def _outside_blocks(model: Model) -> set[int]:
    blocks = [wrap.units for wrap in model.blocks if not wrap.root]
    if len(blocks) < 2:
        return set()
    first, last = min(begin for begin, _ in blocks), max(end for _, end in blocks)
    units = [unit for one in model.passes for unit in one.units if not first <= unit.number <= last]
    return {call.row for unit in units for part in (unit.forward, unit.backward) for call in walked(part)}


def _parameters(derivation: Derivation) -> Iterator[NotDerived]:
    model, divided = derivation.model, derivation.plan.divided
    if derivation.layout.tp == 1:
        return
    weights = (parameter for parameter in model.parameters if len(parameter.shape) > 1)
    kept = [weight for weight in weights if divided.isdisjoint(model.leaves(weight.shape))]
    if kept:
        share = model.elements(kept) / max(model.elements(), 1)
        yield NotDerived("parameters", _WHOLE, len(kept), share, "parameters")


# Each rule yields (subject, reason, count) for communication that is unknown. A count of 0 means that there is no gap.

_Gap = tuple[str, str, int]


def _shards_parameters(derivation: Derivation) -> bool:
    return derivation.layout.zero == 3 and derivation.layout.dp > 1


def _shards_optimizer(derivation: Derivation) -> bool:
    return derivation.layout.zero in (1, 2) and derivation.layout.dp > 1


def _divides_the_model(derivation: Derivation) -> bool:
    layout = derivation.layout
    return layout.tp > 1 or layout.pp > 1 or layout.ep > 1


def _experts(derivation: Derivation) -> Iterator[_Gap]:
    layout, layers = derivation.layout, derivation.experts.layers
    if layout.ep > 1 and layout.routing is None and not all(one.layer.padded for one in layers):
        yield (
            "expert routing",
            "token counts depend on data, and all ranks are assumed to route as recorded; pass --routing recorded to "
            "confirm this, or --routing uniform",
            len(layers),
        )
    if layout.tp > 1 or (layout.ep > 1 and layout.pp > 1):
        beside = "with tensor parallelism" if layout.tp > 1 else "with expert and pipeline parallelism"
        yield "experts", f"the derivation {beside} was never compared with a recording", len(layers)


def _gradients(derivation: Derivation) -> Iterator[_Gap]:
    model = derivation.model
    if derivation.layout.dp > 1 and derivation.recorded.dp == 1:
        yield "gradients", "their parameters are unknown", model.unmatched
        if model.weights.evidence == "optimizer":
            lost = sum(not parameter.accumulates for parameter in model.parameters)
            yield "gradients", "the optimizer updates parameters without a gradient", lost
        if model.trains:
            sparse = {call.row for call in model.calls() if call.name.startswith("aten::_sparse_coo_tensor")}
            yield "gradients", "sparse gradients have a data-dependent size", len(sparse)
        if derivation.layout.zero < 3:  # FSDP2 gathers frozen or unused weights, but does not reduce them
            reason = "the loss does not depend on them, and DDP reduces them unless they are frozen"
            yield "weights without a gradient", reason, model.unreached
    divides = derivation.layout.zero == 3 or _divides_the_model(derivation)
    if divides and derivation.layout.ranks > 1:
        yield (
            "gradients",
            "operators between backward and the optimizer step combine them; the sum over ranks is not derived",
            len(derivation.clipping.unknown),
        )


def _fsdp_units(derivation: Derivation) -> Iterator[_Gap]:
    model = derivation.model
    if not _shards_parameters(derivation):
        return
    if derivation.layout.fsdp_wrap is None and not model.wraps:
        if not model.blocks[1:]:
            reason = "no block repeats, so the root has all parameters"
            yield "FSDP units", f"{reason}; choose --fsdp-wrap from: {candidates(model)}", 1
        if model.loose_blocks:
            reason = "some layers may belong to other blocks or to the root"
            yield "FSDP units", f"{reason}; choose --fsdp-wrap from: {candidates(model)}", 1
    spans = sorted(wrap.units for wrap in derivation.wraps if not wrap.root)
    shared = sum(left[1] >= right[0] for left, right in pairwise(spans))
    yield (
        "FSDP units",
        "several units run in the same part of the model, so the order of their all-gathers is unknown",
        shared,
    )
    again = "FSDP gathers them again each time they run in a forward pass; the derived layout gathers them once"
    yield "FSDP units", again, len(_run_again(derivation))


def _compiled(derivation: Derivation) -> Iterator[_Gap]:
    model, layout = derivation.model, derivation.layout
    hidden = (layout.zero == 3 and not model.wraps) or (model.buffers and not model.own_buffers)
    if layout.dp > 1 and hidden:
        count = sum(call.name.startswith(_COMPILED) for call in model.calls())
        yield "compiled regions", "the recording does not show their parameters and buffers", count


def _optimizer(derivation: Derivation) -> Iterator[_Gap]:
    layout = derivation.layout
    if (layout.zero and layout.dp > 1) or layout.tp > 1:
        whole = sum(_reduces(call) for step, _ in derivation.model.optimizer for call in step.walk())
        yield "optimizer", "it reduces over the elements of a parameter; the reduction over ranks is not derived", whole


def _clipping(derivation: Derivation) -> Iterator[_Gap]:
    clipping = derivation.clipping
    if _divides_the_model(derivation):
        reason = "the sum of norms over tensor-parallel ranks, stages or experts is not derived"
        yield "clipping", reason, len(clipping.joined)
    if _shards_optimizer(derivation):
        yield "clipping", "norms are computed on whole gradients instead of shards", len(clipping.joined)
    if _divides_the_model(derivation) or _shards_optimizer(derivation):
        yield "gradient scaling", "the collective check for finite gradients is not derived", len(clipping.scaled)


def _buffers(derivation: Derivation) -> Iterator[_Gap]:
    model, layout = derivation.model, derivation.layout
    constants = sum(not buffer.written for buffer in model.buffers)
    if model.own_buffers or layout.dp == 1:
        return
    if model.weights.frozen and constants:
        reason = "they may be frozen weights, which FSDP gathers and DDP does not broadcast"
        yield "buffers", reason, constants
    elif layout.zero < 3 and _frozen_apart(model):
        reason = "they may belong to another model, such as a teacher without autograd, which DDP does not broadcast"
        yield "buffers", reason, len(derivation.buffers)


def _frozen(derivation: Derivation) -> Iterator[_Gap]:
    frozen = derivation.model.weights.frozen
    if frozen and _shards_parameters(derivation) and _unplaced(derivation):
        yield "frozen weights", "the FSDP unit that gathers them is unknown", len(frozen)


def _pipeline(derivation: Derivation) -> Iterator[_Gap]:
    model, stages = derivation.model, derivation.stages
    if derivation.layout.pp > 1:
        tied = sum(len({stages[unit] for unit in model.users(parameter)}) > 1 for parameter in model.parameters)
        yield "tied parameters", "the sum of their gradients over stages is not derived", tied
        cuts = [
            unit
            for unit, following in zip(model.units, model.units[1:], strict=False)
            if stages[unit.number] != stages[following.number]
        ]
        yield (
            "stages",
            "several activations pass between two stages, but only one is sent",
            sum(not unit.alone for unit in cuts),
        )


_RULES: tuple[Callable[[Derivation], Iterator[_Gap]], ...] = (
    _experts, _gradients, _fsdp_units, _compiled, _optimizer, _clipping, _buffers, _frozen, _pipeline,
)  # fmt: skip


def _reduces(call: Call) -> bool:
    signature = call.signature
    if signature is None or not signature.outputs or call.name in VIEWS | BOOKKEEPING or "::" not in call.name:
        return False
    given = max((tensor.numel for tensor in signature.tensors), default=0)
    return call.name in PRODUCTS or (given > 1 and max(output.numel for output in signature.outputs) < given)


def _unplaced(derivation: Derivation) -> bool:
    """Return whether frozen weights may belong to another model that runs without autograd."""
    model = derivation.model
    if derivation.layout.pp > 1 or model.weights.evidence != "optimizer":
        return True
    wanted = derivation.layout.fsdp_wrap or ""
    return wanted == "each" or wanted.isdecimal() or (not model.wraps and not _feeds_the_model(model))


def _forward_calls(model: Model) -> Iterator[Call]:
    parts = [*(unit.forward for unit in model.units), model.loss_forward]
    return walked(call for part in parts for call in part)


def _frozen_apart(model: Model) -> set[int]:
    """Return frozen weights used only by calls without autograd; they may belong to another model (a teacher)."""
    differentiated = {
        weight.number for call in _forward_calls(model) if call.sequence >= 0 for weight in model.weights.read(call)
    }
    return {weight.number for weight in model.weights.frozen} - differentiated


def _feeds_the_model(model: Model) -> bool:
    """Return whether layers with parameters use results of the frozen weights; False for a teacher's weights."""
    apart = _frozen_apart(model)
    made: dict[int, frozenset[int]] = {}  # maps storages to the frozen weights that they depend on
    reached = set[int]()
    for call in (call for part in (*(unit.forward for unit in model.units), model.loss_forward) for call in part):
        given = {value[1] for value in call.tensors("inputs")}
        read = {p.number for inner in call.walk() for p in model.weights.read(inner)}
        sources = frozenset(read & apart).union(*(made[storage] for storage in given & made.keys()))
        if model.weights.takes(call):
            reached |= sources
        made |= {value[1]: sources for value in call.tensors("outputs")}
    return apart <= reached


def _run_again(derivation: Derivation) -> set[str]:
    model = derivation.model
    label_of = {number: wrap.label for wrap in derivation.wraps if not wrap.root for number in wrap.parameters}
    found, seen, current = set[str](), set[str](), ""
    for call in _forward_calls(model):
        for parameter in model.weights.taken(call):
            label = label_of.get(parameter.number, current)
            if label != current and label in seen:
                found.add(label)
            seen.add(label)
            current = label
    return found


# ---- assumptions ----


def assumptions(derivation: Derivation) -> list[str]:
    """Return facts that data parallelism depends on, but that were not recorded."""
    model, layout = derivation.model, derivation.layout
    shown = model.wraps if layout.zero == 3 else model.own_buffers  # True if the job was recorded with FSDP or DDP
    if layout.dp == 1 or shown or not model.trains:
        return []
    if layout.zero < 3:
        options = f"with{'' if derivation.finds_unused else 'out'} find_unused_parameters"
        found = [f"the step uses every parameter; DistributedDataParallel runs {options}"]
        if layout.broadcast_buffers is not False:
            found.append(
                f"tensors read in forward but not changed by an optimizer are buffers: {len(derivation.buffers)}"
            )
        return found
    found = ["the step uses every parameter (FSDP also gathers unused ones)"]
    if layout.reshard_after_forward is None:
        found = [f"{found[0]}; reshard_after_forward has its default"]
    constants = sum(not buffer.written for buffer in model.inferred)
    if constants:
        found.append(f"constants read in forward are treated as buffers, not frozen parameters: {constants}")
    apart = len(_frozen_apart(model))
    if apart:
        found.append(f"FSDP also wraps frozen weights that run without autograd: {apart}")
    blocks = sum(not wrap.root for wrap in derivation.wraps)
    if layout.fsdp_wrap is None and blocks:
        found.append(
            f"FSDP wraps each of {blocks} repeated blocks (attention and MLP together) and the whole model; "
            "--fsdp-wrap chooses other units"
        )
    return found


def doubts(
    derivation: Derivation, gaps: Sequence[NotDerived], gradients: Sequence[Gradients], proof: SelfProof
) -> list[str]:
    found = []
    operators = [row for row in gaps if row.kind == "operators"]
    share = sum(row.share for row in operators)
    guessed = [row.what for row in operators if row.reason == _UNKNOWN and row.what not in BOOKKEEPING]
    if share > LEAST:
        more = f" and {len(operators) - _NAMED} more" if len(operators) > _NAMED else ""
        names = ", ".join(row.what for row in operators[:_NAMED]) + more
        found.append(f"{share:.1%} of the time is in operators with shapes that could not be derived: {names}")
    elif guessed:
        names = ", ".join(guessed[:_NAMED])
        found.append(f"operators with {share:.2%} of the time have proportionally scaled shapes: {names}")
    unknown = (row for row in gaps if row.kind == "communication")
    found += [f"communication not derived: {row.what}: {row.reason} ({row.count})" for row in unknown]
    for stage in (stage for stage in gradients if not stage.whole):
        padding = f" (and {stage.padding:,} of padding)" if stage.padding else ""
        found.append(
            f"stage {stage.stage} communicates {stage.communicated:,} gradient elements, but its parameters have "
            f"{stage.parameters:,}{padding}"
        )
    if proof.missing or proof.extra:
        found.append(
            f"deriving the recorded layout from itself loses {proof.missing.total():,} and adds "
            f"{proof.extra.total():,} of {proof.operators:,} operators ({proof.share:.1%} of the time)"
        )
    only_fsdp = proof.gathers and derivation.layout.zero < 3 and bool(derivation.model.wraps)
    if proof.other_communications and not only_fsdp:
        first = proof.other_communications[0]
        found.append(f"deriving the recorded layout from itself gives different communication: {first}")
    return found
