"""``etplus check``: pre-flight check of Chakra traces."""

from __future__ import annotations

import argparse
import os
import textwrap
from pathlib import Path

from ..converters.preflight import check
from ..converters.preflight_findings import KINDS, Level, PreflightReport, level_of
from ..converters.row_dependencies import Coupling
from ..schemas.text.transaction import check_outputs
from ..trace.errors import UsageError
from ..trace.text_tables import terminal_width
from .outputs import add_tables_and_switch, write_tables

_EPILOG = """\
examples:
  etplus check traces/job --profile astra-sim
  etplus check traces/job --json report.json

Exit status: 0 no error, 1 errors found, 2 wrong usage or not a Chakra trace.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Check Chakra traces for what makes readers and simulators fail, hang or mislead."
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("files", nargs="*", metavar="PREFIX",
        help="prefix of the files <prefix>.<rank>.et[.gz], or files (one alone is compared with no other)")  # fmt: skip
    add("--profile", choices=("chakra", "astra-sim"), default="chakra",
        help="astra-sim: what that simulator does not survive is an error, not a warning "
        "(default: chakra)")  # fmt: skip
    add("--groups", metavar="FILE", help="process groups (default: <prefix>.comm_groups.json if it is there)")
    add("--limit", type=int, default=5, metavar="N", help="problems listed of a kind (default: 5)")
    add_tables_and_switch(parser, _is_trace)


def run(args: argparse.Namespace) -> int:
    """Run the check and print the report; returns the exit status."""
    sources = [*args.first_files, *args.files]
    if not sources:
        raise UsageError("no trace was given; give the PREFIX of <prefix>.<rank>.et, or files")
    check_outputs([args.json, args.output], [*filter(os.path.lexists, sources), args.groups])
    report = check(sources, profile=args.profile, groups=args.groups, limit=args.limit)
    write_tables(args, "\n".join(_lines(report)), report.to_dict())
    return 0 if report.ok else 1


def _is_trace(name: str) -> bool:
    prefix = Path(name)
    return os.path.lexists(name) or any(file.name.startswith(f"{prefix.name}.") for file in prefix.parent.glob("*.et*"))


def _lines(report: PreflightReport) -> list[str]:
    sizes = {noun: getattr(report, f"{noun}s") for noun in ("rank", "node", "collective", "message")}
    counts = ", ".join(f"{count:,} {noun}{'' if count == 1 else 's'}" for noun, count in sizes.items())
    lines = _wrap(f"{counts}; checked for {report.profile}", "")
    if report.collectives:
        lines += _wrap(str(Coupling(report.collectives, report.by_computation, report.by_nothing)), "")
    levels: tuple[Level, ...] = ("error", "warning")
    for level in levels:
        for kind, count in report.counts.items():
            if level_of(kind, report.profile) != level:
                continue
            lines += _wrap(f"{level}: {kind} ({count:,}): {KINDS[kind].meaning}", "    ")
            listed = [problem for problem in report.problems if problem.kind == kind]
            for problem in listed:
                where = "" if problem.rank is None else f"rank {problem.rank}: "
                lines += _wrap(f"  - {where}{problem.text}", "    ")
            if count > len(listed):
                lines.append(f"  - and {count - len(listed):,} more")
    for text in report.skipped:
        lines += _wrap(f"not checked: {text}", "    ")
    return [*lines, report.verdict]


def _wrap(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, terminal_width(), subsequent_indent=indent, break_on_hyphens=False)
