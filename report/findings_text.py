"""Render findings as text: one screen with one line per problem, or all evidence."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

from ..analysis.findings import Evidence, Finding, Findings, Gain, Where
from ..trace.intervals import union
from ..trace.printable import printable
from ..trace.text_tables import first_clause, fitting, in_ms, in_short
from ..trace.trace import Trace

_FOLDERS = re.compile(r"[^\s(]*[/\\]")
_LABEL = " " * 8
_MOST, _DETAILED = 7, 3  # The screen lists 7 problems and describes 3 of them in detail. This takes 24 lines.
_SCALED = {
    "ns": (1e6, 3, " ms"),
    "bytes": (1e6, 3, " MB"),
    "share": (0.01, 1, "%"),
    "bytes/s": (1e9, 1, " GB/s"),
    "FLOP/s": (1e12, 1, " TFLOP/s"),
}  # maps each unit to a divisor, the number of decimals, and the unit to print


def render(found: Findings, width: int = 80, *, shell: str = "", recorded: str = "", noun: str = "problem") -> str:
    """Return one screen: the number of findings, one line for each, details of the first few, and a command for more.

    Args:
        shell: names of the traces as shell words; if it is "", no commands are suggested.
        recorded: what was examined, such as "step 130.2 ms, GPU busy 41%".
        noun: the word for one finding that follows the number."""
    head = f"{recorded}: " if recorded else ""
    if not found.all:
        return "\n".join([f"{head}{found.none_reason}", *_notes(found.notes, width)])
    count = len(found.looked_for)
    checks = f" ({count} check{'s' * (count != 1)})" if count else ""
    lines = [f"{head}{_counted(found.all, noun)}{checks}"]
    problems = [(number, finding) for number, finding in enumerate(found.all, 1) if not is_note(finding)]
    if problems:
        lines += ["", *_rows(problems[:_MOST], width)]
    if len(problems) > _MOST:
        lines.append(f"   and {len(problems) - _MOST} more with --full")
    if found.together is not None:
        lines.append(f"   the first three together save {gain_in_short(found.together)}")
    lines += _notes([*(finding.title for finding in found.all if is_note(finding)), *found.notes], width)
    if shell:
        lines.append(fitting("evidence  etplus why {} --show 1", shell, width))
    return "\n".join(lines)


def render_full(found: Findings, width: int = 80) -> str:
    base = "" if found.base is None else f"; replay error on the recording {found.base.makespan:+.2%}"
    title = _counted(found.all, "problem") if found.all else found.none_reason
    head = [*textwrap.wrap(f"{title} in {in_ms(found.makespan_ns)}{base}", width), *_notes(found.notes, width)]
    parts = [render_one(finding, width, number, found.makespan_ns) for number, finding in enumerate(found.all, 1)]
    return "\n\n".join(["\n".join(head), *parts])


def render_one(finding: Finding, width: int = 80, number: int = 1, makespan_ns: int = 0) -> str:
    labeled = _parts(number, finding, makespan_ns)
    return "\n".join(line for label, text in labeled for line in _wrapped(label, text, width))


def recorded_text(traces: Sequence[Trace]) -> str:
    """Return the total duration of the steps (or of the trace), and the share of the trace with a busy GPU."""
    trace = traces[0]
    steps, span = trace.steps, max(one.span.length for one in traces)
    if len(traces) == 1 and len(steps):
        # Use the steps if there are any, because gains and table rows are sums over all steps.
        total = float((steps.end - steps.start).sum())
        each = in_short(total / len(steps))
        text = f"{len(steps)} steps, {in_short(total)} ({each} each)" if len(steps) > 1 else f"step {each}"
    else:
        text = f"{len(traces)} ranks, {in_short(span)}" if len(traces) > 1 else f"trace {in_short(span)}"
    busy = sum(union(one.gpu.ts, one.gpu.end).length for one in traces)
    whole = sum(one.span.length for one in traces)
    return f"{text}, GPU busy {busy / whole:.0%}" if busy and whole else text


def _counted(findings: Sequence[Finding], noun: str) -> str:
    problems = sum(not is_note(finding) for finding in findings)
    notes = len(findings) - problems
    parts = [f"{problems} {noun}{'s' * (problems != 1)}"] if problems or not notes else []
    return ", ".join([*parts, *([f"{notes} note{'s' * (notes != 1)}"] if notes else [])])


def is_note(finding: Finding) -> bool:
    return finding.gain is None and finding.cost_ns is None


def _rows(problems: Sequence[tuple[int, Finding]], width: int) -> Iterator[str]:
    saved = [
        gain_in_short(finding.gain) if finding.gain is not None else f"at most {in_short(finding.cost_ns or 0)}"
        for _, finding in problems
    ]
    name = max(len("problem"), *(len(finding.id) for _, finding in problems))
    cost = max(len("saves"), *map(len, saved))
    room = max(width - name - cost - 7, 12)
    yield f"#  {'problem':{name}}  {'saves':{cost}}  where"
    for (number, finding), saves in zip(problems, saved, strict=True):
        yield f"{number}  {finding.id:{name}}  {saves:{cost}}  {_short_place(finding.where, room)}".rstrip()
        if number <= _DETAILED:
            yield f"     {first_clause(finding.title, width - 5)}"
            yield f"     {first_clause(finding.advice, width - 5)}"


def gain_in_short(gain: Gain) -> str:
    """Return a gain and its interval in the same unit.

    Example:
        >>> gain_in_short(Gain(2_000_000, 1_500_000, 2_500_000, 0.0, 0.0))
        '2.0 ms (1.5-2.5)'
    """
    value, unit = in_short(gain.ns if gain.ns >= 1 else gain.high_ns).split()
    scale = {"s": 1e9, "ms": 1e6, "µs": 1e3, "ns": 1.0}[unit]
    digits = 1 if "." in value else 0
    low, middle, high = (f"{ns / scale:,.{digits}f}" for ns in (gain.low_ns, gain.ns, gain.high_ns))
    return f"{middle} {unit}" + (f" ({low}-{high})" if low != high else "")


def _short_place(where: Where, room: int) -> str:
    """Return the most precise known place. If it is too long, drop its folders, then the function, then its start."""
    rank = "" if where.rank is None else f"rank {where.rank}"
    line = where.place or where.source or ""
    lines = (line, _FOLDERS.sub("", line), _FOLDERS.sub("", where.source or "")) if line else ()
    others = next(filter(None, (where.module, where.operator, where.kernel, where.phase)), "")
    texts = [printable(", ".join(filter(None, (rank, place))), "?") for place in lines or (others,)]
    text = next((text for text in texts if len(text) <= room), texts[-1])
    return text if len(text) <= room else f"…{text[1 - room :]}"


def _notes(notes: Sequence[str], width: int) -> Iterator[str]:
    for note in notes:
        lines = textwrap.wrap(printable(f"note   {note}"), width, subsequent_indent=" " * 7)
        yield from lines[:2]


def _parts(number: int, finding: Finding, makespan_ns: int) -> Iterator[tuple[str, str]]:
    yield f"{number}.", f"{finding.id}: {finding.title}"
    gain, cost = finding.gain, finding.cost_ns
    stake = "" if cost is None else f"{in_ms(cost)} at stake"
    if gain is not None:
        yield "gain", f"{gain_text(gain, makespan_ns)}; {stake}; {finding.certainty}"
    elif stake:
        yield "cost", f"{stake}; not replayed; {finding.certainty}"
    where = finding.where
    rank, phase = None if where.rank is None else f"rank {where.rank}", where.phase and f"({where.phase})"
    known = (rank, where.place or where.source, where.module, where.operator, where.kernel, phase)
    if any(known):
        yield "where", " > ".join(text for text in known if text)
    for evidence in finding.evidence:
        value = value_text(evidence)
        is_said = value.removeprefix(": ") in evidence.text
        yield "proof", f"{evidence.text}{'' if is_said else value}"
    commands = list(dict.fromkeys(evidence.command for evidence in finding.evidence))
    yield "try", finding.advice
    yield "check", finding.check
    for command in commands[:1]:
        yield "show", command


def _wrapped(label: str, text: str, width: int) -> list[str]:
    if label == "show":  # Each wrapped line ends in a backslash, so the command can be pasted into a shell.
        lines = textwrap.wrap(printable(text, " "), width - 10, break_on_hyphens=False, break_long_words=False)
        return [f"{label:<8}" + f" \\\n{_LABEL}".join(lines)]
    return textwrap.wrap(printable(text, " "), width, initial_indent=f"{label:<8}", subsequent_indent=_LABEL)


def value_text(evidence: Evidence) -> str:
    """Return the value of a piece of evidence together with its unit; "" if it has no value.

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
    """Return a gain with its interval and its share of the replayed time.

    Example:
        >>> gain_text(Gain(2_000_000, 1_500_000, 2_500_000, 0.0, 0.0), 8_000_000)
        '2.000 ms (1.500 to 2.500 ms), 25.0%'
    """
    share = f", {gain.ns / makespan_ns:.1%}" if makespan_ns else ""
    return f"{in_ms(gain.ns)} ({gain.low_ns / 1e6:,.3f} to {in_ms(gain.high_ns)}){share}"
