"""``etplus conformance``: hold the output of any linker against pairs whose links are known."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..converters.linker_suite import LinkerCase, Verdict, case_of, cases, read_output, run_case, write_pairs
from ..schemas.text.transaction import check_outputs, make_folder
from ..trace.errors import UsageError
from ..trace.text_tables import render, terminal_width
from .outputs import add_tables, one_or_all, write_tables
from .terminal import say

_EPILOG = """\
cases:
{cases}

examples:
  etplus conformance --pairs pairs                     # the pairs to link, and conformance.json: what is in them
  etplus conformance train_cpu.json gpu_shaped_from_cpu.0.et
  etplus conformance --case one_of_n linked.json

Outputs are ET+ (JSON) or Chakra traces (.et) that keep the ids of the ET's nodes; a name begins with that of its case.
What an output does not record is not tested.

Exit status: 0 all tests passed, 1 some failed, 2 bad usage or unreadable output.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Test the output of a linker against pairs whose links are known: operators and their times, device events and "
        "the operators that launched them, what waits for them, time between operators."
    )
    listed = "\n".join(f"  {case.name:{max(len(one.name) for one in cases())}}  {case.what}" for case in cases())
    parser.epilog = _EPILOG.format(cases=listed)
    add = parser.add_argument
    add("files", nargs="*", metavar="TOOL_OUTPUT", help="ET+ or .et that a linker wrote for a case")
    add("--case", metavar="NAME", help="the case of the outputs (default: by their names)")
    add("--pairs", metavar="FOLDER", help="write the pairs of all cases and their index to FOLDER, as input of linkers")
    add_tables(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the pairs, or test outputs and print the verdicts; returns the exit status."""
    if bool(arguments.files) == bool(arguments.pairs):
        raise UsageError("give what a linker wrote, or --pairs FOLDER for the pairs that it is to link")
    if arguments.pairs:
        written = write_pairs(make_folder(arguments.pairs))
        say("\n".join(f"wrote   {file}" for file in written))
        return 0
    check_outputs([arguments.json, arguments.output], arguments.files)
    results = [(file, case, run_case(case, read_output(file))) for file, case in _by_case(arguments)]
    text = "\n\n".join(_table(file, case, verdicts) for file, case, verdicts in results)
    numbers = [
        {"file": file, "case": case.name, "ok": _passed(verdicts), "tests": [verdict.to_dict() for verdict in verdicts]}
        for file, case, verdicts in results
    ]
    write_tables(arguments, text, one_or_all(numbers))
    return 0 if all(_passed(verdicts) for *_, verdicts in results) else 1


def _by_case(arguments: argparse.Namespace) -> list[tuple[str, LinkerCase]]:
    return [(file, case_of(file, arguments.case)) for file in arguments.files]


def _passed(verdicts: tuple[Verdict, ...]) -> bool:
    return not any(verdict.ok is False for verdict in verdicts)


def _table(file: str, case: LinkerCase, verdicts: tuple[Verdict, ...]) -> str:
    words = {True: "ok", False: "FAILED", None: "not recorded"}
    rows = [[verdict.test, f"{verdict.expected:,g}", f"{verdict.found:,g}", words[verdict.ok]] for verdict in verdicts]
    lines = [render(f"{Path(file).name}: {case.name}", ["test", "expected", "found", ""], rows, terminal_width())]
    lines += [f"{verdict.test}: {verdict.text}" for verdict in verdicts if verdict.ok is False]
    return "\n".join([*lines, "passed" if _passed(verdicts) else "failed"])
