"""Gather what the stages of a link found into a `LinkReport`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..schemas.kineto.read_kineto import KinetoTrace
from ..schemas.text.recover import damage_of
from ..trace.columns import distinct, marked
from ..trace.conventions import UNATTACHED_REASONS
from ..trace.kinds import LINK_NAMES
from ..trace.link_report import Identity, LinkReport
from .attach import ATTACH_METHODS, Attachment
from .calls import TracePair
from .match.result import REASONS, Match

__all__ = ["make_report"]


def make_report(
    pair: TracePair, match: Match, attachment: Attachment, considered: Sequence[str], windows: dict[str, Any],
    dependencies: dict[str, Any], identity: Identity | None = None,
) -> LinkReport:  # fmt: skip
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
    used = marked(len(calls), match.call[match.call >= 0])
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
        considered=tuple(considered),
        windows=windows,
        gpu=_gpu(kineto, attachment),
        dependencies=dependencies,
        warnings=tuple(warnings),
        facts=match.facts,
        identity=identity,
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
