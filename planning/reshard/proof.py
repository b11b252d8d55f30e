"""Check a derivation: derive the recorded layout again, compare it with the recording, and count gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from math import prod
from typing import Any

from ...trace.brief import brief
from ...trace.index import CallIndex
from ...trace.trace import Trace
from ..reshape.shapes.followed_calls import Shapes
from .derivation import Derivation
from .items import CommOp, RecordedOp, SyntheticOp
from .layout import Layout
from .model import Model
from .rank_program import USED, program
from .resized_calls import ResizedCalls
from .step_calls import BOOKKEEPING, VIEWS, Call, last_step, read_step, recorded_issues, step_window, walked

_ISSUED = {
    "allgather_into_tensor_coalesced_": "all_gather",
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "_allgather_base_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "broadcast_": "broadcast",
    "send": "send",
    "recv_": "recv",
}
_NAMED = 8  # at most this many differences are shown; all are counted

_Work = tuple[str, tuple[tuple[int, ...], ...]]
_Comm = tuple[str, int]


@dataclass(frozen=True)
class Gradients:
    """Number of gradient elements that a rank of a stage communicates per step."""

    stage: int
    communicated: int
    parameters: int
    padding: int  # number of elements that are added so that all shards have the same size

    __repr__ = brief

    @property
    def whole(self) -> bool:
        """True if the communicated elements are exactly the parameters plus the padding."""
        return self.communicated == self.parameters + self.padding


@dataclass(frozen=True)
class RecordedRank:
    trace: Trace
    number: int | None = None
    known: Sequence[Call] | None = None
    left_out: Set[int] = frozenset()  # rows of calls that only the recorded layout needs
    works_left_out: tuple[_Work, ...] = ()

    __repr__ = brief

    @property
    def rank(self) -> int:
        return max(self.trace.rank or 0, 0)

    @property
    def window(self) -> tuple[int, int]:
        return step_window(self.trace, self.number)

    def work(self) -> list[Call]:
        step = last_step(read_step(self.trace, Shapes(), self.number)) if self.known is None else self.known
        known = {call.row for top in step if top.name in _OWN for call in top.walk()} | self.left_out
        calls = [call for call in walked(step) if _works(call) and call.row not in known]
        calls.sort(key=lambda call: call.ts)
        left = Counter(self.works_left_out)
        found = []
        for call in calls:
            one = call.name, _recorded_sizes(call)
            if left[one] > 0:
                left[one] -= 1
            else:
                found.append(call)
        return found


def own_rank(model: Model, step: int | None = None) -> RecordedRank:
    return RecordedRank(model.trace, step, model.step, {call.row for call in model.left_out})


def other_rank(trace: Trace, step: int | None, model: Model, left_out: Set[int] = frozenset()) -> RecordedRank:
    works = tuple((call.name, _recorded_sizes(call)) for call in model.left_out if _works(call))
    return RecordedRank(trace, step, None, left_out, works)


@dataclass(frozen=True)
class SelfProof:
    operators: int  # number of operators in the recording
    communications: int  # number of communications in the recording
    # Maps an operator's name and sizes to the number of recorded operators that are missing from the derivation.
    missing: Counter[_Work] = field(default_factory=Counter)
    extra: Counter[_Work] = field(default_factory=Counter)  # number of derived operators that were not recorded
    share: float = 0.0  # missing operators' share of the self time
    in_order: bool = True  # True if the operators are in the recorded order
    other_communications: tuple[str, ...] = ()  # descriptions of differences in communication
    gathers: bool = False  # True if only FSDP's all-gathers differ
    ranks: tuple[int, ...] = (0,)
    # for each rank with differences, the number of operators and of communications that differ
    different: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    __repr__ = brief

    @property
    def equal(self) -> bool:
        return not (self.missing or self.extra or self.other_communications)

    def to_dict(self) -> dict[str, Any]:
        return {
            "equal": self.equal,
            "operators": self.operators,
            "communications": self.communications,
            "missing": _listed(self.missing),
            "extra": _listed(self.extra),
            "missing_share": self.share,
            "in_order": self.in_order,
            "other_communications": list(self.other_communications),
            "ranks": list(self.ranks),
            "different": [
                {"rank": rank, "operators": operators, "communications": communications}
                for rank, (operators, communications) in self.different.items()
            ],
        }


def _listed(found: Counter[_Work]) -> list[dict[str, Any]]:
    return [
        {"operator": name, "sizes": [list(size) for size in sizes], "count": count}
        for (name, sizes), count in sorted(found.items(), key=lambda item: (-item[1], item[0]))[:_NAMED]
    ]


def prove_all(derivation: Derivation, sizes: ResizedCalls, ranks: Sequence[RecordedRank]) -> SelfProof:
    found = [prove(derivation, sizes, rank) for rank in ranks]
    if len(found) == 1:
        return found[0]
    others = [
        f"rank {one.rank}: {text}"
        for one, proof in zip(ranks, found, strict=True)
        for text in proof.other_communications
    ]
    return SelfProof(
        sum(proof.operators for proof in found),
        sum(proof.communications for proof in found),
        sum((proof.missing for proof in found), Counter[_Work]()),
        sum((proof.extra for proof in found), Counter[_Work]()),
        max(proof.share for proof in found),
        all(proof.in_order for proof in found),
        tuple(others),
        all(proof.gathers for proof in found if proof.other_communications),
        tuple(one.rank for one in ranks),
        {k: v for proof in found for k, v in proof.different.items()},
    )


def prove(derivation: Derivation, sizes: ResizedCalls, recorded_rank: RecordedRank) -> SelfProof:
    """Compare a derivation of the recorded layout with the recorded operators, sizes, communication and order."""
    model, layout, trace = derivation.model, derivation.layout, recorded_rank.trace
    rank = min(recorded_rank.rank, layout.ranks - 1)
    calls = recorded_rank.work()
    recorded = [(call.name, _recorded_sizes(call)) for call in calls]
    derived: list[_Work] = []
    comms: list[_Comm] = []
    added = {"aten::add_"} if not model.wraps else set()  # FSDP adds gradients in calls that are excluded here
    added |= {"aten::clone"}
    added |= {"aten::div_"} if layout.pp > 1 else set()
    for item in program(derivation, rank):
        if isinstance(item, CommOp):
            comms.append((item.kind, item.elements))
        elif isinstance(item, RecordedOp):
            for call in item.call.walk():
                if _works(call):
                    derived.append((call.name, tuple(map(tuple, sizes.new_sizes(item, call, "inputs")))))
                comms += [(comm.kind, comm.elements) for comm in item.after.get(call.row, ())]
        elif isinstance(item, SyntheticOp) and item.name in added:
            derived.append((item.name, item.inputs))
    left, right = Counter(recorded), Counter(derived)
    missing, extra = left - right, right - left
    own = {call: int(trace.self_ns[call.index]) for call in calls}
    whole = sum(own.values())
    lost = _time_of(missing, calls, recorded, own)
    issued = _recorded_comms(recorded_rank)
    # Older recordings do not contain the calls that issue communication, and kernels do not show these calls.
    others = _compared(issued, comms) if issued or (trace.world_size or 1) == 1 or not len(trace.gpu) else ()
    same_order = [one for one in recorded if one[0] not in _ADDED] == [one for one in derived if one[0] not in _ADDED]
    gathers = not _compared(*([one for one in side if one[0] != "all_gather"] for side in (issued, comms)))
    count = max(missing.total(), extra.total()), abs(len(issued) - len(comms)) or len(others)
    return SelfProof(
        len(recorded), len(issued), missing, extra, lost / max(whole, 1), bool(missing or extra) or same_order, others,
        gathers, (recorded_rank.rank,), {recorded_rank.rank: count} if missing or extra or others else {},
    )  # fmt: skip


_ADDED = ("aten::add_",)  # different layouts may call these operators at different times
_OWN = ("aten::flatten_dense_tensors", "aten::unflatten_dense_tensors")  # these only prepare communication


def _works(call: Call) -> bool:
    return call.operator and call.name.startswith("aten::") and call.name not in VIEWS | BOOKKEEPING


def _recorded_sizes(call: Call) -> tuple[tuple[int, ...], ...]:
    return tuple(tensor.shape for tensor in call.signature.tensors) if call.signature is not None else ()


def _time_of(missing: Counter[_Work], calls: Sequence[Call], work: Sequence[_Work], own: dict[Call, int]) -> int:
    left, time = Counter(missing), 0
    for call, one in zip(calls, work, strict=True):
        if left[one] > 0:
            left[one] -= 1
            time += own[call]
    return time


def _recorded_comms(rank: RecordedRank) -> list[_Comm]:
    return [_communication(rank.trace, call) for call in recorded_issues(rank.trace, *rank.window)]


def _communication(trace: Trace, call: CallIndex) -> _Comm:
    name = trace.names[trace.calls.name[call]].removeprefix("c10d::")
    signature = trace.signature_of(call)
    tensors = signature.tensors if signature is not None else ()
    gives = name in ("_allgather_base_", "_reduce_scatter_base_", "allgather_into_tensor_coalesced_")
    takes = tensors[1:] if gives else tensors
    return _ISSUED.get(name, name), sum(tensor.numel for tensor in takes)


def _compared(recorded: Sequence[_Comm], derived: Sequence[_Comm]) -> tuple[str, ...]:
    if recorded == derived:
        return ()
    found = []
    for tag, i, j, k, m in SequenceMatcher(None, recorded, derived, autojunk=False).get_opcodes():
        if tag != "equal":
            sides = (_in_words(part) for part in (recorded[i:j], derived[k:m]))
            found.append("recorded {}, derived {}".format(*sides))
    return tuple(found[:_NAMED])


def _in_words(comms: Sequence[_Comm]) -> str:
    shown = ", ".join(f"{kind} of {elements:,}" for kind, elements in comms[:3])
    return (shown + (f" and {len(comms) - 3} more" if len(comms) > 3 else "")) or "none"


def gradients(derivation: Derivation, stage: int) -> Gradients | None:
    """Count the gradients that the first rank of a stage communicates in the last microbatch; None if dp=1."""
    layout = derivation.layout
    if layout.dp == 1:
        return None
    alone = derivation.experts.parameters if layout.ep == layout.dp else set()  # only this rank has these
    parameters = [p for p in derivation.parameters(stage) if p.accumulates and p not in alone]
    whole = sum(prod(derivation.sizes(parameter)) for parameter in parameters)
    padding = 0
    if layout.zero == 3:
        shard = derivation.shard(layout.coordinates(layout.rank(0, 0, stage)))
        assert shard is not None
        padding = sum(shard.padded(derivation.sizes(p)) * layout.dp - prod(derivation.sizes(p)) for p in parameters)
    elif layout.zero == 2:
        padding = sum(-bucket.elements % layout.dp for bucket in derivation.buckets(stage))
    return Gradients(stage, sum(comm.elements for comm in reductions(derivation, stage)), whole, padding)


def reductions(derivation: Derivation, stage: int) -> list[CommOp]:
    layout = derivation.layout
    kind = "reduce_scatter" if layout.zero >= 2 else "all_reduce"
    found = [
        item
        for item in program(derivation, layout.rank(0, 0, stage))
        if isinstance(item, CommOp)
        and item.dimension in ("dp", "edp")
        and item.kind == kind
        and not item.functional
        and item.key != USED
    ]
    times = derivation.microbatches if layout.pp == 1 and not layout.no_sync else 1
    return found[: len(found) // times]


def recorded_layout_of(derivation: Derivation, rank: RecordedRank) -> Layout:
    """Return the recorded layout, with `no_sync` detected from the gradient reductions of a recorded rank."""
    recorded, model = derivation.recorded, derivation.model
    if recorded.pp > 1:
        return recorded
    zero = 3 if model.wraps else 0
    passes = len(model.passes)
    no_sync = False
    if passes > 1 and recorded.dp > 1:
        kind = "reduce_scatter" if zero else "all_reduce"
        reduced = sum(elements for name, elements in _recorded_comms(rank) if name == kind)
        no_sync = reduced < 1.5 * model.elements()
    return Layout(tp=recorded.tp, dp=recorded.dp, zero=zero, no_sync=no_sync)


def scaling_in_words(derivation: Derivation) -> str:
    layout, model = derivation.layout, derivation.model
    rank, parts = derivation.rank_batch, derivation.microbatches
    if not rank:
        return "no batch was found: every rank does the recorded work"
    whole, before = rank * layout.dp, model.samples * derivation.recorded.dp
    steps = f" in {parts} microbatches of {rank // parts}" if parts > 1 else ""
    kind = (
        "the recorded batch"
        if whole == before and layout.dp == derivation.recorded.dp
        else "strong scaling"
        if whole == before
        else "weak scaling"
        if rank == model.samples
        else "another batch"
    )
    return f"{kind}: {rank:,} samples per rank{steps}, {whole:,} in all (recorded: {before:,} in all)"
