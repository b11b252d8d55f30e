"""`etplus measure`: time the operators of a trace on this machine, or write a script that calls one operator."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ..planning.measure.measured import Measured, NotExecuted, write_measured
from ..planning.measure.process import MAX_BYTES, check_device
from ..planning.measure.recorded_calls import RecordedCall, recorded_calls
from ..planning.measure.run_program import op_script
from ..planning.measure.timing import Options, measure
from ..planning.reshape.reshape import reshaped
from ..planning.reshape.shape_change import parse_changes
from ..schemas.text.files import open_output
from ..schemas.text.transaction import check_outputs
from ..trace.errors import UsageError
from ..trace.index import CallIndex
from ..trace.text_tables import Cell, number, render, rewrap, share, shorten, terminal_width
from ..trace.trace import Trace
from .inputs import add_inputs, find_inputs, input_files, read_each
from .options import add_selection, selected
from .outputs import first_screen
from .terminal import print_text, say

_ROWS, _LABEL, _MOST_ROUNDS = 10, 24, 1000
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGT]?)(?:i?B)?", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_NO_OPERATOR = "only operators with a schema can be called; `etplus analyze` lists operators"
COMMON = "files output device ops budget changes script"
EPILOG = """\
examples:
  etplus measure et_plus.json -o measured.json --threads 1
  etplus measure et_plus.json --set batch=128 -o measured.json
  etplus measure et_plus.json -o conv.json --ops conv --budget 60
  etplus measure et_plus.json --script aten::addmm -o addmm.py

Needs PyTorch: pip install 'etplus[torch]'. Operators run in a separate
process.

--script writes a script that calls one operator with its recorded arguments and
prints its time next to the recorded one. Writing it needs no PyTorch; running it
needs only PyTorch. If several calls match, the script runs the longest call.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Time each distinct operator in the traces on this machine."
    add = parser.add_argument
    add_inputs(parser, "identical calls in several traces are timed once")
    about = "JSON file to write, gzipped if its name ends in .gz; with --script, the script"
    add("-o", "--output", required=True, metavar="OUTPUT", help=about)
    add_selection(parser, "measure only")
    add("--full", action="store_true", help="print every table")
    add("--device", default="cpu", metavar="DEVICE", help="cpu or cuda:N (default: cpu)")
    add("--threads", type=int, default=0, metavar="N", help="number of PyTorch threads (default: PyTorch decides)")
    add("--timeout", type=float, default=30.0, metavar="SECONDS", help="time limit for each operator (default: 30)")
    about = "skip operators with tensors larger than this (default: %(default)s)"
    add("--max-bytes", default=f"{MAX_BYTES >> 30}G", metavar="SIZE", help=about)
    add("--ops", metavar="PATTERN", help="time only operators that match a regular expression, such as 'mm|conv'")
    add("--budget", type=float, metavar="SECONDS", help="stop after this time; the longest operators come first")
    about = "number of passes over all calls, to even out slow phases of the machine (default: %(default)s)"
    add("--rounds", type=int, default=Options.rounds, metavar="N", help=about)
    about = "also time the shapes for another batch size or sequence length, as in `etplus predict run`"
    add("--set", dest="changes", action="append", metavar="NAME=VALUE", help=about)
    about = "write a script for one operator instead of measuring; OP is an operator name or a node ID"
    add("--script", metavar="OP", help=about)


def run(arguments: argparse.Namespace) -> int:
    options = _options(arguments)
    if arguments.script is not None:
        return _write_script(arguments, options)
    change = None if arguments.changes is None else parse_changes(arguments.changes)
    inputs = find_inputs(arguments)
    check_outputs([arguments.output], input_files(inputs))
    traces = [selected(trace, arguments) for trace in read_each(inputs)]
    others = [] if change is None else [reshaped(trace, change).trace for trace in traces]
    found = measure(traces, arguments.device, reshaped=others, options=options, progress=True)
    if not found.timings and not found.not_executed:
        raise UsageError(f"{', '.join(found.files)}: no operators with a schema; link the Execution Trace first")
    write_measured(found, arguments.output)
    text = "\n".join(measured_lines(found, terminal_width()))
    print_text(text if arguments.full else first_screen(text))
    return 0


def _options(arguments: argparse.Namespace) -> Options:
    check_device(arguments.device)
    size = _SIZE.fullmatch(arguments.max_bytes.strip())
    if size is None:
        raise UsageError(f"--max-bytes {arguments.max_bytes!r}: give a size such as 512M or 4G")
    if not 0 <= arguments.threads <= 4096:
        raise UsageError(f"--threads {arguments.threads}: give 1 or more, or 0 to let PyTorch choose")
    if not 0 < arguments.timeout < math.inf:
        raise UsageError(f"--timeout {arguments.timeout:g}: give seconds above 0")
    max_bytes = min(int(float(size[1]) * _UNITS[size[2].upper()]), 1 << 50)
    try:
        ops = None if arguments.ops is None else re.compile(arguments.ops)
    except re.error as error:
        raise UsageError(f"--ops {arguments.ops!r}: invalid regular expression ({error})") from None
    if arguments.budget is not None and not 0 < arguments.budget < math.inf:
        raise UsageError(f"--budget {arguments.budget:g}: give seconds above 0")
    if not 1 <= arguments.rounds <= _MOST_ROUNDS:
        raise UsageError(f"--rounds {arguments.rounds}: give a number from 1 to {_MOST_ROUNDS}")
    return Options(ops, arguments.budget, arguments.timeout, arguments.threads, max_bytes, arguments.rounds)


def measured_lines(found: Measured, width: int) -> Sequence[str]:
    rows: list[list[Cell]] = []
    for timing in found.timings[:_ROWS]:
        times = (number(ns, 1, 1000) for ns in (timing.recorded_ns, timing.ns, timing.iqr_ns))
        rows.append([timing.op, shorten(timing.shapes, _LABEL), timing.count, *times])
    heads = ["operator", "shapes", "count", "recorded µs", "here µs", "IQR µs"]
    ratios = found.ratios()
    off = f"; median ratio to recorded time {np.median(ratios):.2f} ({len(ratios)} calls)" if ratios else ""
    where = found.conditions
    threads = "1 thread" if where.threads == 1 else f"{where.threads} threads"
    lines = [
        f"measured {len(found.timings)} distinct calls on {where.device}, {threads}, torch {where.torch}: "
        f"{share(found.executed)} of the operators' self time{off}"
    ]
    if found.outside:
        lines.append(f"{share(found.outside)} of all self time belongs to autograd, Python and annotations")
    if ratios:
        cost = found.recorder
        lines.append(
            f"recording adds {cost.call_ns / 1000:.1f} µs per call, {cost.callee_ns / 1000:.1f} µs per nested call and "
            f"{cost.tensor_ns / 1000:.1f} µs per tensor; the ratio covers calls over 50 µs, without this overhead"
        )
    lines = [*rewrap(lines, width, ""), render("", heads, rows, width).strip("\n")]
    if len(found.timings) > _ROWS:
        lines.append(f"and {len(found.timings) - _ROWS} more, all in the file")
    if found.not_executed:
        lines += ["", *_missing_table(found.not_executed, width)]
    return lines


def _missing_table(missing: Sequence[NotExecuted], width: int) -> Sequence[str]:
    rows: list[list[Cell]] = [[op.op, op.count, share(op.share), op.reason] for op in missing[:_ROWS]]
    lines = [render("not executed", ["operator", "count", "self time", "reason"], rows, width)]
    return [*lines, f"and {len(missing) - _ROWS} more"] if len(missing) > _ROWS else lines


def _write_script(arguments: argparse.Namespace, options: Options) -> int:
    traces = [selected(trace, arguments) for trace in read_each(find_inputs(arguments, outputs=[arguments.output]))]
    if len(traces) != 1:
        raise UsageError(f"{len(traces)} traces given; pass only the trace that has the operator")
    trace = traces[0]
    found = dict(recorded_calls(trace))
    call = _chosen(trace, arguments.script, found)
    recorded = found.get(call)
    if not isinstance(recorded, RecordedCall):
        raise UsageError(f"{trace.file}: {arguments.script!r} cannot be called: {recorded or _NO_OPERATOR}")
    if recorded.needed_bytes > options.max_bytes:
        raise UsageError(f"{trace.file}: {arguments.script!r} needs {recorded.needed_bytes:,} bytes, over --max-bytes")
    took = float((trace.calls.end - trace.calls.ts)[call]) / 1000
    source, name = Path(trace.file).name, Path(arguments.output).name
    text = op_script(recorded, took, source, name, device=arguments.device, threads=options.threads)
    with open_output(arguments.output) as out:
        out.write(text.encode())
    say(f"wrote {arguments.output}: {recorded.schema.op}")
    return 0


def _chosen(trace: Trace, wanted: str, found: Mapping[CallIndex, RecordedCall | str]) -> CallIndex:
    calls = trace.calls
    if wanted.isdecimal():
        at = np.flatnonzero(trace.nodes.id[calls.source] == int(wanted)) if len(wanted) < 19 else np.zeros(0, np.int64)
    else:
        names = [code for code, name in enumerate(trace.names) if name == wanted]
        at = np.flatnonzero(np.isin(calls.name, names))
    if not len(at):
        raise UsageError(f"{trace.file}: no call with the ID or name {wanted!r}; `etplus analyze` lists operators")
    able = [call for call in at.tolist() if isinstance(found.get(CallIndex(call)), RecordedCall)]
    among = np.array(able or at.tolist())
    return CallIndex(int(among[np.argmax((calls.end - calls.ts)[among])]))
