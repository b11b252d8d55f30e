"""`etplus replay`: replay traces as recorded or with what-if changes, or predict held-out iterations."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import asdict

from ..converters.chrome import write_chrome
from ..schemas.chakra.comm_groups import read_groups, with_groups
from ..timeline.constants import fit_constants
from ..timeline.graph_building import build_graph
from ..timeline.graph_replay import Replay, predicted_traces, relative_error, replay
from ..timeline.iterations import HeldOut, Outlier, find_iterations, outlier_lines, predict_iteration
from ..timeline.network_description import Network
from ..timeline.network_file import network_dict, parse_network
from ..timeline.rank_coupling import join_ranks
from ..timeline.replay_graph import ReplayGraph
from ..timeline.replay_ranks import replay_changed
from ..timeline.replay_summary import BaseError, Summary, summarize
from ..timeline.replay_text import render as render_summary
from ..timeline.replay_text import render_full
from ..timeline.whatif import GRAMMAR, WhatIf, parse_what_if
from ..trace.columns import IntColumn
from ..trace.errors import UsageError
from ..trace.outer import outer
from ..trace.printable import few, shortened
from ..trace.selection import without_enclosing
from ..trace.steps import chosen_steps
from ..trace.text_tables import number, render, rewrap, terminal_width
from ..trace.trace import Trace
from .inputs import TraceInput, add_inputs, find_inputs, read_each
from .options import add_groups, add_network, add_selection, selected
from .outputs import add_tables, one_or_all, write_tables
from .terminal import all_damage

COMMON = "files what_if network rank_couple steps chrome full json"
_DESCRIPTION = """\
Replay the timeline, show the critical path, and try what-if changes.

All work keeps its measured duration. Launch latency, stream gap and launch queue
limit are fitted once for the whole trace.
"""
_EPILOG = """\
what-ifs (--what-if; repeatable, applied in order):
{grammar}
examples:
  etplus replay et_plus.json
  etplus replay et_plus.json --what-if 'kernel:name~gemm*0.5' --chrome t.json
  etplus replay rank*.json.gz --rank-couple --what-if 'comm*2'
  etplus replay job/ --network bandwidth=25,latency=5us
  etplus replay et_plus.json --cross-validate

For a Chakra trace without start times, dependencies and streams define the
timeline. In a Kineto trace without an ET, the CPU calls are the operators.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    grammar = "".join(f"  {line}\n" for line in GRAMMAR.splitlines())
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG.format(grammar=grammar)
    add = parser.add_argument
    add_inputs(parser, "each trace is replayed separately, or with --rank-couple as a rank of one job")
    add_tables(parser)
    add("--rank-couple", action="store_true", help="replay ranks together, with collectives that wait for all ranks")
    add_network(parser, "estimate communication on another network; several traces are the ranks of one job")
    add_groups(parser)
    about = "predict the effect of a change such as 'kernel*0.5' (see --help-all)"
    add("--what-if", action="append", default=[], metavar="CHANGE", help=about)
    about = "predict each step from the other steps: all (default), numbers such as 3 or 2-5, or a phase such as decode"
    add("--cross-validate", nargs="?", const="all", metavar="STEPS", help=about)
    add_selection(parser, "replay only")
    add("--keep-outliers", action="store_true", help="also use outlier iterations")
    add("--force", action="store_true", help="show what-ifs even if the error of the unchanged replay exceeds 5%%")
    add("--chrome", metavar="FILE", help="write measured and predicted timelines for ui.perfetto.dev")


def run(arguments: argparse.Namespace) -> int:
    what_ifs = [parse_what_if(text) for text in arguments.what_if]
    network = None if arguments.network is None else parse_network(arguments.network)
    alone = arguments.cross_validate
    if alone is not None and (what_ifs or network or arguments.rank_couple or arguments.chrome is not None):
        raise UsageError("--cross-validate cannot be combined with --what-if, --network, --rank-couple or --chrome")
    inputs = find_inputs(arguments, outputs=[arguments.json, arguments.output, arguments.chrome])
    graphs = (build_graph(trace) for trace in _parts(inputs, arguments))
    if alone is not None:
        held = [_held_out(graph, alone, arguments.keep_outliers) for graph in graphs]
        numbers = [_held_dict(of, iteration) for of in held for iteration in of.iterations]
        write_tables(arguments, _held_text(held, terminal_width()), one_or_all(numbers))
        return 0
    coupled = arguments.rank_couple or (network is not None and len(inputs) > 1)
    asked = {} if network is None else {"network": network_dict(network)}
    timelines, texts, full = [], [], []
    plain: list[Any] = []
    for ranks in [list(graphs)] if coupled else ([graph] for graph in graphs):
        done, summary = _replayed(ranks, join_ranks(ranks) if coupled else ranks[0], what_ifs, network, arguments)
        plain.append(summary.to_dict() | asked | {"damage": all_damage(graph.trace for graph in ranks)})
        texts.append(render_summary(summary, terminal_width()))
        full.append(render_full(summary, terminal_width()))
        if arguments.chrome is not None:  # Without --chrome, each trace is dropped after use to save memory.
            timelines.append(done)
    if arguments.chrome is not None:
        traces, titles = _timelines(timelines)
        write_chrome(traces, arguments.chrome, titles)
    write_tables(arguments, "\n\n".join(texts), one_or_all(plain), lambda: "\n\n".join(full))
    return 0


def _replayed(
    ranks: Sequence[ReplayGraph], graph: ReplayGraph, what_ifs: Sequence[WhatIf], network: Network | None,
    arguments: argparse.Namespace,
) -> tuple[Replay, Summary]:  # fmt: skip
    constants = [fit_constants(rank) for rank in ranks]
    before = after = replay_changed(graph, constants, ())
    changes = [f"network {arguments.network}"] * (network is not None) + arguments.what_if
    if changes:
        BaseError.of(before).refuse(few([trace.file for trace in graph.traces]), force=arguments.force)
        after = replay_changed(graph, constants, what_ifs, network, partial(_bounds, graph.traces), before)
    facts: dict[str, Any] = {"span": after.answer_range, "untraced": after.untraced, "what_ifs": changes}
    return after, summarize(after, constants, before=before if changes else None, **facts)


def _bounds(traces: Sequence[Trace]) -> IntColumn:
    found: IntColumn = outer("analysis.kernel_peaks").row_bounds(traces)
    return found


def _parts(inputs: Sequence[TraceInput], arguments: argparse.Namespace) -> Iterator[Trace]:
    """Yield each trace's selected part, named after the trace's file."""
    traces = read_each(inputs)
    if arguments.groups is not None:
        groups = read_groups(arguments.groups)
        traces = (with_groups(trace, groups) for trace in traces)
    parts = (without_enclosing(selected(trace, arguments)) for trace in traces)
    return (part.with_(file=Path(part.file).name) for part in parts)


@dataclass(frozen=True)
class _HeldOut:
    file: str
    damage: tuple[str, ...]
    base: BaseError
    iterations: list[HeldOut]
    set_apart: tuple[Outlier, ...]


def _held_out(graph: ReplayGraph, which: str, keep_outliers: bool) -> _HeldOut:
    """Predict each iteration that `which` selects from all other iterations."""
    if not graph.times_recorded:
        problem = "no start times, so no step was measured; leave out --cross-validate"
        raise UsageError(f"{graph.trace.file}: {problem}")
    constants, found = fit_constants(graph), find_iterations(graph.trace)
    set_apart = () if keep_outliers else found.outliers
    if which == "all":
        chosen = [k for k in range(len(found)) if k not in {outlier.iteration for outlier in set_apart}]
    else:
        chosen = chosen_steps(which, len(found), found.phases, graph.trace.file).tolist()
    done = [predict_iteration(graph, k, constants, keep_outliers=keep_outliers) for k in chosen]
    return _HeldOut(graph.trace.file, graph.trace.damage, BaseError.of(replay(graph, constants)), done, set_apart)


def _held_dict(held: _HeldOut, case: HeldOut) -> dict[str, Any]:
    names = "label predicted_ns measured_ns error spread unknown"
    return {"file": held.file, "iteration": case.index, **{name: getattr(case, name) for name in names.split()}} | {
        "others_ns": list(case.others_ns),
        "outlier": None if case.outlier is None else case.outlier.reason,
        "set_apart": [asdict(outlier) for outlier in held.set_apart],
        "base_error": held.base.to_dict(),
        "damage": list(held.damage),
    }


def _held_text(files: Sequence[_HeldOut], width: int) -> str:
    held = [case for of_file in files for case in of_file.iterations]
    rows = [
        [*_held_row(f"{case.index} {case.label}", case.predicted_ns, case.measured_ns), f"{case.spread:.2%}"]
        for case in held
    ]
    if len(held) > 1:
        total = sum(case.predicted_ns for case in held), sum(case.measured_ns for case in held)
        rows.append([*_held_row("all together", *total), None])
    median = float(np.median([abs(case.error) for case in held]))
    heads = ["step", "predicted µs", "measured µs", "error", "spread"]
    lines = [f"median error {median:.2%}: {len(held)} step{'s' * (len(held) != 1)}, each predicted from the others"]
    for of_file in files:
        lines += [shortened(of_file.file, width)] if len(files) > 1 else []
        lines += [*of_file.base.to_lines(), *outlier_lines(of_file.set_apart)]
    lines += ["spread: (longest - shortest) / median, as measured"]
    return "\n".join([*rewrap(lines, width, " " * 11), render("", heads, rows, width).strip("\n")])


def _held_row(name: str, predicted_ns: int, measured_ns: int) -> list[str | None]:
    error = relative_error(predicted_ns, measured_ns)
    return [name, number(predicted_ns / 1000), number(measured_ns / 1000), f"{error:+.2%}"]


def _timelines(results: Sequence[Replay]) -> tuple[dict[int, Trace], dict[int, str]]:
    """Return measured and predicted timelines for each rank as traces, and their titles."""
    traces: dict[int, Trace] = {}
    titles: dict[int, str] = {}
    pairs = (pair for result in results for pair in zip(result.graph.traces, predicted_traces(result), strict=True))
    for place, (measured, predicted) in enumerate(pairs):
        name = f"rank {place if measured.rank is None else measured.rank}"
        for trace, what in ((measured, "measured"), (predicted, "predicted"))[0 if measured.times_recorded else 1 :]:
            titles[len(traces)] = f"{name} {what}"
            traces[len(traces)] = trace
    return traces, titles
