"""What the linker found out, machine-readable (`to_dict`) and as one screen of text (`to_text`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import numpy.typing as npt

from ..schemas.columns import distinct
from ..schemas.damage import damage_of
from ..schemas.etplus import UNATTACHED_REASONS
from ..schemas.execution_trace import ExecutionTrace
from ..schemas.kineto import KinetoTrace
from .attach import ATTACH_METHODS, Attachment
from .calls import CpuCalls, EtCalls
from .identity import Identity
from .match.result import LINK_NAMES, REASONS, Match

__all__ = ["LinkReport", "make_report"]

_WIDTH = 79


@dataclass(frozen=True)
class LinkReport:
    """Counts and findings of one link.

    Attributes:
        et, kineto: what each file holds (counts by kind, window, pid, schema).
        ops: how many ET ops there are, and how many are certain, equivalent, unlinked by reason.
        method: the matching method whose links stand; considered: what each method found, in words.
        windows: iterations and sequence numbers of both files.
        gpu: per category, attached by method and unattached by reason; and coverage of GPU time.
        dependencies: edges by kind, those that the measured order contradicts, inferred ones, unresolved records.
        identity: whether both files are of one process and one time; None where no ET was given.
        warnings: sentences a user should read.
    """

    et: dict[str, Any]
    kineto: dict[str, Any]
    ops: dict[str, Any]
    method: str
    considered: tuple[str, ...]
    windows: dict[str, Any]
    gpu: dict[str, Any]
    dependencies: dict[str, Any]
    warnings: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    identity: Identity | None = None

    @property
    def linked_share(self) -> float:
        """Linked ET ops over all ET ops, 0 to 1."""
        linked: int = self.ops["linked"]
        total: int = self.ops["total"]
        return linked / total if total else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready values; its keys are documented in docs/report.md."""
        return {
            "et": self.et, "kineto": self.kineto, "ops": self.ops, "method": self.method,
            "considered": list(self.considered), "windows": self.windows,
            "identity": None if self.identity is None else self.identity.to_dict(), "gpu": self.gpu,
            "dependencies": self.dependencies,
            "warnings": list(self.warnings), "facts": self.facts,
        }  # fmt: skip

    def to_text(self) -> str:
        """One screen of text, 79 columns."""
        ops, gpu = self.ops, self.gpu
        share = f"{100 * self.linked_share:.2f}%"
        lines = [
            ("ET", f"{self.et['file']}: schema {self.et['schema']}, {self.et['ops']:,} ops, pid {self.et['pid']}"),
            (
                "Kineto",
                f"{self.kineto['file']}: {self.kineto['events']:,} events, {self.kineto['cpu_ops']:,} CPU calls",
            ),
            ("linked", f"{ops['linked']:,} of {ops['total']:,} ET ops ({share}) by {self.method or 'no method'}"),
            ("", f"{ops['certain']:,} certain, {ops['equivalent']:,} equivalent"),
            *(("", f"{count:,} unlinked: {reason}") for reason, count in ops["unlinked"].items()),
        ]
        for category, counts in gpu["categories"].items():
            lines.append(("GPU", f"{category}: {counts['attached']:,} of {counts['total']:,} attached"))
            lines += [("", f"{count:,} not: {reason}") for reason, count in counts["unattached"].items()]
        if gpu["time_ns"]:
            lines.append(("", f"{100 * gpu['attached_time_ns'] / gpu['time_ns']:.2f}% of GPU time attached"))
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in self.dependencies["edges"].items())
        lines.append(("edges", kinds or "none"))
        lines += [
            ("", f"{n:,} left out: {k} against the measured order")
            for k, n in self.dependencies["contradicted"].items()
        ]
        if skew := self.dependencies.get("clock_skew_ns"):
            lines.append(("", f"the clocks of host and device differ by {skew / 1000:.1f} us or more"))
        for title, sentences in (
            ("run", [] if self.identity is None else self.identity.sentences),
            ("window", self.windows["notes"]),
            ("tried", self.considered),
            ("warning", self.warnings),
        ):
            lines += [(title, sentence) for sentence in sentences]
        return "\n".join(_wrapped(title, _printable(text)) for title, text in lines)


def _wrapped(title: str, text: str) -> str:
    return fill(text, _WIDTH, initial_indent=f"{title:<8}", subsequent_indent=" " * 8)


def make_report(
    et: ExecutionTrace,
    kineto: KinetoTrace,
    nodes: EtCalls,
    calls: CpuCalls,
    match: Match,
    attachment: Attachment,
    considered: Sequence[str],
    windows: dict[str, Any],
    dependencies: dict[str, Any],
    identity: Identity | None = None,
) -> LinkReport:
    """Gather the stages' findings."""
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
    used = np.zeros(len(calls), np.bool_)
    used[match.call[match.call >= 0]] = True
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


def _printable(text: str) -> str:
    """Names come from strangers' files: no control sequences on the user's terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
