"""Commands that call operators on this machine: their options, and `etplus replay --execute`."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence

import numpy as np

from ..planning.measure.execute import Execution, execute
from ..planning.measure.measured import Conditions, NotExecuted
from ..planning.measure.process import MAX_BYTES, check_device
from ..planning.measure.timing import Options
from ..timeline.network import parse_network
from ..trace.columns import IntColumn
from ..trace.errors import UsageError
from ..trace.steps import chosen_steps
from ..trace.text_tables import Cell, number, render, rewrap, share, terminal_width
from ..trace.trace import Trace
from .inputs import find_inputs, read_all
from .options import selected
from .outputs import one_or_all, write_tables
from .terminal import all_damage

_ROWS = 15
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGT]?)(?:i?B)?", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def add_execution(parser: argparse._ActionsContainer) -> None:
    """Add the options of commands that call operators."""
    add = parser.add_argument
    add("--device", default="cpu", metavar="DEVICE", help="cpu or cuda:N (default: cpu)")
    add("--threads", type=int, default=0, metavar="N", help="number of PyTorch's threads (default: its own choice)")
    add("--timeout", type=float, default=30.0, metavar="SECONDS", help="limit for one operator (default: 30)")
    add("--max-bytes", default=f"{MAX_BYTES >> 30}G", metavar="SIZE",
        help="skip operators whose tensors take more memory (default: %(default)s)")  # fmt: skip


def execution_options(arguments: argparse.Namespace) -> Options:
    """The options of `add_execution`.

    Raises:
        UsageError: a value that is not understood.
    """
    check_device(arguments.device)
    size = _SIZE.fullmatch(arguments.max_bytes.strip())
    if size is None:
        raise UsageError(f"--max-bytes {arguments.max_bytes!r}: give a size such as 512M or 4G")
    if not 0 <= arguments.threads <= 4096:
        raise UsageError(f"--threads {arguments.threads}: give a number from 1, or 0 for torch's own choice")
    if not 0 < arguments.timeout < math.inf:
        raise UsageError(f"--timeout {arguments.timeout:g}: give seconds above 0")
    max_bytes = min(int(float(size[1]) * _UNITS[size[2].upper()]), 1 << 50)
    return Options(threads=arguments.threads, timeout_s=arguments.timeout, max_bytes=max_bytes)


def run_execution(arguments: argparse.Namespace) -> int:
    """Call the operators of each trace in order and print; returns the exit status of `etplus replay --execute`."""
    options = execution_options(arguments)
    others = ("what_if", "rank_couple", "chrome")
    if given := [f"--{name.replace('_', '-')}" for name in others if getattr(arguments, name)]:
        raise UsageError(f"--execute cannot be combined with {given[0]}")
    network = None if arguments.network is None else parse_network(arguments.network)
    whole = read_all(find_inputs(arguments, outputs=[arguments.json, arguments.output]))
    traces = [selected(trace, arguments) for trace in whole]
    calls = [_of_steps(trace, arguments.steps) for trace in traces]
    each = zip(traces, calls, strict=True)
    done = [execute(trace, arguments.device, calls=among, options=options, network=network) for trace, among in each]
    plain = [found.to_dict() | {"damage": all_damage([trace])} for found, trace in zip(done, traces, strict=True)]
    text = "\n\n".join("\n".join(_lines(found, terminal_width())) for found in done)
    write_tables(arguments, text, one_or_all(plain))
    return 0


def _of_steps(trace: Trace, wanted: str | None) -> IntColumn | None:
    """The calls of the steps asked for, None for all."""
    if wanted is None:
        return None
    steps = trace.steps
    if wanted == "all":
        return np.flatnonzero(trace.step_of_call >= 0)
    return np.flatnonzero(np.isin(trace.step_of_call, chosen_steps(wanted, len(steps), steps.phases, trace.file)))


def _lines(done: Execution, width: int) -> Sequence[str]:
    rows = [_row(row.op, row.count, row.recorded_ns, row.executed_ns) for row in done.rows[:_ROWS]]
    rows.append(_row("all", sum(row.count for row in done.rows), done.recorded_ns, done.executed_ns))
    title = f"{done.file}: operators in their order {on_machine(done.conditions)}"
    lines = [render(title, ["operator", "count", "recorded µs", "here µs", "ratio"], rows, width)]
    if len(done.rows) > _ROWS:
        lines.append(f"and {len(done.rows) - _ROWS} more operators; all with --json")
    note = f"executed: {share(done.executed)} of the operators' self time; callees are in the times of their callers"
    if done.not_executed_ns:
        note += f"; what was not executed took {number(done.not_executed_ns / 1000)} µs when it was recorded"
    notes = [note]
    if (comm := done.communications).count:
        priced = "" if comm.predicted_ns is None else f", {number(comm.predicted_ns / 1000)} µs on the network"
        notes.append(f"{comm.count} collectives and messages were not called: {number(comm.recorded_ns / 1000)} µs "
                     f"when recorded{priced}")  # fmt: skip
    lines += rewrap(notes, width, "")
    if done.not_executed:
        lines += ["", *missing_table(done.not_executed, width)]
    return lines


def _row(op: str, count: int, recorded: int, here: int) -> list[Cell]:
    ratio = f"{here / recorded:.2f}" if recorded else None
    return [op, count, number(recorded / 1000), number(here / 1000), ratio]


def on_machine(where: Conditions) -> str:
    threads = "1 thread" if where.threads == 1 else f"{where.threads} threads"
    return f"on {where.device}, {threads}, torch {where.torch}"


def missing_table(missing: Sequence[NotExecuted], width: int) -> Sequence[str]:
    """What was not executed, and why."""
    rows: list[list[Cell]] = [[op.op, op.count, share(op.share), op.reason] for op in missing[:_ROWS]]
    lines = [render("not executed", ["operator", "count", "self time", "reason"], rows, width)]
    return [*lines, f"and {len(missing) - _ROWS} more"] if len(missing) > _ROWS else lines
