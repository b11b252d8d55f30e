"""The link report, as a dict (`to_dict`) and as one screen of text (`to_text`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from textwrap import fill
from typing import Any, Literal

from .brief import Record, as_text
from .counterparts import repetition_sentences
from .printable import printable

Verdict = Literal["proved", "refuted", "stated", "unknown"]

_WIDTH = 79
# The report shows users only the proofs about these subjects (recording id, rank, job).
_SHOWN = frozenset({"run", "rank", "job"})


@dataclass(frozen=True, repr=False)
class Clue(Record):
    """A fact that supports or refutes that both traces come from the same run, or a note that a fact is missing."""

    # Subject of the clue. "run" is the id of the recording, "names" means file names, and "option" means --rank.
    # "job" compares the files of all ranks, and "calls" means calls that are missing from one of the two files.
    # "pid", "time", "world_size" and "rank" are contents of both files.
    by: str
    says: str  # sentence to show in the report


@dataclass(frozen=True, repr=False)
class Identity(Record):
    """The evidence for and against the claim that both traces recorded the same process at the same time."""

    # "proved", "refuted", "stated" or "unknown". Links can be certain only if the verdict is "proved".
    # "stated" means that the user gave the rank and that everything except the rank is proved.
    verdict: Verdict
    rank: int | None  # rank of both files, None if it is not proved or stated, or if the job has one rank
    world_size: int | None  # number of ranks in the job, None if unknown
    several_ranks: bool  # True if a different rank could have recorded one of the files
    proves: tuple[Clue, ...]  # evidence that one process recorded both traces
    refutes: tuple[Clue, ...]  # evidence against a common process
    unknown: tuple[Clue, ...]  # evidence that is missing from the files

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = asdict(self)
        return fields | {key: list(fields[key]) for key in ("proves", "refutes", "unknown")}

    @property
    def doubts(self) -> list[str]:
        """Sentences that explain why the identity is refuted or unknown, or [] if it is proved."""
        found = {"proved": (), "refuted": self.refutes}.get(self.verdict, self.unknown)
        return [finding.says for finding in found]

    @property
    def sentences(self) -> list[str]:
        """Sentences for the user that explain the doubts or, if there are no doubts, the proofs."""
        return self.doubts or [finding.says for finding in self.proves if finding.by in _SHOWN]


@dataclass(frozen=True, repr=False)
class LinkReport(Record):
    et: dict[str, Any]  # contents of the ET (counts by kind, window, pid, schema)
    kineto: dict[str, Any]  # contents of the Kineto trace (counts by kind, window, pid, schema)
    ops: dict[str, Any]  # counts of ET operators: total, certain, unverified, and unlinked for each reason
    method: str  # name of the matching method that found the links
    considered: tuple[str, ...]  # a sentence about the result of every method that was tried
    windows: dict[str, Any]  # the iterations and sequence numbers that the windows of both files contain
    gpu: dict[str, Any]  # counts of attached and unattached GPU events, and the attached GPU time
    dependencies: dict[str, Any]  # counts: edges by kind, dropped edges, inferred edges and unresolved records
    warnings: tuple[str, ...] = ()  # sentences that a user should read
    facts: dict[str, Any] = field(default_factory=dict)
    identity: Identity | None = None  # None if the user passed no ET

    __repr__ = as_text

    @property
    def linked_share(self) -> float:
        """Share of the ET operators that are linked, from 0 to 1."""
        linked: int = self.ops["linked"]
        total: int = self.ops["total"]
        return linked / total if total else 0.0

    def all_warnings(self, of_graphs: Iterable[str] = ()) -> tuple[str, ...]:
        """Return all warnings, including sentences about graphs and the reasons why links are not certain."""
        return (*self.warnings, *of_graphs, *(self.identity.doubts if self.identity is not None else ()))

    def reaches(self, min_match: float, min_certain: float = 0.0) -> bool:
        """Return True if operators are linked and the shares of linked and of certain operators reach the minimums."""
        if not self.ops["linked"]:
            return False
        return self.linked_share >= min_match and self.ops["certain"] / self.ops["total"] >= min_certain

    def to_dict(self) -> dict[str, Any]:
        """Return values that can be encoded as JSON. docs/reference/report.md describes the keys."""
        values = {column.name: getattr(self, column.name) for column in fields(self)}
        values["identity"] = None if self.identity is None else self.identity.to_dict()
        values["considered"], values["warnings"] = list(self.considered), list(self.warnings)
        keys = "et kineto ops method considered windows identity gpu dependencies warnings facts"
        return {key: values[key] for key in keys.split()}

    def to_text(self) -> str:
        ops, gpu, kineto = self.ops, self.gpu, self.kineto
        share = f"{100 * self.linked_share:.2f}%"
        lines = [
            ("ET", f"{self.et['file']}: schema {self.et['schema']}, {self.et['ops']:,} ops, pid {self.et['pid']}"),
            ("Kineto", f"{kineto['file']}: {kineto['events']:,} events, {kineto['cpu_ops']:,} CPU calls"),
            ("linked", f"{ops['linked']:,} of {ops['total']:,} ET ops ({share}) by {self.method or 'no method'}"),
            ("", f"{ops['certain']:,} certain, {ops['unverified']:,} unverified"),
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
        contradicted = self.dependencies["contradicted"].items()
        lines += [("", f"{n:,} left out: {kind} edges that contradict the measured order") for kind, n in contradicted]
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
