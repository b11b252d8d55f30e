"""The link report, and the `etplus` object at the root of the output file."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import __version__
from ..schemas.etplus.write_etplus import FORMAT_VERSION
from ..schemas.kineto.read_kineto import KinetoTrace
from ..schemas.known_fields import KINETO_HEADER, FieldFilter
from ..schemas.text.recover import damage_of
from ..trace.columns import distinct, mask_at
from ..trace.conventions import UNATTACHED_REASONS
from ..trace.kinds import LINK_NAMES
from ..trace.link_report import LinkReport
from .join import ATTACH_METHODS, Attachment, Join
from .match.result import REASONS


def make_report(join: Join, **others: Any) -> LinkReport:
    et, kineto, nodes, calls, match = join.et, join.kineto, join.nodes, join.calls, join.match
    ops = len(match.call)  # do not count the process node that `kineto_only` adds
    by_reason = np.bincount(match.reason, minlength=len(REASONS))
    by_link = np.bincount(match.link, minlength=len(LINK_NAMES))
    used, events = mask_at(len(calls), match.call[match.call >= 0]), kineto.events
    return LinkReport(
        et={
            "file": Path(et.file).name,
            "schema": et.schema,
            "nodes": len(et),
            "ops": ops,
            "pid": et.pid,
            "threads": len(distinct(nodes.thread[:ops])),
            "orphans": int(np.count_nonzero(nodes.orphan[:ops])),
        },
        kineto={
            "file": Path(kineto.file).name,
            "events": kineto.event_count,
            "cpu_ops": len(calls),
            "cpu_ops_not_in_et": int(np.count_nonzero(~used)),
            "by_category": _nonzero(events.categories, np.bincount(events.category, minlength=len(events.categories))),
            **asdict(kineto.account),
        },
        ops={
            "total": ops,
            "linked": match.linked,
            "certain": int(by_link[2]),
            "unverified": int(by_link[1]),
            "unlinked": _nonzero(REASONS[1:], by_reason[1:]),
        },
        method=match.method if match.linked else "",
        gpu=_gpu(kineto, join.attachment),
        warnings=tuple(_warnings(join)),
        facts=match.facts,
        **others,
    )


def _warnings(join: Join) -> list[str]:
    attachment = join.attachment
    warnings = [*damage_of(join.et), *join.kineto.damage]
    if len(join.match.call) and not join.match.linked and not warnings:
        warnings.append("nothing was linked: these two files do not seem to belong together")
    if attachment.repeated:
        warnings.append(
            f"{attachment.repeated:,} GPU events have the same correlation ID as several calls; "
            "each was attached to the last call before it"
        )
    shared = attachment.shared & (attachment.call >= 0)
    if shared.any():
        launches = len(distinct(attachment.launcher[shared]))
        warnings.append(
            f"{np.count_nonzero(shared):,} GPU events share {launches:,} "
            f"launch{'es' * (launches > 1)} of one kernel each, so their launches are not certain"
        )
    return warnings


def _gpu(kineto: KinetoTrace, attachment: Attachment) -> dict[str, Any]:
    events, attached = kineto.events, attachment.reason == 0
    categories = {}
    codes = events.category[attachment.row]
    for code in distinct(codes.astype(np.int64)).tolist():
        chosen = codes == code
        reasons = np.bincount(attachment.reason[chosen], minlength=len(UNATTACHED_REASONS))
        known = chosen & attached & (attachment.method >= 0)
        methods = np.bincount(attachment.method[known], minlength=len(ATTACH_METHODS))
        categories[events.categories[code]] = {
            "total": int(chosen.sum()),
            "attached": int(reasons[0]),
            "by_method": _nonzero(ATTACH_METHODS, methods),
            "unattached": _nonzero(UNATTACHED_REASONS[1:], reasons[1:]),
            **({"unverified": shared} if (shared := int(np.count_nonzero(known & attachment.shared))) else {}),
        }
    dur = np.maximum(events.dur[attachment.row], 0)
    return {"categories": categories, "time_ns": int(dur.sum()), "attached_time_ns": int(dur[attached].sum())}


def _nonzero(names: list[str] | tuple[str, ...], counts: npt.NDArray[np.integer]) -> dict[str, int]:
    return {name: count for name, count in zip(names, counts.tolist(), strict=True) if count}


def summary_of(join: Join, report: LinkReport, compiled: dict[str, Any] | None) -> dict[str, Any]:
    """Return the root's `etplus` object without the inferred edges, because their ids are not known yet. It contains
    file names without folders, so the output does not change if the inputs are moved."""
    kineto, events, attachment = join.kineto, join.kineto.events, join.attachment
    unattached = {
        reason: events.index[attachment.row[attachment.reason == code]].tolist()
        for code, reason in enumerate(UNATTACHED_REASONS)
        if code and np.any(attachment.reason == code)
    }
    kineto = replace(kineto, header=FieldFilter().members(kineto.header, KINETO_HEADER))
    return {
        "version": FORMAT_VERSION,
        "tool_version": __version__,
        "kineto": {
            "file_name": Path(kineto.file).name,
            "base_time_ns": kineto.base_time_ns,
            "schema_version": kineto.header_value("schemaVersion"),
            "device_properties": kineto.header_value("deviceProperties"),
            "distributed_info": kineto.header_value("distributedInfo"),
        },
        "damage": [*damage_of(join.et), *kineto.damage],
        "unattached": unattached,
        "inferred_edges": [],
        "link": report.to_dict(),
        **({} if join.has_storages else {"nodes_from": "kineto"}),
        **({} if compiled is None else {"compiled": compiled}),
    }
