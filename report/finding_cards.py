"""Findings as JSON for the page, with the command that prints the gain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..analysis.devices import Device
from ..analysis.findings import Case, Findings, find_findings
from ..analysis.summary import Analysis
from ..timeline.graph_replay import Replay
from ..trace.printable import shell_word

MOST_RANKS = 16  # above this, the page has no findings: they need all traces in one replay


def cards_of(
    analyses: Sequence[Analysis],
    devices: Sequence[Device] = (),
    replays: Sequence[Replay] = (),
    shells: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the findings of a trace, or of the ranks of a job, for the page.

    Args:
        analyses: one per trace.
        devices, replays, shells: see `Case`.

    Returns:
        `Findings.to_dict()` with `none_reason` and, per finding, `command`: the shell command that prints its gain.
        Times in `where` count from the start of the page's timeline.
    """
    traces = [analysis.trace for analysis in analyses]
    case = Case(traces, analyses=analyses, devices=devices, replays=replays, shells=shells)
    plain = plain_cards(find_findings(case))
    for one in plain["found"]:
        rank, where = one["where"].get("rank"), one["where"]
        own = next((trace for trace in traces if trace.rank == rank), traces[0])
        shift = own.nodes.span.start - own.span.start
        one["where"] = where | {key: where[key] + shift for key in ("start_ns", "end_ns") if key in where}
        what_ifs = " ".join(f"--what-if {shell_word(text)}" for text in one["what_ifs"])
        one["command"] = f"etplus replay {case.shells} {what_ifs}" if what_ifs else ""
    return plain


def plain_cards(found: Findings) -> dict[str, Any]:
    """Return findings for a page without a timeline, such as the page of a comparison."""
    return found.to_dict() | {"none_reason": found.none_reason, "first": len(found.first)}


def cards_of_many(ranks: int) -> dict[str, Any]:
    """Return the note that replaces findings on a page with more than `MOST_RANKS` ranks."""
    reason = f"a page of {ranks} ranks has no findings (limit {MOST_RANKS}): use `etplus why … --ranks LIST`"
    return plain_cards(Findings((), None, (), None, 0)) | {"none_reason": reason}
