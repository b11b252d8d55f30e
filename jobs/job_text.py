"""The job report as text in 79 columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from textwrap import fill, wrap

from ..trace.printable import printable
from ..trace.text_tables import first_clause, fitting, in_short
from .job_report import ClockOffset, GroupCounts, JobReport, Mismatch, RankResult, Wait, ranges

_WIDTH = 79
_LISTED = 20
_SCREEN = 3  # The screen shows at most this many failed ranks, this many warnings and this many notes.
_WAITS = 3
_CLOCKS, _LATE = 8, 12


def render(report: JobReport, output: str) -> str:
    """Return one screen of text that shows link counts, failed ranks, the worst straggler, outputs and next steps."""
    good = [rank for rank in report.ranks if rank.status == "linked"]
    ops, linked, certain = (sum(getattr(rank, key) for rank in good) for key in ("ops", "linked", "certain"))
    share = "" if linked == ops else f" of {ops:,}"
    proof = "all certain" if certain == linked else f"{certain:,} certain" if certain else "none certain"
    counted = f": {linked:,}{share} operators, {proof}" if ops else ""
    lines = [f"linked {len(good):,} of {len(report.ranks):,} ranks{counted}"]
    if report.missing:
        lines.append(f"missing  ranks without any file: {report.missing}")
    lines += _screen_cut("failed  ", [f"rank {rank.rank}: {rank.reason}" for rank in report.failed])
    lines += _collectives(report)
    if good:
        names = [rank.output for rank in good]
        last = f" to {names[-1]}" if len(names) > 1 else ""
        lines += _labeled("wrote  ", f"{output.rstrip('/')}/{names[0]}{last}, job_report.json, job_report.txt")
    lines += _screen_cut("warning ", warnings_of(report.ranks))
    lines += _screen_cut("note   ", report.notes)
    if good:
        lines.append(
            fitting("next   etplus why {0}   etplus convert {0} --to astra-sim -o job", output, _WIDTH, "FOLDER")
        )
    return "\n".join(lines)


def _collectives(report: JobReport) -> list[str]:
    if not report.groups:
        return []
    matched, whole = (sum(getattr(group, key) for group in report.groups) for key in ("matched", "collectives"))
    text = f"{matched:,} of {whole:,} collectives match on all ranks"
    late = max(report.stragglers, key=lambda row: row.caused_ns, default=None)
    if late is not None and late.caused_ns:
        text += f"; rank {late.rank} is last in {late.last:,} of {late.collectives:,}, the others wait "
        text += in_short(late.caused_ns)
    return _labeled("", text)


def _screen_cut(label: str, texts: Sequence[str]) -> list[str]:
    room = 2 * _WIDTH - len(label) - 12  # at most two lines
    lines = [line for text in texts[:_SCREEN] for line in _labeled(label, first_clause(text, room))]
    return [*lines, f"{label}and {len(texts) - _SCREEN:,} more in job_report.txt"] if len(texts) > _SCREEN else lines


def _labeled(label: str, text: str) -> list[str]:
    return wrap(printable(label + text), _WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def report_text(report: JobReport) -> str:
    """Return the report as text. Long lists are cut, but the JSON file has the full lists."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: JobReport) -> Iterator[str]:
    good = [rank for rank in report.ranks if rank.status == "linked"]
    linked = f"{len(good):,} of {len(report.ranks):,} linked"
    yield from _wrapped("ranks", linked + (f": {ranges(rank.rank for rank in good)}" if good else ""))
    ops, linked, certain = (sum(getattr(rank, key) for rank in good) for key in ("ops", "linked", "certain"))
    if ops:
        yield from _wrapped("", f"{linked:,} of {ops:,} ET ops ({100 * linked / ops:.2f}%), {certain:,} certain")
    if report.not_given:
        yield from _wrapped("", f"of {report.world_size:,} in the job; not given: {report.not_given}")
    if report.missing:
        yield from _wrapped("missing", f"ranks without any file: {report.missing}")
    yield from _cut("failed", [f"rank {rank.rank}: {rank.reason}" for rank in report.failed], "ranks")
    yield from _cut("groups", [_group(group) for group in report.groups], "groups")
    yield from _cut("differ", [_mismatch(mismatch) for mismatch in report.mismatches], "collectives")
    yield from _messages(report)
    yield from _clocks(report.clock_offsets)
    yield from _late(report)
    yield from _cut("waits", [_wait(wait) for wait in report.longest_waits[:_WAITS]], "waits")
    yield from _cut("warning", warnings_of(report.ranks), "warnings")
    yield from _cut("note", report.notes, "notes")


def warnings_of(ranks: Sequence[RankResult]) -> list[str]:
    """Return the warnings of all ranks. If several ranks have the same warning, it occurs once ("ranks 0-7: ...")."""
    by_text: dict[str, dict[int, str]] = {}
    for rank in ranks:
        for text in rank.warnings:
            by_text.setdefault(_without_rank(text, rank), {})[rank.rank] = text
    return [
        f"ranks {ranges(texts)}: {general}" if len(texts) > 1 else f"rank {min(texts)}: {texts[min(texts)]}"
        for general, texts in by_text.items()
    ]


def _without_rank(text: str, rank: RankResult) -> str:
    """Replace the rank and its file names in a warning with placeholders."""
    for file, words in ((rank.et, "the Execution Trace"), (rank.kineto, "the Kineto trace")):
        if file:
            text = text.replace(PurePath(file).name, words)
    return re.sub(rf"\brank {rank.rank}\b", "rank N", text)


def _cut(title: str, texts: Sequence[str], unit: str) -> Iterator[str]:
    for text in texts[:_LISTED]:
        yield from _wrapped(title, text)
    if len(texts) > _LISTED:
        yield from _wrapped("", f"and {len(texts) - _LISTED:,} more {unit}")


def _group(group: GroupCounts) -> str:
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in group.kinds.items())
    state = "all matched" if group.matched == group.collectives else f"{group.matched:,} matched"
    absent = f"; without ranks {ranges(group.absent)}" if group.absent else ""
    ranks = f"ranks {ranges(group.ranks)}"
    return f"{_name(group.name)}, {ranks}: {group.collectives:,} collectives, {state} ({kinds}){absent}"


def _name(group: str) -> str:
    return f"group {group!r}" if group else "the whole job"


def _mismatch(mismatch: Mismatch) -> str:
    ranks, has = ("rank", "has") if len(mismatch.ranks) == 1 else ("ranks", "have")
    ranks = f"{ranks} {ranges(mismatch.ranks)}"
    if mismatch.kind == "missing":
        return f"{_place(mismatch)} is missing on {ranks}"
    difference = {"size": "another size", "order": "another order", "type": "another collective"}[mismatch.kind]
    return f"{_place(mismatch)}: {difference} on {ranks}, which {has} {'; '.join(dict.fromkeys(mismatch.found[:3]))}"


def _place(entry: Mismatch | Wait) -> str:
    size = "" if entry.bytes < 0 else f" of {entry.bytes:,} bytes"
    return f"{_name(entry.group)}, position {entry.position}: {entry.collective}{size}"


def _messages(report: JobReport) -> Iterator[str]:
    pairs = report.messages
    if not pairs:
        return
    count, size = sum(pair.matched for pair in pairs), sum(pair.bytes for pair in pairs)
    yield from _wrapped("p2p", f"{count:,} messages of {size:,} bytes matched between {len(pairs):,} pairs of ranks")
    odd = []
    for pair in pairs:
        parts = {
            "sent, not received": pair.unmatched_sends,
            "received, not sent": pair.unmatched_receives,
            "with two sizes": pair.other_size,
        }
        differences = ", ".join(f"{count:,} {what}" for what, count in parts.items() if count)
        if differences:
            odd.append(f"rank {pair.source} to {pair.target}: {differences}")
    yield from _cut("differ", odd, "pairs")


def _clocks(offsets: Sequence[ClockOffset]) -> Iterator[str]:
    if not offsets:
        return
    others = [offset for offset in offsets if offset.rank != offset.reference]
    worst = sorted(others, key=lambda offset: (-abs(offset.offset_ns), offset.rank))[:_CLOCKS]
    worst.sort(key=lambda offset: offset.rank)
    parts = [f"rank {offset.rank} {_us(offset.offset_ns)} ±{_us(offset.spread_ns)} µs" for offset in worst]
    more = f", {len(others) - len(worst):,} more are smaller" if len(others) > len(worst) else ""
    base = ", ".join(map(str, sorted({offset.reference for offset in offsets})))
    yield from _wrapped("clocks", f"ahead of rank {base}: {', '.join(parts)}{more}")


def _late(report: JobReport) -> Iterator[str]:
    table = sorted(report.stragglers, key=lambda late: (-late.caused_ns, late.rank))
    if not table:
        return
    yield f"{'late':8}{'rank':>7}{'last in':>12}{'the others waited ms':>24}{'waited itself ms':>20}"
    for late in table[:_LATE]:
        share = f"{late.last:,}/{late.collectives:,}"
        yield f"{'':8}{late.rank:7}{share:>12}{late.caused_ns / 1e6:24,.3f}{late.waited_ns / 1e6:20,.3f}"
    if len(table) > _LATE:
        yield f"{'':8}and {len(table) - _LATE:,} more ranks that caused shorter waits"


def _wait(wait: Wait) -> str:
    total = sum(ns for _, ns in wait.waits_ns)
    most_rank, most = max(wait.waits_ns, key=lambda pair: (pair[1], -pair[0]))
    return (
        f"{_place(wait)}: rank {wait.last} arrived last; "
        f"the others waited {total / 1e6:,.3f} ms in total, rank {most_rank} {most / 1e6:,.3f} ms"
    )


def _us(ns: int) -> str:
    return f"{round(ns / 1000, 1) or 0.0:.1f}"


def _wrapped(title: str, text: str) -> Iterator[str]:
    yield fill(printable(text), _WIDTH, initial_indent=f"{title:<8}", subsequent_indent=" " * 8, break_on_hyphens=False)
