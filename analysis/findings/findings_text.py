"""Findings as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from ...trace.printable import printable
from ...trace.text_tables import in_ms
from .find import Findings
from .finding import Evidence, Finding, Gain, Where

_INDENT = " " * 8
_SCALED = {
    "ns": (1e6, 3, " ms"), "bytes": (1e6, 3, " MB"), "share": (0.01, 1, "%"), "bytes/s": (1e9, 1, " GB/s"),
    "FLOP/s": (1e12, 1, " TFLOP/s"),
}  # fmt: skip
"""Of a unit what it is divided by, the decimals, and what it is then called."""


def text_of_findings(found: Findings, width: int) -> str:
    """A headline, then each finding of the first screen as a paragraph."""
    return "\n\n".join("\n".join(lines) for lines in (_head(found, width), *_paragraphs(found, width)))


def summary_of_findings(found: Findings, count: int, width: int) -> str:
    """Of each of the first findings what it is, what it gains, where it is and what to do; why there is none."""
    paragraphs = (
        "\n".join(
            line
            for label, text in _parts(number, finding, found.makespan_ns)
            if label not in ("proof", "check")
            for line in _wrapped(label, text, width)
        )
        for number, finding in enumerate(found.all[:count], 1)
    )
    return "\n\n".join(paragraphs) or found.none_reason


def _head(found: Findings, width: int) -> list[str]:
    base = found.base
    off = "" if base is None else f"; the replay is off by {base.makespan:+.2%}"
    title = (
        f"findings: {len(found)} of {in_ms(found.makespan_ns)}{off}"
        if found.all
        else f"findings: {found.none_reason}{off}"
    )
    lines = textwrap.wrap(title, width)
    for note in found.notes:
        lines += textwrap.wrap(printable(f"note    {note}"), width, subsequent_indent=_INDENT)
    if len(found.all) > len(found.first):
        lines.append(f"note    {len(found.all) - len(found.first)} more in --json")
    if found.together is not None:
        lines += textwrap.wrap(f"        the first three together: {gain_text(found.together)}", width)
    return lines


def _paragraphs(found: Findings, width: int) -> Iterator[list[str]]:
    for number, finding in enumerate(found.first, 1):
        yield [line for part in _parts(number, finding, found.makespan_ns) for line in _wrapped(*part, width)]


def _parts(number: int, finding: Finding, makespan_ns: int) -> Iterator[tuple[str, str]]:
    yield f"{number}.", f"{finding.id}: {finding.title}"
    gain, cost = finding.gain, finding.cost_ns
    stake = "" if cost is None else f"{in_ms(cost)} at stake"
    if gain is not None:
        yield "gain", f"{gain_text(gain, makespan_ns)}; {stake}; {finding.certainty}"
    elif stake:
        yield "cost", f"{stake}; not replayed; {finding.certainty}"
    place = place_text(finding.where)
    if place:
        yield "where", place
    for evidence in finding.evidence:
        value = value_text(evidence)
        again = value.removeprefix(": ") in evidence.text  # the sentence says it already
        yield "proof", f"{evidence.text}{'' if again else value} [{evidence.command}]"
    yield "try", finding.advice
    yield "check", finding.check


def _wrapped(label: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(
        printable(text, " "), width, initial_indent=f"{label:<8}", subsequent_indent=_INDENT, break_long_words=True
    )


def value_text(evidence: Evidence) -> str:
    """The number of a proof with its unit, "" without one.

    Example:
        >>> value_text(Evidence("softmax", 2_500_000, "ns", "etplus analyze x"))
        ': 2.500 ms'
    """
    value = evidence.value
    if value is None:
        return ""
    if evidence.unit in _SCALED:
        scale, digits, unit = _SCALED[evidence.unit]
        return f": {value / scale:,.{digits}f}{unit}"
    return f": {value:,.0f}" if float(value).is_integer() else f": {value:,.2f} {evidence.unit}"


def gain_text(gain: Gain, makespan_ns: int = 0) -> str:
    """A gain with its interval.

    Example:
        >>> gain_text(Gain(2_000_000, 1_500_000, 2_500_000, 0.0, 0.0), 8_000_000)
        '2.000 ms (1.500 to 2.500 ms), 25.0%'
    """
    share = f", {gain.ns / makespan_ns:.1%}" if makespan_ns else ""
    return f"{in_ms(gain.ns)} ({gain.low_ns / 1e6:,.3f} to {in_ms(gain.high_ns)}){share}"


def place_text(where: Where) -> str:
    """The chain from the line to the kernel, as far as it is known."""
    rank = None if where.rank is None else f"rank {where.rank}"
    known = (rank, where.source, where.module, where.operator, where.kernel, where.phase and f"({where.phase})")
    return " > ".join(text for text in known if text)
