"""`etplus record`: run a program without changing it, record some of its steps, and link each rank."""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path

from ..jobs.batch import link_many
from ..jobs.job_text import render
from ..recording import RecordingWindow, record_program
from ..schemas.text.transaction import make_folder
from ..trace.errors import EtplusError, UsageError
from ..trace.printable import printable
from .terminal import say

_DESCRIPTION = """\
Run a PyTorch program unchanged and record some steps with both PyTorch observers
(Execution Trace, and Kineto trace with Python stacks, shapes and modules). After
the program ends, link each rank and print a summary to standard error. Output and
exit status come from the program.
"""
COMMON = "program steps seconds output"
EPILOG = """\
A step is an optimizer step, after any number of backward passes. Without an
optimizer, a step is a forward pass of an outermost module. Steps are counted from
0. For programs without steps, --seconds records by time. Without --steps and
--seconds, seconds 10-15 are recorded if no step has run by then, and kept if
steps 10-12 never run.

examples:
  etplus record -- python train.py --epochs 1
  etplus record --steps 100-102 -- torchrun --nproc-per-node 2 train.py
  etplus record --seconds 20-25 -- python serve.py

Next, run `etplus analyze traces/etplus` or `etplus report traces/etplus`.

Exit status: the exit status of the program; 128 + N if signal N ended the
program; 2 if the program cannot be started.
"""
_WINDOW = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(?:-(\d{1,9}(?:\.\d{1,6})?))?", re.ASCII)


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = _DESCRIPTION
    parser.usage = f"{parser.prog} [--steps A-B | --seconds S] [-o DIR] [--] COMMAND ..."
    add = parser.add_argument
    window = parser.add_mutually_exclusive_group()
    window.add_argument("--steps", type=_steps, metavar="A-B", help="steps to record, counting from 1 (default: 10-12)")
    about = "record by time, in seconds after the import of PyTorch: 5 (the first five), or 20-25"
    window.add_argument("--seconds", type=_seconds, metavar="S", help=about)
    add("-o", "--output", default="traces", metavar="DIR", help="folder for the traces (default: traces)")
    add("program", nargs=argparse.REMAINDER, metavar="COMMAND", help="program to run and its arguments (best after --)")


def run(arguments: argparse.Namespace) -> int:
    words = arguments.program[1:] if arguments.program[:1] == ["--"] else arguments.program
    if not words:
        raise UsageError("no program given; pass the program after --, for example: etplus record -- python train.py")
    folder = make_folder(arguments.output)
    plan = arguments.seconds or arguments.steps or RecordingWindow(10, 12, otherwise=(10, 15))
    recorded = record_program(words, folder, plan)
    for note in recorded.notes:
        say(f"etplus record: {printable(note, ' ')}")
    if recorded.ranks:
        _link(folder, recorded.ranks)
        if not recorded.call_lines:
            say("note   Python stacks show the first line of each function; PyTorch 2.14 records calling lines")
    return recorded.status


def _link(folder: Path, ranks: tuple[int, ...]) -> None:
    """Link the ranks and print a summary. A failure prints only one line, because the exit status is the program's."""
    try:
        batch = link_many(folder, et="rank-*.et.json.gz", kineto="rank-*.kineto.json.gz", ranks=ranks)
    except EtplusError as error:
        say(f"etplus record: recorded, but not linked: {printable(str(error), ' ')}")
        return
    say(f"{render(batch.report, batch.output)}\nraw    {folder}/rank-N.et.json.gz, rank-N.kineto.json.gz")


def _steps(text: str) -> RecordingWindow:
    first, last = _numbers(text)
    if not (first.is_integer() and last.is_integer() and 1 <= first <= last):
        raise argparse.ArgumentTypeError(
            f"{text!r} must be steps after step 0, such as 10-12; recording begins at the end of a step, so step 0 "
            "cannot be recorded"
        )
    return RecordingWindow(int(first), int(last))


def _seconds(text: str) -> RecordingWindow:
    first, last = _numbers(text)
    if "-" not in text:
        first = 0.0
    if not first < last:
        raise argparse.ArgumentTypeError(f"{text!r} must be seconds, such as 5 or 20-25")
    return RecordingWindow(first, last, by_time=True)


def _numbers(text: str) -> tuple[float, float]:
    found = _WINDOW.fullmatch(text)
    return (float(found[1]), float(found[2] or found[1])) if found else (math.nan, math.nan)
