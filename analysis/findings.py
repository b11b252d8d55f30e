"""Conclusions from an analysis: what is wrong, what it costs, how that shows. Other packages register theirs."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ..trace.errors import EtplusError
from ..trace.plugins import Plugin, plugins
from .table import Column, Row, Table

if TYPE_CHECKING:
    from .summary import Analysis

GROUP = "etplus.findings"
"""Group of the entry points: the name is the finding's, the value a function `Analysis -> Iterable[Finding]`."""


class Finding(Row):
    """One conclusion.

    Attributes:
        what: is wrong, in a sentence.
        cost_ns: time at stake, None where it is not known.
        evidence: the numbers that prove it, or the command that shows them. advice: what to try.

    Example:
        >>> Finding("GPU 0 waits for the host", 1_500_000, "etplus analyze: idle causes", "capture a graph").cost_ns
        1500000
    """

    what: str
    cost_ns: int | None
    evidence: str
    advice: str

    title = "findings"
    columns = (Column("finding", "what"), Column("at stake, ms", "cost_ns", "ms"), Column("advice", "advice"))


def find_all(analysis: Analysis) -> Table[Finding]:
    """What all registered findings say of an analysis, the most time at stake first.

    Raises:
        EtplusError: one fails, or returns something else.
    """
    found = [finding for plugin in _plugins().values() for finding in _found_by(plugin, analysis)]
    return Table(Finding, sorted(found, key=lambda finding: -(finding.cost_ns or 0)))


@cache
def _plugins() -> dict[str, Plugin]:
    return plugins(GROUP, "finding", ())


def _found_by(plugin: Plugin, analysis: Analysis) -> list[Finding]:
    with plugin.contained():
        findings = list(plugin.call("__call__", analysis))
    for finding in findings:
        if not isinstance(finding, Finding):
            raise EtplusError(f"{plugin} returned {type(finding).__name__}, not Finding; report it to its authors")
    return findings
