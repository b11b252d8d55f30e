"""Gather what the stages of a link found into a `LinkReport`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..schemas.kineto.read_kineto import KinetoTrace
from ..schemas.text.recover import damage_of
from ..trace.columns import IntColumn, distinct, mask_at
from ..trace.conventions import UNATTACHED_REASONS
from ..trace.kinds import LINK_NAMES
from ..trace.link_report import Identity, LinkReport
from ..trace.printable import shortened
from .attach import ATTACH_METHODS, Attachment
from .calls import CpuCalls, EtCalls, TracePair
from .match.result import REASONS, Match
from .segment import LONGEST_NAME, Iterations


class Reported(NamedTuple):
    """What only the report needs of the stages before attachment; see `LinkReport`."""

    windows: dict[str, Any]
    considered: Sequence[str] = ()
    identity: Identity | None = None


def make_report(
    pair: TracePair, match: Match, attachment: Attachment, reported: Reported, dependencies: dict[str, Any]
) -> LinkReport:
    """Gather the stages' findings."""
    et, kineto, nodes, calls = pair.et, pair.kineto, pair.nodes, pair.calls
    by_reason = np.bincount(match.reason, minlength=len(REASONS))
    by_link = np.bincount(match.link, minlength=len(LINK_NAMES))
    warnings = list(damage_of(et, kineto))
    if len(nodes) and not match.linked:
        warnings.append("nothing was linked: these two files do not seem to belong together")
    if attachment.repeated:
        warnings.append(
            f"{attachment.repeated:,} GPU events share their correlation with several calls; "
            "the last one before each was taken"
        )
    used = mask_at(len(calls), match.call[match.call >= 0])
    events = kineto.events
    return LinkReport(
        et={
            "file": Path(et.file).name, "schema": et.schema, "nodes": len(et), "ops": len(nodes), "pid": et.pid,
            "threads": len(distinct(nodes.thread)), "orphans": int(np.count_nonzero(nodes.orphan)),
        },
        kineto={
            "file": Path(kineto.file).name, "events": kineto.event_count, "cpu_ops": len(calls),
            "cpu_ops_not_in_et": int(np.count_nonzero(~used)),
            "by_category": _counts(events.category, events.categories),
        },
        ops={
            "total": len(nodes), "linked": match.linked, "certain": int(by_link[2]), "equivalent": int(by_link[1]),
            "unlinked": {reason: int(count) for reason, count in zip(REASONS[1:], by_reason[1:], strict=True) if count},
        },
        method=match.method if match.linked else "",
        considered=tuple(reported.considered),
        windows=reported.windows,
        gpu=_gpu(kineto, attachment),
        dependencies=dependencies,
        warnings=tuple(warnings),
        facts=match.facts,
        identity=reported.identity,
    )  # fmt: skip


def _gpu(kineto: KinetoTrace, attachment: Attachment) -> dict[str, Any]:
    events, categories = kineto.events, {}
    codes = events.category[attachment.row]
    for code in distinct(codes.astype(np.int64)).tolist():
        mine = codes == code
        reasons = np.bincount(attachment.reason[mine], minlength=len(UNATTACHED_REASONS))
        attached = attachment.reason == 0
        known = mine & attached & (attachment.method >= 0)
        methods = np.bincount(attachment.method[known], minlength=len(ATTACH_METHODS))
        categories[events.categories[code]] = {
            "total": int(mine.sum()),
            "attached": int(reasons[0]),
            "by_method": {m: int(c) for m, c in zip(ATTACH_METHODS, methods, strict=True) if c},
            "unattached": {r: int(c) for r, c in zip(UNATTACHED_REASONS[1:], reasons[1:], strict=True) if c},
        }
    dur = np.maximum(events.dur[attachment.row], 0)
    return {
        "categories": categories,
        "time_ns": int(dur.sum()),
        "attached_time_ns": int(dur[attachment.reason == 0].sum()),
    }


def _counts(codes: npt.NDArray[np.int32], values: list[str]) -> dict[str, int]:
    return {value: int(n) for value, n in zip(values, np.bincount(codes, minlength=len(values)), strict=True) if n}


_STRAY = 0.05
"""An iteration with fewer of the linked calls is only touched at its edge."""


def describe_windows(nodes: EtCalls, calls: CpuCalls, found: Match, iterations: Iterations) -> dict[str, Any]:
    """The report's `windows`: sequence numbers and times of both sides, iterations linked, and sentences on them."""
    linked = np.flatnonzero(found.call >= 0)
    call = found.call[linked]
    windows: dict[str, Any] = {
        "et_sequence": _range(nodes.seq),
        "kineto_sequence": _range(calls.seq),
        "linked_sequence": _range(nodes.seq[linked]),
        "kineto_ns": [int(calls.ts.min()), int(calls.end.max())] if len(calls) else None,
        "linked_ns": [int(calls.ts[call].min()), int(calls.end[call].max())] if len(linked) else None,
        "iterations": len(iterations),
        "iteration_annotation": iterations.annotation,
        "linked_iterations": [],
    }
    notes = [*iterations.notes, *found.notes]
    if len(linked) and len(iterations):
        covered = _covered(calls, call, iterations)
        windows["linked_iterations"] = [iterations.label[k] for k in covered]
        if len(iterations) > 1:
            notes += _iteration_note(covered, iterations, windows["linked_sequence"], _is_sure(found))
    notes += _offset_note(found, windows["et_sequence"], windows["kineto_sequence"])
    notes += _choice_note(found)
    return {**windows, "notes": notes}


def _range(seq: Any) -> list[int] | None:
    known = seq[seq >= 0]
    return [int(known.min()), int(known.max())] if len(known) else None


def _covered(calls: CpuCalls, call: IntColumn, iterations: Iterations) -> list[int]:
    """Ordinals of the iterations linked: if every annotation that starts between the links is linked itself, theirs
    (wherever in the iteration it is), else those that calls fall into."""
    if len(iterations.marker):
        inside = (iterations.start >= calls.ts[call].min()) & (iterations.start <= calls.end[call].max())
        if inside.any() and np.isin(iterations.marker[inside], calls.row[call]).all():
            return [int(k) for k in np.flatnonzero(inside)]
    which = iterations.of(calls.ts[call])
    counts = np.bincount(which[which >= 0], minlength=len(iterations))
    return [int(k) for k in np.flatnonzero(counts > _STRAY * len(call))]


def _is_sure(found: Match) -> bool:
    """Whether the iteration linked is the ET's own: one place, and no other sequence numbers."""
    threads = found.facts.get("threads", [])
    return all(thread["equal_places"] == 1 and not thread["sequence_offset"] for thread in threads)


def _iteration_note(covered: list[int], iterations: Iterations, sequence: list[int] | None, sure: bool) -> list[str]:
    total = len(iterations)
    numbers = f" (sequence numbers {sequence[0]}–{sequence[1]})" if sequence else ""
    if not covered or len(covered) == total:
        return []
    if len(covered) == 1:
        label = shortened(iterations.label[covered[0]], LONGEST_NAME)
        called = "" if label.isdecimal() else f", {label}"
        verb = "is" if sure else "is linked to"
        return [f"the ET {verb} iteration {covered[0]} of {total}, counted from 0{called}{numbers}"]
    steady = covered[-1] - covered[0] + 1 == len(covered)
    ordinals = f"{covered[0]} to {covered[-1]}" if steady else ", ".join(map(str, covered))
    verb = "covers" if sure else "is linked to"
    return [f"the ET {verb} iterations {ordinals} of {total}, counted from 0{numbers}"]


def _offset_note(found: Match, ours: list[int] | None, theirs: list[int] | None) -> list[str]:
    offsets = {thread["sequence_offset"] for thread in found.facts.get("threads", []) if thread["sequence_offset"]}
    if len(offsets) != 1 or ours is None or theirs is None:
        return []
    when = "a later" if next(iter(offsets)) > 0 else "an earlier"
    return [
        f"the ET covers sequence {ours[0]}–{ours[1]}, the Kineto trace {theirs[0]}–{theirs[1]}: "
        f"same structure, durations are those of {when} iteration"
    ]


def _choice_note(found: Match) -> list[str]:
    places = max((thread["equal_places"] for thread in found.facts.get("threads", [])), default=1)
    if places == 1:
        return []
    return [f"{places} places fit equally well; one was taken (see --iteration) and its links are marked equivalent"]
