"""Convert findings to JSON for the page. Each finding gets the command that prints its gain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..analysis.devices import Device
from ..analysis.findings import Case, Finding, Findings, find_findings
from ..analysis.summary import Analysis
from ..timeline.graph_replay import Replay, replay
from ..timeline.whatif import apply_what_ifs, parse_what_if
from ..trace.errors import UsageError
from ..trace.printable import shell_word

_EXACT = 0.01  # The gain that a command prints may differ from the finding's gain by at most this share.
MOST_RANKS = 16  # A page shows findings for at most this many ranks, because the replay needs all traces in memory.


def cards_of(
    analyses: Sequence[Analysis],
    devices: Sequence[Device] = (),
    replays: Sequence[Replay] = (),
    shells: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the findings of a trace, or of all ranks of a job, for the page.

    Args:
        analyses: one per trace.
        devices, replays, shells: see `Case`.

    Returns:
        `Findings.to_dict()` with two additions: `none_reason`, and `command` for each finding. This is the shell
        command that prints the finding's gain, or "" if no command does. Times in `where` count from the start of the
        page's timeline."""
    traces = [analysis.trace for analysis in analyses]
    case = Case(traces, analyses=analyses, devices=devices, replays=replays, shells=shells)
    found = find_findings(case)
    plain = plain_cards(found)
    for finding, one in zip(found.all, plain["found"], strict=True):
        rank, where = one["where"].get("rank"), one["where"]
        own = next((trace for trace in traces if trace.rank == rank), traces[0])
        shift = own.nodes.span.start - own.span.start
        one["where"] = where | {key: where[key] + shift for key in ("start_ns", "end_ns") if key in where}
        one["command"] = _command(case, finding)
    return plain


def _command(case: Case, finding: Finding) -> str:
    """Return the command that replays a finding; "" if the gain differs, because the command may select more events."""
    if finding.gain is None:
        return ""
    try:
        changed = apply_what_ifs(
            case.graph, [*map(parse_what_if, finding.what_ifs)], case.constants, lambda: case.row_bounds
        )
    except UsageError:
        return ""
    saved = case.makespan_ns - replay(changed, case.constants).makespan_ns
    if abs(saved - finding.gain.replayed_ns) > _EXACT * finding.gain.replayed_ns:
        return ""
    coupled = " --rank-couple" if len(case.traces) > 1 else ""
    return (
        f"etplus replay {case.shells}{coupled} {' '.join(f'--what-if {shell_word(text)}' for text in finding.what_ifs)}"
    )


def plain_cards(found: Findings) -> dict[str, Any]:
    """Return findings for a page that has no timeline, such as a comparison."""
    return found.to_dict() | {"none_reason": found.none_reason, "first": len(found.first)}


def cards_of_many(ranks: int) -> dict[str, Any]:
    """Return the note that a page with more than `MOST_RANKS` ranks shows instead of findings."""
    reason = f"a page of {ranks} ranks has no findings (limit: {MOST_RANKS}); use `etplus why … --ranks LIST`"
    return plain_cards(Findings((), None, (), None, 0)) | {"none_reason": reason}
