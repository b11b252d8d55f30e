"""Print replay errors for every trace next to the repository.

    python benchmarks/replay_table.py [--traces FOLDER]

The script reads every Kineto trace without its ET. If there is an ET and the trace has GPU events, the script also
reads both together. To compute the errors of the makespan and of start times, the script fits launch latency, gap and
queue limit to each trace and uses the measured CPU times. Another column has the share of unexplained waits in the
makespan. For held-out iterations, see `etplus.timeline.iterations`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from etplus.linker import link
from etplus.timeline.constants import fit_constants
from etplus.timeline.critical import resource_bounds
from etplus.timeline.graph_building import build_graph
from etplus.timeline.graph_replay import Replay, replay
from etplus.timeline.iterations import HeldOut, find_iterations, predict_iteration
from etplus.timeline.rank_coupling import join_ranks
from etplus.timeline.replay_graph import ReplayGraph
from etplus.timeline.replay_summary import Summary, summarize
from etplus.timeline.whatif import apply_what_ifs, parse_what_if
from etplus.trace.errors import ConvertError, UsageError
from etplus.trace.kinds import GPU

TRACES = Path(__file__).parents[2] / "shared" / "traces"
JOB, PAIRED = "dlrm.rank", " + ET"
COPIES = "cuspy"
"""This folder contains the same recordings in the format of another program."""
ALIKE = 0.1
WHAT_IFS = ("kernel*0.5", "cpu*0")
MAKESPAN, STARTS = 0.003, 0.005


def graphs(folder: Path) -> Iterator[tuple[str, ReplayGraph, list[HeldOut]]]:
    for kineto in sorted(folder.glob("*/*.json.gz")):
        name = kineto.name.removesuffix(".json.gz").removesuffix(".kineto")
        if kineto.name.endswith(".et.json.gz") or kineto.parent.name == "et-only":
            continue
        et = kineto.with_name(f"{name}.et.json.gz")
        whole = build_graph(link(None, kineto))
        held = [] if kineto.parent.name == COPIES else held_out(whole)
        yield f"{kineto.parent.name}/{name}", whole, held
        if et.exists() and kineto.parent.name == "gpu-pairs":
            yield f"{kineto.parent.name}/{name}{PAIRED}", build_graph(link(et, kineto)), []


def gpu_row(name: str, graph: ReplayGraph, summary: Summary) -> str:
    constants = fit_constants(graph)
    result = replay(graph, constants)
    changes = [_change(graph, result, text) for text in WHAT_IFS]
    return (
        f"| {name} | {summary.gpu_events:,} | {constants.launch_latency_ns / 1000:.1f} | "
        f"{constants.gap_ns / 1000:.1f} | {constants.queue_limit or '–'} | {summary.measured_ns / 1e6:,.2f} | "
        f"{100 * summary.error:+.3f} | {100 * summary.start_error:.3f} | {100 * summary.unexplained.share:.3f} | "
        f"{summary.bounds['busiest stream'] / summary.measured_ns:.3f} | {' | '.join(changes)} |"
    )


def _change(graph: ReplayGraph, base: Replay, text: str) -> str:
    constants = fit_constants(graph)
    try:
        after = replay(apply_what_ifs(graph, [parse_what_if(text)], constants), constants)
    except UsageError:  # The what-if does not apply to anything in the trace.
        return "–"
    return f"{after.makespan_ns / base.makespan_ns:.3f} ({max(resource_bounds(after).values()) / base.makespan_ns:.3f})"


def held_row(name: str, held: list[HeldOut]) -> str:
    """Return a row with the median error over all iterations and the error for the iteration of median length."""
    errors = sorted(abs(one.error) for one in held)
    typical = sorted(held, key=lambda one: one.measured_ns)[len(held) // 2]
    middle = float(np.median(errors))
    return (
        f"| {name.partition('/')[2]} | {len(held)} | {len(held[0].set_apart)} | {typical.measured_ns / 1e6:.2f} | "
        f"{100 * typical.error:+.2f} | {100 * middle:.2f} | {100 * held[0].spread:.2f} |"
    )


def held_out(graph: ReplayGraph) -> list[HeldOut]:
    try:
        iterations = find_iterations(graph.trace)
    except ConvertError:
        return []
    constants, apart = fit_constants(graph), {one.iteration for one in iterations.outliers}
    return [predict_iteration(graph, k, constants) for k in range(len(iterations)) if k not in apart]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--traces",
        type=Path,
        default=TRACES,
        metavar="FOLDER",
        help="folder that contains the traces (default: the one next to the repository)",
    )
    arguments = parser.parse_args()
    print("| trace | GPU events | latency µs | gap µs | Q | measured ms | makespan error % | mean start error % |"
          " unexplained % | busiest stream | kernel×0.5 (bound) | cpu×0 (bound) |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    ranks: list[ReplayGraph] = []
    held: dict[str, list[HeldOut]] = {}
    host_only: list[float] = []
    off: dict[str, bool] = {}
    for name, graph, predictions in graphs(arguments.traces):
        constants = fit_constants(graph)
        summary = summarize(replay(graph, constants), constants)
        if np.any(graph.trace.nodes.kind == GPU):
            print(gpu_row(name, graph, summary))
            share = summary.unexplained.share
            off[name] = abs(summary.error) > max(MAKESPAN, share) or summary.start_error > max(STARTS, share)
        else:
            host_only.append(abs(summary.error))
        if JOB in name and name.endswith(PAIRED):
            ranks.append(graph)
        if predictions:
            held[name] = predictions
    beyond = [name for name, of in off.items() if of]
    print(f"\n{len(off) - len(beyond)} of {len(off)} within {MAKESPAN:.1%} and {STARTS:.1%}, or within their "
          f"unexplained share{'; not within: ' + ', '.join(beyond) if beyond else ''}")  # fmt: skip
    if len(ranks) > 1:
        fitted = [fit_constants(graph) for graph in ranks]
        job = summarize(replay(join_ranks(ranks), fitted), fitted)
        print(f"{len(ranks)} coupled ranks of dlrm: makespan {job.measured_ns / 1e6:.2f} ms, error "
              f"{100 * job.error:+.3f}%, mean start error {100 * job.start_error:.3f}%")  # fmt: skip
    if host_only:
        print(f"{len(host_only)} traces without a device: largest makespan error {100 * max(host_only):.3f}%")
    print("\n| trace | iterations | outliers | median iteration ms | its error % | median error % | spread % |")
    print("|---|---|---|---|---|---|---|")
    for name, predictions in held.items():
        print(held_row(name, predictions))
    cpu = [of for name, of in held.items() if name.startswith("cpu-pairs")]
    if cpu:
        errors = [float(np.median([abs(one.error) for one in of])) for of in cpu]
        print(f"\n{len(cpu)} CPU traces: median error {100 * float(np.median(errors)):.2f}%, "
              f"median spread {100 * float(np.median([of[0].spread for of in cpu])):.2f}%")  # fmt: skip
    alike = [[abs(one.error) for one in of] for of in held.values() if of[0].spread < ALIKE]
    if alike:
        print(f"{len(alike)} traces with a spread under {100 * ALIKE:.0f}%: median error "
              f"{100 * float(np.median(np.concatenate(alike))):.2f}%")  # fmt: skip


if __name__ == "__main__":
    main()
