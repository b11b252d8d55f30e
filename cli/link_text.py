"""Render the results of linking as text: one screen, or all decisions."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from ..trace.generated import compiled_summary
from ..trace.link_report import LinkReport
from ..trace.printable import printable
from ..trace.text_tables import rewrap
from ..trace.trace import Trace

_WIDTH = 79
_HINT = "--full for how it was decided"
_DOUBTS = 2  # The screen shows at most this many reasons for unverified links.
_LINES = 5  # Each sentence takes at most this many lines on the screen.


def render(linked: Trace, output: str) -> str:
    """Return one screen: the shares of linked and certain operators, doubts, unlinked events and outputs."""
    report = linked.report
    lines = textwrap.wrap(f"{_linked(report)}; {attached(report)}", _WIDTH)
    lines += [line for sentence in _doubts(report) for line in _indented(sentence)]
    sentences = [*report.windows["notes"], *_further(linked)]
    lines += [line for sentence in sentences for line in _indented(sentence)]
    lines += [line for sentence in report.warnings for line in _indented(sentence, "warning ")]
    room = _WIDTH - len(f"wrote {output}")
    # If the file name is too long, the hint gets its own line.
    hint = f"{_HINT:>{room}}" if room > len(_HINT) + 1 else f"\n{_HINT:>{_WIDTH}}"
    return "\n".join([*lines, f"wrote {output}{hint}"])


def render_full(linked: Trace, output: str) -> str:
    return "\n".join([linked.report.to_text(), *rewrap(_further(linked), _WIDTH, "  "), f"wrote   {output}"])


def _further(linked: Trace) -> list[str]:
    graphs, compiled = linked.captured, compiled_summary(linked.summary)
    sentences = [f"graphs {sentence}" for sentence in (graphs.sentences if graphs is not None else [])]
    return sentences + [f"source {sentence}" for sentence in (compiled.sentences if compiled is not None else [])]


def _linked(report: LinkReport) -> str:
    ops = report.ops
    if report.identity is None:
        return f"no Execution Trace: {ops['total']:,} CPU calls of the Kineto trace are used as operators"
    tried = "" if ops["linked"] else f" (tried {', '.join(text.partition(':')[0] for text in report.considered)})"
    certain = "all" if ops["certain"] == ops["linked"] else f"{ops['certain']:,}"
    share = f"{ops['linked']:,} of {ops['total']:,} operators ({report.linked_share:.2%})"
    return f"linked {share}{tried}, {certain if ops['certain'] else 'none'} certain"


def attached(report: LinkReport) -> str:
    categories = report.gpu["categories"].values()
    count, whole = sum(of["attached"] for of in categories), sum(of["total"] for of in categories)
    return f"{count:,} of {whole:,} GPU events attached" if whole else "no GPU events"


def _doubts(report: LinkReport) -> Iterator[str]:
    doubts = [] if report.identity is None else report.identity.doubts
    if doubts and report.ops["linked"]:
        yield f"not certain: {'; '.join(doubts[:_DOUBTS])}"
    for reason, count in report.ops["unlinked"].items():
        yield f"{count:,} operator{'s' * (count != 1)} unlinked: {reason}"
    reasons: dict[str, int] = {}
    for counts in report.gpu["categories"].values():
        for reason, count in counts["unattached"].items():
            reasons[reason] = reasons.get(reason, 0) + count
    for reason, count in reasons.items():
        yield f"{count:,} GPU event{'s' * (count != 1)} unattached: {reason}"


def _indented(sentence: str, label: str = "  ") -> list[str]:
    text = printable(label + sentence, " ")
    return textwrap.wrap(text, _WIDTH, subsequent_indent="  ", drop_whitespace=True)[:_LINES]
