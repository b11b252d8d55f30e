"""Build the HTML report of a trace or of a job's ranks. It shows analysis tables together with a timeline.

The page is one file with the data, the chart library and the script. It loads nothing else. A large job's page shows
details of some ranks, and key figures of all. Each finding gets the command that prints its gain."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.resources import files
from pathlib import PurePath
from typing import Any, Protocol

import orjson

from .. import __version__
from ..analysis.counters import counters, drawn
from ..analysis.devices import Device
from ..analysis.findings import Case, Finding, Findings, TraceChanges, find_findings
from ..analysis.job_diff import JobDifference
from ..analysis.job_summary import QUANTITIES, JobSummary, ranks_to_show
from ..analysis.summary import Analysis, analyze
from ..analysis.table import Row, Table
from ..analysis.trace_diff import Difference, json_of_difference
from ..jobs.job_ranks import check_job, job_trace
from ..schemas.text.memory_limit import require_memory, size_text
from ..timeline.critical import CriticalChain, critical_chain, unchanged_replay
from ..timeline.graph_replay import Replay, replay
from ..timeline.whatif import apply_what_ifs, parse_what_if
from ..trace.errors import EtplusError, UsageError
from ..trace.kernel_kinds import GPU_KINDS
from ..trace.printable import shell_word
from ..trace.trace import Trace
from .flame import flame_graph
from .packed import pack_json
from .part_report import PathTable, page_columns, part_report, step_reports, table_of_columns
from .timeline import job_timeline, rank_lanes
from .timeline_lanes import KIND_COLORS, timeline_of

# All data about one trace that the page needs, as plain values and numpy columns.
RankReport = dict[str, Any]

_BLOCKS = 60_000
_BLOCKS_OF_A_JOB = 120_000
_LEAST_BLOCKS = 2_000
_BOXES = 4_000
_BOXES_OF_A_JOB = 12_000
_LEAST_BOXES = 200
# The chart of a counter is reduced to this many time spans. On a job's page, it has fewer time spans.
_SPANS = 600
_LEAST_SPANS = 60


def rank_report(analysis: Analysis, files: int = 1, chain: CriticalChain | None = None) -> RankReport:
    """Return all data about one trace that the page needs.

    Args:
        files: number of traces on the page. If there are more traces, timelines are coarser and tables are shorter.
        chain: the critical path to show in the timeline."""
    trace = analysis.trace
    report, path = part_report(analysis, files), None if chain is None else PathTable(chain, trace)
    return report | {
        "file": PurePath(trace.file).name,
        "rank": trace.rank,
        "start_ns": trace.span.start,
        "counters": drawn(counters(trace, analysis.memory), trace.span.start, max(_SPANS // files, _LEAST_SPANS)),
        "coverage": _coverage(trace.coverage),
        "lanes": rank_lanes(trace, max(_LEAST_BLOCKS, _BLOCKS_OF_A_JOB // 4 // files)) if files > 1 else None,
        "flame": flame_graph(trace, min(_BOXES, max(_LEAST_BOXES, _BOXES_OF_A_JOB // files))),
        "path_rows": None if path is None else pack_json(path.rows()),
        "steps": step_reports(analysis, files, path),
        "timeline": timeline_of(
            trace, analysis.work, min(_BLOCKS, max(_LEAST_BLOCKS, _BLOCKS_OF_A_JOB // files)), chain, files
        ),
    }


def report_html(
    ranks: Iterable[RankReport],
    title: str = "",
    warnings: Sequence[str] = (),
    findings: dict[str, Any] | None = None,
    many: dict[str, Any] | None = None,
) -> bytes:
    """Return the page. Equal traces give identical bytes.

    Args:
        ranks: results of `rank_report`. They are sorted by rank if all traces record their rank.
        title: heading of the page. By default, it is the file's name.
        warnings: warnings about the job; the page shows them first.
        findings: the result of `cards_of` for the trace or job.
        many: data about all ranks, if the job is large."""
    found = [dict(rank) for rank in ranks]
    numbers = [rank["rank"] for rank in found]
    if None not in numbers and len(set(numbers)) == len(found):
        found.sort(key=lambda rank: int(rank["rank"]))
        labels = [f"{rank['rank']}" for rank in found]
    else:
        labels = [rank["file"] for rank in found]
    lanes = [(rank["rank"], rank.pop("lanes", None)) for rank in found]
    is_job = len(lanes) > 1 and all(drawn is not None for _, drawn in lanes)
    name = title or (found[0]["file"] if len(found) == 1 else f"Job of {len(many['numbers'] if many else found)} ranks")
    shown = {
        "title": name,
        "version": __version__,
        "columns": page_columns(),
        "warnings": list(warnings),
        "findings": findings,
        "gpu_kinds": [{"name": kind, "color": KIND_COLORS[kind]} for kind in GPU_KINDS],
        "job": job_timeline(lanes) if is_job else None,
        **({"many": many} if many else {}),
        "ranks": [rank | {"label": label} for rank, label in zip(found, labels, strict=True)],
    }
    return page(shown, f"{name} · etplus report")


def _coverage(report: Mapping[str, Any]) -> dict[str, Any] | None:
    """Check the values of the link report, and return those that the page shows; None for a Kineto trace."""
    ops, gpu = report.get("ops"), report.get("gpu")
    counts = [ops.get(key) for key in ("total", "linked", "certain", "unverified")] if isinstance(ops, dict) else []
    times = [gpu.get(key) for key in ("time_ns", "attached_time_ns")] if isinstance(gpu, dict) else []
    if not counts or not times or not all(type(value) is int for value in (*counts, *times)):
        return None
    windows = report.get("windows")
    notes = windows.get("notes") if isinstance(windows, dict) else None
    warnings = report.get("warnings")
    return {
        "method": str(report.get("method", "")),
        **dict(zip(("total", "linked", "certain", "unverified", "gpu_ns", "attached_ns"), counts + times, strict=True)),
        "notes": [str(text) for of in (notes, warnings) if isinstance(of, list) for text in of],
    }


_DIFF_ROWS = 2_000
_OF_LINES = ("calls", "host_ns", "device_ns")
# The page's call tree omits paths that take at most this share of the GPU time (of the CPU time if there is no GPU).
_LEAST_SHARE = 0.0002


def diff_html(changed: TraceChanges, a: Analysis, b: Analysis, shell: str = "") -> bytes:
    """Return the page that compares two traces. The same traces give identical bytes.

    Args:
        a, b: analyses of the compared traces. They provide the lists of iterations.
        shell: the names of both traces in commands that run in the page's folder."""
    difference = json_of_difference(changed)
    key, whole = "device_ns", max(changed.total_a, changed.total_b)
    if not whole:
        key, whole = "host_ns", max(changed.latency_a, changed.latency_b)
    least = _LEAST_SHARE * whole
    paths = [row for row in difference["paths"] if any(side and side[key] > least for side in (row["a"], row["b"]))]
    more = {
        "paths": paths[:_DIFF_ROWS],
        "paths_left_out": len(changed.paths) - len(paths[:_DIFF_ROWS]),
        "lines": [
            {"place": row.place, "what": row.what_changed, "change_ns": row.change_ns}
            | {f"{side}_{value}": getattr(getattr(row, side), value, None) for side in "ab" for value in _OF_LINES}
            for row in changed.lines[:_DIFF_ROWS]
        ],
        "iteration_list": {"a": a.iterations.plain(), "b": b.iterations.plain()},
    }
    cards = plain_cards(changed.findings)
    for proof in (proof for finding in cards["found"] for proof in finding["evidence"] if shell):
        proof["command"] = f"etplus diff {shell} --full"
    return _diff_page(changed, difference, more, cards)


def job_diff_html(found: JobDifference) -> bytes:
    """Return the page that compares two jobs. The same traces give identical bytes."""
    return _diff_page(found, found.to_dict(), {"iteration_list": {"a": [], "b": []}, "paths_left_out": 0}, None)


def _diff_page(
    found: Difference, difference: dict[str, Any], more: dict[str, Any], cards: dict[str, Any] | None
) -> bytes:
    """Return the page that compares two traces or two jobs. Long tables are cut.

    Args:
        more: keys that are added to `difference` or replace keys in it.
        cards: the findings; None if the page has none."""
    name = f"{PurePath(found.a).name} → {PurePath(found.b).name}"
    cut = {key: difference[key][:_DIFF_ROWS] for key in ("ops", "kernels", "host_ops") if key in difference}
    left = {key: max(len(difference[key]) - _DIFF_ROWS, 0) for key in (*cut, "lines")}
    shown = {
        "title": name,
        "version": __version__,
        "columns": page_columns(),
        "findings": cards,
        "difference": difference | cut | {"left_out": left} | more,
        "ranks": [{"label": "", "analysis": {"devices": {}, "kernel_labels": {}}}],
    }
    return page(shown, f"{name} · etplus diff")


# The page of a large job shows this many ranks in detail.
SHOWN = 12
_ROWS = {"ranks": 20_000, "stragglers": 20_000}
# On the page of a large job, each table that `_ROWS` does not list has at most this many rows.
_OTHER_ROWS = 300


def ranks_html(
    analyses: Iterable[Analysis],
    count: int,
    title: str = "",
    devices: Sequence[Device] = (),
    *,
    shells: Sequence[str] = (),
    output: str | os.PathLike[str] = "",
) -> tuple[bytes, tuple[str, ...]]:
    """Return a page that shows details and findings of some ranks. Also return the checks that the job failed.

    Args:
        analyses: one analysis per rank. They are read one at a time, and kept only if the page needs them to find
            problems.
        count: number of ranks.
        devices: user-defined devices, see `Case`.
        shells: each trace's name in commands that run in the page's folder; by default, its relative path.
        output: path of the page.

    Raises:
        UsageError: the traces come from different jobs."""
    reports, facts, kept, replays = [], [], [], []
    for analysis in analyses:
        unchanged = unchanged_replay(analysis.trace)
        chain = None if unchanged is None else critical_chain(analysis.trace, unchanged)
        reports.append(rank_report(analysis, count, chain))
        facts.append(job_trace(analysis.trace))
        if count <= MOST_RANKS:
            kept.append(analysis)
            replays += [unchanged] if unchanged is not None and analysis.trace.selection is None else []
    warnings = tuple(check_job(facts))
    folder = PurePath(output).parent
    named = shells or [_shell(analysis.trace, folder) for analysis in kept]
    cards = cards_of(kept, devices, replays, named) if kept else cards_of_many(count)
    return report_html(reports, title, warnings, cards), warnings


def _shell(trace: Trace, folder: PurePath) -> str:
    words = () if trace.selection is None else trace.selection.words
    return " ".join(map(shell_word, (*words, os.path.relpath(trace.file or "trace", folder))))


class RanksOfJob(Protocol):
    def summary(self, annotation: str | None = None) -> JobSummary: ...

    def select(self, ranks: Iterable[int]) -> RanksOfJob: ...

    def map(self, function: Callable[[Trace], Any]) -> Iterator[tuple[int, Any]]: ...


def large_job_html(
    job: RanksOfJob, title: str = "", *, devices: Sequence[Device] = (), **options: Any
) -> tuple[bytes, tuple[str, ...]]:
    """Return the page of a job with many ranks. Also return the checks that the job failed.

    Args:
        title: heading of the page. By default, it contains the number of ranks.
        devices, options: arguments of `analyze` for the ranks that the page shows in detail."""
    summary = job.summary(options.get("annotation"))
    detailed = job.select(ranks_to_show(summary, SHOWN)).map(partial(_in_detail, devices=devices, options=options))
    ranks = [{**report, "rank": rank} for rank, report in detailed]
    page = report_html(ranks, title, summary.notes, cards_of_many(len(summary.ranks)), _many_ranks(summary))
    return page, summary.notes


def _in_detail(trace: Trace, devices: Sequence[Device], options: Mapping[str, Any]) -> RankReport:
    analysis = analyze(trace, devices, **options)
    return rank_report(analysis, SHOWN, critical_chain(analysis.trace))


def _many_ranks(summary: JobSummary) -> dict[str, Any]:
    """Return data about all ranks of a job, in the page's format `ManyRanks`. Times are in ns."""
    far: dict[str, list[int]] = {}
    for row in summary.outliers:
        far.setdefault(row.quantity, []).append(row.rank)
    behind = {row.rank: row.behind_ns for row in summary.stragglers}
    late = {"title": "lateness behind the median rank", "outliers": summary.late}
    quantities = [late | {"values": [behind.get(row.rank) for row in summary.ranks]}] if behind else []
    for title, field in QUANTITIES.items():
        values = [getattr(row, field) for row in summary.ranks]
        if any(values):
            whole = [None if value is None else round(value) for value in values]
            quantities.append({"title": title, "values": whole, "outliers": far.get(title, [])})
    return {
        "numbers": [row.rank for row in summary.ranks],
        "quantities": quantities,
        "stragglers": summary.late,
        "outliers": sorted({row.rank for row in summary.outliers}),
        "tables": [_table(name, table) for name, table in summary.tables.items() if table],
    }


def _table(name: str, table: Table[Row]) -> dict[str, Any]:
    rows: Sequence[Any] = table
    if name == "collectives":
        rows = sorted(rows, key=lambda row: (-row.wait_ns, row.start_ns))
    most = _ROWS.get(name, _OTHER_ROWS)
    shown = table_of_columns(name, Table(table.kind, rows), most)
    title = shown["title"].removesuffix(", ms")  # The page chooses the units itself.
    return shown | {"title": title[:1].upper() + title[1:], "left_out": max(0, len(table) - most)}


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


_PARTS = files(__package__) / "page"
_SCRIPT = "page.js"
_STYLES = ("style.css", "drawings.css", "details.css", "access.css")
_LIBRARY = "echarts.min.js.gz"
_SUFFIXES = ("", ".html", ".htm")
_PLACE = re.compile(r"\{\{(\w+)\}\}")
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
# Maximum size of the data in bytes. It is V8's String::kMaxLength: browsers do not accept longer strings.
_LARGEST = 1 << 29
# Building a page needs at most this many times the memory of its data.
_COPIES = 3


def page(report: dict[str, Any], title: str) -> bytes:
    """Return the HTML page of a report. Equal reports give identical bytes.

    Names in traces are untrusted. The content security policy therefore forbids all downloads, and only the page's own
    two scripts may run, identified by their hashes.

    Raises:
        EtplusError: the page is too large for browsers or does not fit in memory."""
    library = gzip.decompress((_PARTS / _LIBRARY).read_bytes()).decode()
    script = _joined([_SCRIPT])
    hashes = [hashlib.sha256(text.encode()).digest() for text in (library, script)]
    allowed = " ".join(f"'sha256-{base64.b64encode(found).decode()}'" for found in hashes)
    data, remedy = embedded(report), "select a part with --steps or --window, or pass fewer files"
    if len(data) > _LARGEST:
        problem = f"the page would need {size_text(len(data))}, but browsers open at most {size_text(_LARGEST)}"
        raise EtplusError(f"{title}: {problem}; {remedy}")
    require_memory(title, len(data), "etplus builds the page in memory", times=_COPIES, remedy=remedy)
    parts: dict[str, str | bytes] = {
        "policy": f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:",
        "generator": f"etplus {__version__}",
        "title": html.escape(title),
        "style": _joined(_STYLES),
        "data": data,
        "library": library,
        "script": script,
    }
    pieces: list[str | bytes] = [*_PLACE.split((_PARTS / "page.html").read_text("utf-8"))]
    pieces[1::2] = [parts[str(name)] for name in pieces[1::2]]
    return b"".join(piece if isinstance(piece, bytes) else piece.encode() for piece in pieces)


def check_page_name(path: str | os.PathLike[str]) -> None:
    """Raise an error if the name has the suffix of another format. "-" and names without a suffix are accepted.

    Raises:
        UsageError: the suffix belongs to another format.

    Example:
        >>> check_page_name("report.html.gz")
    """
    suffix = PurePath(os.fspath(path).lower().removesuffix(".gz")).suffix
    if suffix not in _SUFFIXES:
        raise UsageError(f"{os.fspath(path)}: the report is an HTML page, not {suffix}; use a name that ends in .html")


def embedded(value: Any) -> bytes:
    """Return a value as JSON. Characters are escaped so that no string in it can end or change the script element."""
    data = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    for text, escape in _UNSAFE.items():
        data = data.replace(text.encode(), escape.encode())
    return data


def _joined(names: Sequence[str]) -> str:
    return "\n".join((_PARTS / name).read_text("utf-8") for name in names)
