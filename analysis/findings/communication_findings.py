"""Findings about communication: exposed transfers and latency-bound messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...schemas.comm_types import CollectiveCommType
from ...schemas.communications import UNKNOWN, issuing_calls
from ...trace.call_tree import nearest
from ...trace.columns import IntColumn, distinct, distinct_rows, matching
from ...trace.kinds import ACCUMULATION, BACKWARD, CPU, GRADIENT_COMMUNICATION
from ...trace.origin import origin_of_rows
from ...trace.text_tables import in_ms
from .case import Case
from .finding import INFERRED, PREDICTED, Candidate, Intervention
from .proofs import time_of_rows, where_of
from .rank_times import RankTimes, TimesOfJob, collective_label, group_label, job_times

# A transfer is reported only if more than this share of it is exposed. Bucketing cannot hide everything.
# With three buckets, the last bucket (a third of the transfer) stays exposed, because no compute is left to hide it.
HIDDEN_AS_A_RULE = 0.4
# Assumed number of pieces per transfer. Compute hides all pieces except the last.
# More pieces would add latency, and compute would hide little more.
PIECES = 4
# Maximum size of a small message. Even at 1 GB/s, the transfer takes less time than starting the collective.
SMALL_BYTES = 256 << 10
FEWEST_SMALL = 8  # minimum number of small messages per kind, group and step; fewer do not justify a shared buffer
BUCKET_BYTES = 25 << 20  # DDP's default bucket size (`bucket_cap_mb=25`)
_ISSUES = re.compile(r"_?c10d(?:_functional)?::(?!wait_tensor)")
_ADVICE = {
    "all_reduce": "overlap the reduction with the backward pass: use DDP with several buckets (bucket_cap_mb below the "
    "size of the gradients), reduce once after gradient accumulation (no_sync), or halve the bytes "
    "(bf16_compress_hook); with tensor parallelism, alternate between two halves of the batch",
    "all_gather": "gather the parameters of the next layer while the current layer computes: set forward_prefetch and "
    "backward_prefetch of FSDP, set limit_all_gathers=False, use fewer and larger FSDP units, or set "
    "reshard_after_forward=False if memory allows",
    "reduce_scatter": "overlap the reduction with the backward pass of the preceding layers: use one FSDP unit "
    "per layer and backward_prefetch=BACKWARD_PRE",
    "all_to_all": "during the exchange, compute parts that do not need the exchanged tokens (shared experts, the other "
    "half of the batch), and wait for the exchange only before reading its result",
}
_OTHER_ADVICE = (
    "start the collective asynchronously (async_op=True) before independent compute, and wait for it afterwards"
)


@dataclass(frozen=True)
class _CollectivesOfGroup:
    label: str
    group: str
    kind: int
    of: dict[int, IntColumn]

    def rows(self, case: Case, times: TimesOfJob) -> IntColumn:
        first = case.graph.first_row
        return np.concatenate([times.ranks[k].row[at] + int(first[k]) for k, at in self.of.items()])


def _parts(times: TimesOfJob) -> list[_CollectivesOfGroup]:
    found: dict[tuple[int, str], _CollectivesOfGroup] = {}
    for k, rank in enumerate(times.ranks):
        comms = rank.comms
        for kind, group in distinct_rows(comms.kind, comms.group)[0].tolist():
            if kind >= 0 and kind not in (UNKNOWN, CollectiveCommType.BARRIER):
                name = group_label(rank, group)
                part = found.setdefault((kind, name), _CollectivesOfGroup(collective_label(kind), name, kind, {}))
                part.of[k] = np.flatnonzero((comms.kind == kind) & (comms.group == group))
    return list(found.values())


class ExposedCommunication:
    """Collectives that do not overlap with compute, although the rank has enough independent compute to hide them."""

    id = "exposed-communication"

    def find(self, case: Case) -> Iterator[Candidate]:
        times = job_times(case)
        for part in _parts(times):
            ns = _overlap(times, part)
            if ns.exposed > HIDDEN_AS_A_RULE * ns.transfer and 0 < ns.hideable <= ns.free:
                yield self._candidate(case, times, part, ns)

    def _candidate(self, case: Case, times: TimesOfJob, part: _CollectivesOfGroup, ns: _Overlap) -> Candidate:
        k, at = next(iter(part.of.items()))
        rank, several = times.ranks[k], len(case.traces) > 1
        gradient = _of_gradients(rank, at)
        rows = part.rows(case, times)
        rows = rows[np.concatenate([times.ranks[k].exposed[own] > 0 for k, own in part.of.items()])]
        factor = _factor(case, rows, ns.hideable * len(part.of))
        alone = "" if several else "; this may include waits for late ranks, visible only in the traces of those ranks"
        longest = at[np.argsort(-rank.exposed[at], kind="stable")]
        told = f"{part.label} of {part.group}, {len(at):,} per rank{alone}"
        return Candidate(
            self.id,
            f"{part.label} of {part.group} ({len(at):,} per rank) is exposed for {in_ms(ns.exposed)} of "
            f"{in_ms(ns.transfer)}: the rank computes nothing during this time",
            where_of(rank.trace, rank.row[longest], rank=rank.rank if several else None),
            (time_of_rows(rank.trace, rank.row[at], told, case.shell(k)),),
            round(ns.exposed),
            INFERRED if gradient else PREDICTED,
            _ADVICE.get(part.label, _OTHER_ADVICE),
            "`etplus replay` shows less exposed communication",
            (Intervention(f"comm:name={name_of(rank, at)}*{factor:.4g}", rows),),
            low=0.6,
            high=1.3,
        )  # fmt: skip


class _Overlap(NamedTuple):
    transfer: float
    exposed: float
    hideable: float
    free: float


def _overlap(times: TimesOfJob, part: _CollectivesOfGroup) -> _Overlap:
    found = np.array([
        (rank.moving(at).length, rank.exposed_ns(at), rank.free_ns)
        for k, at in part.of.items() for rank in [times.ranks[k]]
    ])  # fmt: skip
    transfer, exposed, free = found.mean(axis=0).tolist()
    return _Overlap(transfer, exposed, max(exposed - transfer / PIECES, 0.0), free)


def _factor(case: Case, rows: IntColumn, ns: float) -> float:
    return max(1 - ns / max(float(case.graph.durations[rows].sum()), 1.0), 0.0)


def _of_gradients(rank: RankTimes, at: IntColumn) -> bool:
    phase = origin_of_rows(rank.trace).phase[rank.row[at]]
    return float(np.mean(np.isin(phase, (GRADIENT_COMMUNICATION, ACCUMULATION, BACKWARD)))) > 0.9


class CommunicationBound:
    """Collectives that last longer than all the compute that could overlap them."""

    id = "communication-bound"

    def find(self, case: Case) -> Iterator[Candidate]:
        times = job_times(case)
        for part in _parts(times):
            ns = _overlap(times, part)
            if ns.exposed <= HIDDEN_AS_A_RULE * ns.transfer or ns.hideable <= ns.free:
                continue
            k, at = next(iter(part.of.items()))
            rank, rows = times.ranks[k], part.rows(case, times)
            moved = int(rank.comms.bytes[at].clip(min=0).sum())
            told = f"{len(at):,} per rank, {moved / 1e6:,.3f} MB"
            yield Candidate(
                self.id,
                f"{part.label} of {part.group} transfers for {in_ms(ns.transfer)}, {in_ms(ns.exposed)} of it exposed; "
                f"only {in_ms(ns.free)} of compute is left to hide it",
                where_of(rank.trace, rank.row[at], rank=rank.rank if len(case.traces) > 1 else None),
                (time_of_rows(rank.trace, rank.row[at], told, case.shell(k)),),
                round(ns.exposed - ns.free),
                INFERRED,
                "transfer less: use bfloat16 gradients (bf16_compress_hook), reduce once for several batches "
                "(no_sync), or shard only within a node (HYBRID_SHARD); or use a faster link. "
                "The gain assumes half the bytes",
                "the communication table of `etplus analyze` shows fewer MB and ms",
                (Intervention(f"comm:name={name_of(rank, at)}*0.5", rows),),
                low=0.8,
                high=1.0,
            )  # fmt: skip


class SmallMessages:
    """Many small, latency-dominated collectives of one kind and group."""

    id = "small-messages"

    def find(self, case: Case) -> Iterator[Candidate]:
        times = job_times(case)
        steps = max(len(case.trace.steps), 1)
        for part in _parts(times):
            k, at = next(iter(part.of.items()))
            rank = times.ranks[k]
            size = rank.comms.bytes[at]
            small = (size > 0) & (size <= SMALL_BYTES)
            count = int(np.count_nonzero(small)) / steps
            if count < FEWEST_SMALL:
                continue
            latency, told = _latency(rank.comms.bytes[at], rank.transfer[at])
            whole = int(size[small].sum())
            fewer = int(np.count_nonzero(small)) - steps * max(int(np.ceil(whole / steps / BUCKET_BYTES)), 1)
            if latency * fewer > 0:
                yield self._candidate(case, times, part, small, latency, fewer, told=told)

    def _candidate(
        self, case: Case, times: TimesOfJob, part: _CollectivesOfGroup, small: npt.NDArray[np.bool_],
        latency: float, fewer: int, *, told: bool,
    ) -> Candidate:  # fmt: skip
        k, at = next(iter(part.of.items()))
        rank, several = times.ranks[k], len(case.traces) > 1
        saved, issuing = latency * fewer, _issuing(rank, at)
        host = (Intervention(f"op:{issuing}*{1 - fewer / len(at):.4g}"),) if issuing else ()
        at = at[small]
        sizes = np.concatenate([times.ranks[k].comms.bytes[own] for k, own in part.of.items()])
        rows = part.rows(case, times)[(sizes > 0) & (sizes <= SMALL_BYTES)]
        factor = _factor(case, rows, saved * len(part.of))
        size = rank.comms.bytes[at]
        proof = f"{len(at):,} messages of at most {SMALL_BYTES >> 10} KiB, {size.sum() / 1e6:,.3f} MB in total"
        return Candidate(
            self.id,
            f"{len(at):,} {part.label}s of {part.group} move {size.mean() / 1024:,.1f} KiB each; "
            f"{'about' if told else 'at most'} {latency / 1e3:,.1f} µs of each is latency, so fewer, larger messages "
            f"could save {in_ms(saved)}",
            where_of(rank.trace, rank.row[at], rank=rank.rank if several else None),
            (time_of_rows(rank.trace, rank.row[at], proof, case.shell(k)),),
            round(saved),
            INFERRED if told and _of_gradients(rank, at) else PREDICTED,
            "combine the messages in one buffer: DDP buckets (bucket_cap_mb), one FSDP unit around small modules, "
            "torch.distributed.all_reduce_coalesced, or torch._utils._flatten_dense_tensors",
            "the communication table of `etplus analyze` shows fewer and larger collectives of this kind",
            (Intervention(f"comm:name={name_of(rank, at)}*{factor:.4g}", rows), *host),
            low=0.5 if told else 0.0,
            high=1.2,
        )  # fmt: skip


def _issuing(rank: RankTimes, at: IntColumn) -> str:
    trace, row = rank.trace, rank.row
    issues = (trace.nodes.kind == CPU) & matching(trace.nodes.name, trace.names, _ISSUES.match)
    of_host = issuing_calls(trace, row)
    of_row = np.array([of_host.get(r, r) for r in row.tolist()], np.int64)
    call = nearest(of_row, trace.nodes.parent_row, issues)
    names = np.where(call >= 0, trace.nodes.name[np.maximum(call, 0)], -1)
    mine = distinct(names[at])
    others = np.delete(names, at)
    return trace.names[int(mine[0])] if len(mine) == 1 and mine[0] >= 0 and mine[0] not in others else ""


def _latency(size: IntColumn, ns: IntColumn) -> tuple[float, bool]:
    known = size > 0
    size, ns = size[known], ns[known]
    low, high = int(size.min()), int(size.max())
    least = float(ns[size == low].min())
    if high < 2 * low:
        return least, False
    slope = (float(ns[size == high].min()) - least) / (high - low)
    return max(least - max(slope, 0.0) * low, 0.0), True


def name_of(rank: RankTimes, at: IntColumn) -> str:
    """Return the most frequent name among the communications at these positions."""
    codes, count = np.unique(rank.trace.nodes.name[rank.row[at]], return_counts=True)
    return rank.trace.names[int(codes[np.argmax(count)])]
