"""Reshard a job: derive the trace of any rank, groups of identical ranks, step time, memory, and known gaps."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from ...schemas.text.gc_control import gc_disabled
from ...timeline.constants import fit_constants
from ...timeline.graph_building import build_graph
from ...timeline.graph_replay import replay
from ...timeline.network_description import Network
from ...timeline.network_file import network_dict
from ...timeline.rank_coupling import join_ranks
from ...trace.brief import brief
from ...trace.errors import UsageError
from ...trace.tables import OP
from ...trace.trace import Trace
from ..costs.fitting import FittedModel
from ..costs.pricing import Pricing
from ..measure.measured import EXECUTED, Measured, own_times, shares_of_sources
from .derivation import Derivation, derive
from .items import CommOp
from .joined_stages import join_stages
from .layout import Layout
from .memory import Memory, memory_of
from .model import Model
from .not_derived import NotDerived, assumptions, doubts, not_derived
from .plan import make_plan, plan_from_dict
from .proof import (
    Gradients,
    RecordedRank,
    SelfProof,
    gradients,
    other_rank,
    own_rank,
    prove_all,
    recorded_layout_of,
    scaling_in_words,
)
from .rank_program import communications
from .rank_trace import build_trace
from .resized_calls import ResizedCalls
from .structure import read_model, recorded_layout

_NETWORK = Network(25.0, 5000.0)  # the default network has this many GB/s per direction and ns per communication step


@dataclass(frozen=True)
class Resharded:
    """A recorded job in a new layout."""

    derivation: Derivation
    network: Network
    model: FittedModel | None = None  # model that predicts kernel times; if None, recorded times are scaled
    # operators timed on this machine (`etplus measure`); their times replace scaled times
    measured: Measured | None = None
    ranks: tuple[RecordedRank, ...] = ()  # recorded ranks that the derivation is compared with
    stages: tuple[int, ...] | None = None  # for each unit, its recorded pipeline stage

    __repr__ = brief

    @property
    def layout(self) -> Layout:
        return self.derivation.layout

    @property
    def plan(self) -> dict[str, Any]:
        return self.derivation.plan.to_dict(self.derivation.model)

    @gc_disabled()
    def trace(self, rank: int) -> Trace:
        self.layout.check(rank)
        scaled = build_trace(self.derivation, self._sizes, rank, self.network)
        times = self._times(scaled)
        return build_trace(self.derivation, self._sizes, rank, self.network, times) if times else scaled

    def _times(self, scaled: Trace) -> dict[int, int]:
        """Map node IDs to times in ns. The model predicts the kernels, and operators were measured on this machine."""
        found = {int(scaled.nodes.id[row]): round(ns) for row, ns in own_times(scaled, self._executed).items()}
        if self.model is not None:
            ids = scaled.nodes.id[scaled.gpu.source].tolist()
            prices = Pricing(self.model, scaled, beyond=True).times
            found |= {ids[at]: round(ns) for at, ns in enumerate(prices) if ns and at not in scaled.gpu.comm}
        return found

    @cached_property
    def _sizes(self) -> ResizedCalls:
        return ResizedCalls(self.derivation)

    @property
    def _executed(self) -> Measured | None:
        return self.measured or (self.model.executed if self.model is not None else None)

    @cached_property
    def _stages(self) -> Sequence[Trace]:
        """One trace per stage or, with expert parallelism, per stage and distinct rank of an expert-parallel group."""
        ranks = (self.layout.rank(0, dp, stage) for stage in range(self.layout.pp) for dp in range(self.layout.ep))
        return [self.trace(rank) for rank in ranks if self.derivation.representative(rank) == rank]

    @cached_property
    def sources(self) -> Mapping[str, float]:
        times = list[tuple[str, float]]()
        for trace in self._stages:
            executed = own_times(trace, self._executed)
            rows, own = trace.calls.source.tolist(), trace.self_ns.tolist()
            operators = np.flatnonzero(trace.calls.kind == OP).tolist()
            times += [(EXECUTED if rows[at] in executed else "scaled", own[at]) for at in operators]
        return shares_of_sources(times)

    @cached_property
    def rank_map(self) -> dict[int, list[int]]:
        """Maps the first rank that runs a program to all ranks that run it."""
        found: dict[int, list[int]] = {}
        for rank in range(self.layout.ranks):
            found.setdefault(self.derivation.representative(rank), []).append(rank)
        return found

    @cached_property
    def memory(self) -> list[Memory]:
        return [memory_of(self.derivation, stage) for stage in range(self.layout.pp)]

    @cached_property
    def not_derived(self) -> tuple[NotDerived, ...]:
        """Known gaps of the derivation: operators with unknown sizes, unsharded parts, and unknown communication."""
        return not_derived(self.derivation)

    @cached_property
    def proof(self) -> SelfProof:
        """Result of deriving the recorded layout again and comparing it with the recording."""
        derivation = self.derivation
        ranks = self.ranks or (own_rank(derivation.model),)
        plan = replace(derivation.plan, stages=self.stages)
        itself = derive(derivation.model, plan, recorded_layout_of(derivation, ranks[0]), derivation.recorded)
        return prove_all(itself, ResizedCalls(itself), ranks)

    @cached_property
    def gradients(self) -> list[Gradients]:
        """Gradients that each stage communicates; empty if there is no data parallelism."""
        found = (gradients(self.derivation, stage) for stage in range(self.layout.pp))
        return [one for one in found if one is not None]

    @property
    def scaling(self) -> str:
        return scaling_in_words(self.derivation)

    @property
    def assumptions(self) -> list[str]:
        """Assumptions that the recording cannot confirm."""
        return assumptions(self.derivation)

    @cached_property
    def doubts(self) -> list[str]:
        """Reasons to distrust the result; empty if everything was derived."""
        return doubts(self.derivation, self.not_derived, self.gradients, self.proof)

    @cached_property
    @gc_disabled()
    def step_ns(self) -> int:
        """Predicted step time in ns, from one rank per stage."""
        graphs = [build_graph(trace) for trace in self._stages]
        constants = [fit_constants(graph) for graph in graphs]
        return replay(join_ranks(graphs) if len(graphs) > 1 else graphs[0], constants).makespan_ns

    @gc_disabled()
    def matched(self) -> int:
        """Check that collectives and messages match within each group; return the number of comparisons."""
        layout, count = self.layout, 0
        programs = {rank: communications(self.derivation, rank) for rank in self.rank_map}
        for rank, found in programs.items():
            at = layout.coordinates(rank)
            for dimension in ("tp", "dp", "edp"):
                mine = _collectives(found, dimension)
                others = {self.derivation.representative(r) for r in layout.group(dimension, at)}
                for other in sorted(others - {rank}):
                    if mine != _collectives(programs[other], dimension):
                        raise UsageError(f"ranks {rank} and {other} issue different {dimension} collectives")
                count += len(mine)
            count += self._matched_tokens(rank, programs)
            if at.pp + 1 < layout.pp:
                following = layout.rank(at.tp, at.dp, at.pp + 1)
                after = programs[self.derivation.representative(following)]
                sent = [comm.shape for comm in found if comm.kind == "send" and comm.peer == following]
                first = layout.rank(0, 0, at.pp + 1)
                received = [comm.shape for comm in after if comm.kind == "recv" and comm.peer < first]
                if sent != received:
                    raise UsageError(f"stage {at.pp} sends different messages than stage {at.pp + 1} receives")
                count += len(sent) + len(received)
        return count

    def _matched_tokens(self, rank: int, programs: Mapping[int, Sequence[CommOp]]) -> int:
        group = self.layout.group("ep", self.layout.coordinates(rank))
        mine = [comm for comm in programs[rank] if comm.dimension == "ep"]
        for place, other in enumerate(group):
            theirs = [comm for comm in programs[self.derivation.representative(other)] if comm.dimension == "ep"]
            sent = [_part(comm, 0, place) for comm in mine]
            if sent != [_part(comm, 1, group.index(rank)) for comm in theirs]:
                raise UsageError(f"rank {rank} sends different tokens than rank {other} receives")
        return len(mine)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict; docs/reference/reshard.md describes its keys."""
        layout = self.layout
        return {
            "layout": {
                "tp": layout.tp, "dp": layout.dp, "pp": layout.pp, "ep": layout.ep, "zero": layout.zero,
                "batch": layout.batch,
                "microbatches": self.derivation.microbatches, "schedule": layout.schedule, "tp_style": layout.tp_style,
                "sequence_parallel": layout.sequence_parallel, "fsdp_wrap": layout.fsdp_wrap,
                "find_unused_parameters": layout.find_unused_parameters,
                "broadcast_buffers": layout.broadcast_buffers, "reshard_after_forward": layout.reshard_after_forward,
                "no_sync": layout.no_sync, "ranks": layout.ranks,
            },
            "recorded": {name: getattr(self.derivation.recorded, name) for name in ("tp", "dp", "pp")},
            "step_ns": self.step_ns,
            "network": network_dict(self.network),
            **({"sources": dict(self.sources)} if self._executed is not None else {}),
            "memory": [asdict(row) for row in self.memory],
            "rank_map": {str(rank): _ranges(ranks) for rank, ranks in self.rank_map.items()},
            "not_derived": [asdict(row) for row in self.not_derived],
            "scaling": self.scaling,
            "parameters": self._parameters(),
            "experts": self.derivation.experts.to_dict(),
            "proof": self.proof.to_dict(),
            "gradients": [asdict(one) for one in self.gradients],
            "assumptions": self.assumptions,
            "doubts": self.doubts,
        }  # fmt: skip

    def _parameters(self) -> dict[str, Any]:
        model = self.derivation.model
        sizes = [model.extents.sizes(parameter.shape) for parameter in model.parameters]
        return {
            "count": len(sizes),
            "elements": sum(map(prod, sizes)),
            "found_by": model.weights.evidence,
            "buffers": len(model.buffers),
            "buffer_elements": sum(prod(buffer.sizes) for buffer in model.buffers),
            "buffers_found_by": "recorded" if model.own_buffers else "inferred",
        }


def _collectives(found: Sequence[CommOp], dimension: str) -> list[tuple[str, int, str]]:
    return [(comm.kind, comm.elements, comm.dtype) for comm in found if comm.dimension == dimension]


def _part(comm: CommOp, side: int, place: int) -> int:
    """Return the row count sent to (side 0) or received from (side 1) a member, or all elements if parts are equal."""
    return comm.splits[side][place] if comm.splits[side] else comm.elements


def _ranges(ranks: Sequence[int]) -> list[list[int]]:
    numbers = np.array(ranks, np.int64)
    cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
    return [[int(part[0]), int(part[-1])] for part in np.split(numbers, cuts)]


@gc_disabled()
def reshard(
    traces: Trace | Sequence[Trace],
    layout: Layout,
    *,
    model: FittedModel | None = None,
    measured: Measured | None = None,
    network: Network | None = None,
    recorded: Layout | None = None,
    plan: Any = None,
    step: int | None = None,
) -> Resharded:
    """Derive a recorded job in a new parallel layout.

    Args:
        traces: linked traces of one or more ranks of the job. The new layout is derived from the first trace, or from
            one trace per pipeline stage. As a check, the recorded layout is derived and compared with all traces.
        model: predicts kernel times (`etplus predict fit`). If None, recorded times are scaled with the amount of work.
        measured: operator times on this machine at the derived shapes (pass a derived trace to `measure`).
        network: bandwidth and latency of the network; by default 25 GB/s and 5 µs per communication step.
        recorded: layout of the recorded job; None to detect it.
        plan: a plan from `Resharded.plan`, optionally edited; None to plan from the model's structure.
        step: number of the ProfilerStep; None for the step with the median duration.

    Raises:
        UsageError: the layout does not divide the model, or the recording lacks required data.

    Example:
        >>> reshard([trace], Layout(dp=1024)).trace(1000).world_size
        1024
    """
    given: Sequence[Trace] = [traces] if isinstance(traces, Trace) else traces  # the sequence may load traces lazily
    if not given:
        raise UsageError("nothing to reshard; give the trace of a rank")
    was = recorded if recorded is not None else recorded_layout([given[0]])
    pipeline = join_stages(given, was, step) if was.pp > 1 else None
    if pipeline is None:
        structure = read_model(given[0], step, was)
    else:
        was, structure = pipeline.layout, read_model(pipeline.trace, None, pipeline.layout, pipeline.begins)
    _check_trains(structure, layout)
    chosen = make_plan(structure, was.tp) if plan is None else plan_from_dict(plan, structure)
    stages = None
    if pipeline is None:
        others = (given[k] for k in range(1, len(given)))
        ranks = [own_rank(structure, step), *(other_rank(trace, step, structure) for trace in others)]
    else:
        stages = tuple(bisect(pipeline.begins, unit.forward[0].row) for unit in structure.units)
        dropped = pipeline.dropped
        ranks = [other_rank(trace, step, structure, dropped.get(trace.rank or 0, frozenset())) for trace in given]
    if plan is None and layout.pp == was.pp:
        chosen = replace(chosen, stages=stages)
    derivation = derive(structure, chosen, layout, was)
    return Resharded(derivation, network or _NETWORK, model, measured, tuple(ranks), stages)


def _check_trains(model: Model, layout: Layout) -> None:
    if not model.trains and (layout.dp > 1 or layout.pp > 1 or layout.zero or layout.sequence_parallel):
        raise UsageError(
            f"{model.trace.file}: the step has no backward pass; inference supports only --tp (with --dp, replicas"
            " would not communicate)"
        )
