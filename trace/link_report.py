"""What a link found out, machine-readable (`to_dict`) and as one screen of text (`to_text`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from textwrap import fill
from typing import Any

__all__ = ["LinkReport"]

_WIDTH = 79


@dataclass(frozen=True)
class LinkReport:
    """Counts and findings of one link.

    Attributes:
        et, kineto: what each file holds (counts by kind, window, pid, schema).
        ops: how many ET ops there are, and how many are certain, equivalent, unlinked by reason.
        method: the matching method whose links stand; considered: what each method found, in words.
        windows: iterations, sequence numbers, pids, and what they say about "same run".
        gpu: per category, attached by method and unattached by reason; and coverage of GPU time.
        dependencies: edges by kind, those that the measured order contradicts, inferred ones, unresolved records.
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
            "considered": list(self.considered), "windows": self.windows, "gpu": self.gpu,
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
        for title, sentences in (
            ("window", self.windows["notes"]),
            ("tried", self.considered),
            ("warning", self.warnings),
        ):
            lines += [(title, sentence) for sentence in sentences]
        return "\n".join(_wrapped(title, _printable(text)) for title, text in lines)


def _wrapped(title: str, text: str) -> str:
    return fill(text, _WIDTH, initial_indent=f"{title:<8}", subsequent_indent=" " * 8)


def _printable(text: str) -> str:
    """Names come from strangers' files: no control sequences on the user's terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
