"""`etplus check`: check Chakra traces before a simulator runs them."""

from __future__ import annotations

import argparse
import os
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ..converters.preflight import check
from ..converters.preflight_findings import KINDS, Level, PreflightReport, level_of
from ..converters.row_dependencies import Coupling
from ..schemas.chakra.comm_groups import find_groups, prefix_of
from ..schemas.text.transaction import check_outputs
from ..trace.errors import UsageError
from ..trace.printable import few
from ..trace.text_tables import render, terminal_width
from .options import add_groups, add_network
from .outputs import add_tables_and_switch, write_tables

if TYPE_CHECKING:
    from ..converters.astra_run import SimulatedRank

COMMON = "files profile network run limit full json"
_LISTED = 5  # maximum number of examples per kind of problem, in output files and with --full
EPILOG = """\
examples:
  etplus check traces/job --profile astra-sim
  etplus check traces/job --profile astra-sim --network cluster.yml
  etplus check traces/job --run --network bandwidth=25,latency=5us

Exit status: 0 no error, 1 errors found, 2 wrong usage or no Chakra trace.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Check Chakra traces for problems that make simulators fail, hang or give wrong results."
    add = parser.add_argument
    add("files", nargs="*", metavar="PREFIX", help="prefix of <prefix>.<rank>.et[.gz] files, a folder, or single files")
    about = "rules to check against; astra-sim reports anything that stops ASTRA-sim as an error (default: chakra)"
    add("--profile", choices=("chakra", "astra-sim"), default="chakra", help=about)
    add_groups(parser)
    add_network(
        parser, "network to check against; with --run, repeat it for one row per network", action="append", default=[]
    )
    about = "run the traces in ASTRA-sim (binary: $ASTRA_SIM) and compare the times with the replay and the recording"
    add("--run", action="store_true", help=about)
    add("--limit", type=int, metavar="N", help="show N problems per kind (default: 1; 5 in files and with --full)")
    add_tables_and_switch(parser, _is_trace)


def run(args: argparse.Namespace) -> int:
    sources = [*args.first_files, *args.files]
    if not sources:
        raise UsageError("no trace given; pass the PREFIX of <prefix>.<rank>.et, or files")
    check_outputs([args.json, args.output], [*sources, args.groups])
    network = args.network[0] if args.network else None
    limit = _LISTED if args.limit is None else args.limit
    report = check(sources, profile=args.profile, groups=args.groups, limit=limit, network=network)
    lines, numbers = _lines(report, 1 if args.limit is None else limit), report.to_dict()
    if not args.run:
        write_tables(args, "\n".join(lines), numbers, lambda: "\n".join(_lines(report, limit)))
        return 0 if report.ok else 1
    from ..converters.astra_config import described_network  # This also imports the replay.
    from ..converters.astra_run import run_set

    prefix = prefix_of(report.files[0])
    runs = run_set(report.files, args.groups or find_groups(prefix), args.network or [described_network(prefix)])
    numbers["runs"] = [{"network": name, "ranks": [asdict(rank) for rank in ranks]} for name, ranks in runs.items()]
    write_tables(args, "\n".join([*lines, "", *_run_lines(runs)]), numbers)
    return 0 if report.ok and all(rank.is_complete for ranks in runs.values() for rank in ranks) else 1


def _run_lines(runs: Mapping[str, Sequence[SimulatedRank]]) -> list[str]:
    rows: list[list[str]] = []
    if len(runs) == 1:
        ((network, ranks),) = runs.items()
        head = ["rank", "nodes run", "simulated ms", "replayed ms", "recorded ms"]
        for rank in ranks:
            times = map(_ms, (rank.simulated, rank.replayed, rank.recorded))
            rows.append([str(rank.rank), f"{'?' if rank.ran is None else rank.ran} of {rank.nodes}", *times])
        table = render(f"ASTRA-sim on {network}", head, rows, terminal_width())
    else:
        head = ["network", "ranks done", "simulated ms", "replayed ms"]
        for network, ranks in runs.items():
            longest = (
                max((getattr(rank, key) or 0 for rank in ranks), default=None) for key in ("simulated", "replayed")
            )
            rows.append([network, f"{sum(rank.is_complete for rank in ranks)} of {len(ranks)}", *map(_ms, longest)])
        table = render("ASTRA-sim", head, rows, terminal_width())
    hung = [str(rank.rank) for ranks in runs.values() for rank in ranks if not rank.is_complete]
    return [table, *([f"failed: rank {few(hung)} did not run to the end"] if hung else [])]


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3f}"


def _is_trace(name: str) -> bool:
    prefix = Path(name)
    return os.path.lexists(name) or any(file.name.startswith(f"{prefix.name}.") for file in prefix.parent.glob("*.et*"))


def _lines(report: PreflightReport, limit: int = _LISTED) -> list[str]:
    sizes = {noun: getattr(report, f"{noun}s") for noun in ("rank", "node", "collective", "message")}
    counts = ", ".join(f"{count:,} {noun}{'s' * (count != 1)}" for noun, count in sizes.items())
    lines = _wrap(f"{report.verdict}: {counts}, for {report.profile}", "")
    if report.collectives:
        lines += _wrap(str(Coupling(report.collectives, report.by_computation, report.by_nothing)), "")
    levels: tuple[Level, ...] = ("error", "warning")
    for level in levels:
        for kind, count in report.counts.items():
            if level_of(kind, report.profile) != level:
                continue
            lines += _wrap(f"{level}: {kind} ({count:,}): {KINDS[kind].meaning}", "    ")
            listed = [problem for problem in report.problems if problem.kind == kind][:limit]
            for problem in listed:
                where = "" if problem.rank is None else f"rank {problem.rank}: "
                lines += _wrap(f"  - {where}{problem.text}", "    ")
            if count > len(listed):
                lines.append(f"  - and {count - len(listed):,} more")
    for text in report.skipped:
        lines += _wrap(f"not checked: {text}", "    ")
    return lines


def _wrap(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, terminal_width(), subsequent_indent=indent, break_on_hyphens=False)
