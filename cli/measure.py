"""`etplus measure`: time the operators of traces on this machine."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence

import numpy as np

from ..planning.measure.measured import Measured, write_measured
from ..planning.measure.timing import Checkpoint, Options, measure
from ..planning.reshape.reshape import reshaped
from ..planning.reshape.shape_change import parse_changes
from ..schemas.text.transaction import check_outputs
from ..trace.errors import UsageError
from ..trace.text_tables import Cell, number, render, rewrap, share, shorten, terminal_width
from .execute import add_execution, execution_options, missing_table, on_machine
from .inputs import add_inputs, find_inputs, input_files, read_all
from .options import add_selection, selected
from .terminal import print_text

_ROWS, _LABEL, _MOST_ROUNDS = 15, 24, 1000
_EPILOG = """\
examples:
  etplus measure et_plus.json -o measured.json --threads 1
  etplus measure et_plus.json --set batch=128 -o measured.json
  etplus predict run et_plus.json --set batch=128 --model model.json --measured measured.json
  etplus measure et_plus.json -o conv.json --ops conv --budget 60

Needs PyTorch: pip install 'etplus[torch]'. Operators run in a process of their
own. Until the command is done, its times are in OUTPUT.checkpoint, from which
--resume continues.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Time each distinct operator of traces on this machine."
    parser.epilog = _EPILOG
    add = parser.add_argument
    add_inputs(parser, "identical calls are timed once")
    add("-o", "--output", required=True, metavar="OUTPUT", help="file to write, JSON; gzipped if it ends in .gz")
    add_selection(parser, "measure only")
    add_execution(parser)
    add("--ops", metavar="PATTERN", help="only operators whose names match a regular expression, such as 'mm|conv'")
    add(
        "--min-share",
        default="0",
        metavar="SHARE",
        help="skip operators with a smaller share of self time, such as 0.1%%",
    )
    add(
        "--budget",
        type=float,
        metavar="SECONDS",
        help="stop after this time; the operators that take longest come first",
    )
    add("--rounds", type=int, default=Options.rounds, metavar="N",
        help="passes over all calls, so that a slow spell of the machine affects few of the times of each "
        "(default: %(default)s)")  # fmt: skip
    add("--set", dest="changes", action="append", metavar="NAME=VALUE",
        help="also time the shapes of another batch size and so on, as in `etplus predict run`")  # fmt: skip
    add("--resume", action="store_true", help="continue an interrupted run from OUTPUT.checkpoint")


def run(arguments: argparse.Namespace) -> int:
    """Measure, write and print; returns the exit status."""
    options = _options(arguments)
    change = None if arguments.changes is None else parse_changes(arguments.changes)
    inputs = find_inputs(arguments)
    kept = f"{arguments.output}.checkpoint"
    check_outputs([arguments.output, kept], input_files(inputs))
    traces = [selected(trace, arguments) for trace in read_all(inputs)]
    others = [] if change is None else [reshaped(trace, change).trace for trace in traces]
    checkpoint = Checkpoint(kept, resume=arguments.resume)
    found = measure(traces, arguments.device, reshaped=others, options=options, checkpoint=checkpoint, progress=True)
    if not found.timings and not found.not_executed:
        raise UsageError(f"{', '.join(found.files)}: no operators with a schema; give a trace with its Execution Trace")
    write_measured(found, arguments.output)
    print_text("\n".join(measured_lines(found, terminal_width())))
    checkpoint.remove()
    return 0


def _options(arguments: argparse.Namespace) -> Options:
    common = execution_options(arguments)
    try:
        ops = None if arguments.ops is None else re.compile(arguments.ops)
    except re.error as error:
        raise UsageError(f"--ops {arguments.ops!r}: invalid regular expression ({error})") from None
    text = arguments.min_share
    try:
        least = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        least = -1.0
    if not 0 <= least <= 1:
        raise UsageError(f"--min-share {text!r}: give a share from 0 to 1, such as 0.1%")
    if arguments.budget is not None and not 0 < arguments.budget < math.inf:
        raise UsageError(f"--budget {arguments.budget:g}: give seconds above 0")
    if not 1 <= arguments.rounds <= _MOST_ROUNDS:
        raise UsageError(f"--rounds {arguments.rounds}: give a number from 1 to {_MOST_ROUNDS}")
    bounds = common.timeout_s, common.threads, common.max_bytes, arguments.rounds
    return Options(ops, least, arguments.budget, *bounds)


def measured_lines(found: Measured, width: int) -> Sequence[str]:
    """The tables of a measurement."""
    rows: list[list[Cell]] = [
        [timing.op, shorten(timing.shapes, _LABEL), timing.count,
         *(None if ns is None else number(ns / 1000) for ns in (timing.recorded_ns, timing.ns, timing.iqr_ns))]
        for timing in found.timings[:_ROWS]
    ]  # fmt: skip
    heads = ["operator", "shapes", "count", "recorded µs", "here µs", "IQR µs"]
    lines = [render(f"operators {on_machine(found.conditions)}", heads, rows, width)]
    if len(found.timings) > _ROWS:
        lines.append(f"and {len(found.timings) - _ROWS} more, all in the file")
    ratios = found.ratios()
    notes = [f"executed: {len(found.timings)} distinct calls, {share(found.executed)} of the operators' self time"]
    if found.outside:
        notes.append(
            f"{share(found.outside)} of all calls' self time is the autograd engine's, Python's and annotations'"
        )
    if ratios:
        cost = found.recorder
        notes.append(
            f"calls of over 50 µs: here {np.median(ratios):.2f} of the recorded self time (median of {len(ratios)}), "
            f"less what recording adds: {cost.call_ns / 1000:.1f} µs to a call, {cost.callee_ns / 1000:.1f} µs for "
            f"each call in it, {cost.tensor_ns / 1000:.1f} µs for each tensor"
        )
    lines += rewrap(notes, width, "")
    if found.not_executed:
        lines += ["", *missing_table(found.not_executed, width)]
    return lines
