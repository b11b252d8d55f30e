"""The report of a link, machine-readable (`to_dict`) and as one screen of text (`to_text`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from textwrap import fill
from typing import Any, Literal

from .brief import brief
from .counterparts import repetition_sentences
from .printable import printable

Verdict = Literal["proved", "refuted", "stated", "unknown"]

_WIDTH = 79
_SHOWN = frozenset({"run", "rank", "job"})
"""Subjects of evidence that is shown if it proves something: the id of the recording, the rank, the job."""


@dataclass(frozen=True)
class Clue:
    """One fact for or against one process and one time, or a missing fact.

    Attributes:
        by: its subject: "run" (id of the recording), "pid", "time", "world_size", "rank" (contents of both files),
            "job" (files of all ranks), "names" (of the files), "option" (--rank), "calls" (that one file lacks).
        says: a sentence for the report.
    """

    by: str
    says: str

    __repr__ = brief


@dataclass(frozen=True)
class Identity:
    """Whether two traces are of one process and one time.

    Attributes:
        verdict: "proved", "refuted", "stated" (all is proved except the rank, which the user gives), or "unknown".
            Links are `certain` only if it is proved.
        rank: the rank of both files, None if it is neither proved nor stated, or there is only one.
        world_size: ranks of the job, None if neither file says.
        several_ranks: another rank could have recorded one of the files.
        proves, refutes, unknown: the evidence.
    """

    verdict: Verdict
    rank: int | None
    world_size: int | None
    several_ranks: bool
    proves: tuple[Clue, ...]
    refutes: tuple[Clue, ...]
    unknown: tuple[Clue, ...]

    __repr__ = brief

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; see docs/reference/report.md."""
        fields: dict[str, Any] = asdict(self)
        return fields | {key: list(fields[key]) for key in ("proves", "refutes", "unknown")}

    @property
    def doubts(self) -> list[str]:
        """Why identity is refuted, or what is unknown; [] if it is proved."""
        found = {"proved": (), "refuted": self.refutes}.get(self.verdict, self.unknown)
        return [finding.says for finding in found]

    @property
    def sentences(self) -> list[str]:
        """Sentences for the user: the doubts, or what proves the recording or the rank."""
        return self.doubts or [finding.says for finding in self.proves if finding.by in _SHOWN]


@dataclass(frozen=True)
class LinkReport:
    """Counts and findings of one link.

    Attributes:
        et, kineto: contents of each file (counts by kind, window, pid, schema).
        ops: number of ET operators: total, certain, equivalent, unlinked by reason.
        method: the matching method whose links are used. considered: what each method found, in words.
        windows: iterations and sequence numbers of both files.
        gpu: by category, attached by method and unattached by reason; and coverage of GPU time.
        dependencies: edges by kind, those that the measured order contradicts, inferred ones, unresolved records.
        identity: None if no ET was given.
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

    __repr__ = brief

    @property
    def linked_share(self) -> float:
        """Linked ET operators over all ET operators, 0 to 1."""
        linked: int = self.ops["linked"]
        total: int = self.ops["total"]
        return linked / total if total else 0.0

    def all_warnings(self, of_graphs: Iterable[str] = ()) -> tuple[str, ...]:
        """Return the warnings, sentences about replayed graphs, and why links are not certain."""
        return (*self.warnings, *of_graphs, *(self.identity.doubts if self.identity is not None else ()))

    def reaches(self, min_match: float, min_certain: float = 0.0) -> bool:
        """Return whether an ET operator is linked, and at least these shares of them are linked, and linked for
        certain."""
        if not self.ops["linked"]:
            return False
        return self.linked_share >= min_match and self.ops["certain"] / self.ops["total"] >= min_certain

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; docs/reference/report.md describes the keys."""
        values = {column.name: getattr(self, column.name) for column in fields(self)}
        values["identity"] = None if self.identity is None else self.identity.to_dict()
        values["considered"], values["warnings"] = list(self.considered), list(self.warnings)
        keys = "et kineto ops method considered windows identity gpu dependencies warnings facts"
        return {key: values[key] for key in keys.split()}

    def to_text(self) -> str:
        """Return one screen of text, 79 columns."""
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
        lines += [("", sentence) for sentence in repetition_sentences(gpu)]
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in self.dependencies["edges"].items())
        lines.append(("edges", kinds or "none"))
        lines += [
            ("", f"{n:,} left out: {k} against the measured order")
            for k, n in self.dependencies["contradicted"].items()
        ]
        if skew := self.dependencies.get("clock_skew_ns"):
            lines.append(("", f"the clocks of host and device differ by {skew / 1000:.1f} µs or more"))
        for title, sentences in (
            ("run", [] if self.identity is None else self.identity.sentences),
            ("window", self.windows["notes"]),
            ("tried", self.considered),
            ("warning", self.warnings),
        ):
            lines += [(title, sentence) for sentence in sentences]
        return "\n".join(
            fill(printable(text), _WIDTH, initial_indent=f"{title:<8}", subsequent_indent=" " * 8)
            for title, text in lines
        )
