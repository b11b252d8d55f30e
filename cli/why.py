"""`etplus why`: list the problems in a trace with their cost, and estimate the gain from fixing them."""

from __future__ import annotations

import argparse
from typing import Any

from ..analysis.findings import Case, find_findings
from ..analysis.findings.builtin import detectors
from ..analysis.findings.find import Findings
from ..report.findings_text import recorded_text, render, render_full, render_one
from ..trace.errors import UsageError
from ..trace.printable import few
from ..trace.text_tables import terminal_width
from ..trace.trace import Trace
from .inputs import add_inputs, find_inputs, read_parts, shell_of
from .options import add_device_spec, add_own, add_selection, own_devices
from .outputs import add_tables_and_switch, one_or_all, write_tables

FAILED = 5  # Exit status if a finding matches --fail-on.

COMMON = "files steps show fail_on full json quiet"
EPILOG = """\
examples:
  etplus why trace.json
  etplus why trace.json --show 1         # the first problem with its evidence
  etplus why rank*.json.gz --json findings.json
  etplus why et_plus.json --steps 2-4
  etplus why trace.json --fail-on synchronizing-calls --fail-on late-start

The saving of a finding is the time by which its change shortens the replayed timeline
(see `etplus replay FILE --what-if CHANGE` and docs/reference/findings.md).

Exit status: 0 done; 2 bad input or usage; 5 a finding matches --fail-on.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "List problems in a trace, where they are, and the time that fixing them saves."
    add_inputs(parser, "traces from one job are examined together")
    parser.add_argument("--show", type=int, metavar="N", help="show problem N together with its evidence")
    add_tables_and_switch(parser)
    add_selection(parser, "examine only")
    add_own(parser)
    about = f"exit with status {FAILED} if there is a finding with this ID (any: any finding); repeatable"
    parser.add_argument("--fail-on", action="append", default=[], metavar="ID", help=about)
    add_device_spec(parser)


def run(arguments: argparse.Namespace) -> int:
    known = {*detectors(), "any"}
    for name in arguments.fail_on:
        if name not in known:
            raise UsageError(f"--fail-on {name[:60]}: unknown finding; choose from {', '.join(sorted(known))}")
    inputs = find_inputs(arguments, outputs=[arguments.json, arguments.output], reads=[arguments.device_spec])
    devices = own_devices(arguments)
    screens: list[str] = []
    full: list[str] = []
    numbers: list[Any] = []
    failed = False
    shells = [shell_of(given, arguments) for given in inputs]
    cases = _cases(list(zip(read_parts(arguments, inputs), shells, strict=True)))
    for case in cases:
        traces, names = [trace for trace, _ in case], [shell for _, shell in case]
        found = find_findings(Case(traces, devices=devices, shells=names))
        heading = f"{few([trace.file for trace in traces])}\n" if len(cases) > 1 else ""
        screens.append(heading + _screen(found, traces, names, arguments.show))
        full.append(heading + render_full(found, terminal_width()))
        head: dict[str, Any] = {"file": traces[0].file, "rank": traces[0].rank}
        if len(traces) > 1:
            head = {"files": [trace.file for trace in traces], "ranks": [trace.rank for trace in traces]}
        numbers.append(head | found.to_dict())
        failed |= any(finding.id in arguments.fail_on or "any" in arguments.fail_on for finding in found)
    write_tables(arguments, "\n\n".join(screens), one_or_all(numbers), lambda: "\n\n".join(full))
    return FAILED if failed else 0


def _screen(found: Findings, traces: list[Trace], shells: list[str], number: int | None) -> str:
    if number is None:
        return render(found, terminal_width(), shell=" ".join(shells), recorded=recorded_text(traces))
    if not 0 < number <= len(found.all):
        raise UsageError(f"--show {number}: there are {len(found.all)} findings")
    return render_one(found.all[number - 1], terminal_width(), number, found.makespan_ns)


def _cases(named: list[tuple[Trace, str]]) -> list[list[tuple[Trace, str]]]:
    """Group the traces: all ranks of a job together, and every other trace separately."""
    ranks = {trace.rank for trace, _ in named}
    worlds = {trace.world_size for trace, _ in named}
    if len(named) > 1 and None not in ranks and len(ranks) == len(named) and len(worlds) == 1:
        return [sorted(named, key=lambda pair: pair[0].rank or 0)]
    return [[pair] for pair in named]
