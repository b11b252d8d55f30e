"""`etplus predict run`: the time of a linked trace from a fitted model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

from ..planning.costs.end_to_end import Prediction, predict, predict_ranks
from ..planning.costs.model_file import read_model
from ..planning.costs.rank_job import Host
from ..planning.measure.measured import read_measured
from ..planning.reshape.reshape import Reshaped
from ..planning.reshape.shape_change import parse_changes
from ..timeline.iterations import outlier_lines
from ..trace.errors import UsageError
from ..trace.selection import without_enclosing
from ..trace.text_tables import number, render, rewrap, share, shorten, terminal_width
from .inputs import add_inputs, find_inputs, read_each, read_input
from .options import add_selection, add_steps, options_of, selected
from .outputs import add_tables, one_or_all, write_tables
from .terminal import all_damage, say

_ROWS = 15
_UNCERTAIN = 3
"""Exit status of a prediction that is given and marked, unless --force asked for it."""
_LEAST_UNLIKE = 0.005
_FILE = 40
COMMON = "files model changes gpu_model engine steps rank_couple full json"
_EPILOG = """\
examples:
  etplus predict run rank2.json --model model.json
  etplus predict run rank2.json rank3.json --rank-couple --model model.json
  etplus predict run job.json --steps 30-39 --engine overheads --model model.json
  etplus predict run job.json --gpu 'H100 SXM' --model model.json
  etplus predict run job.json --set batch=128 --model model.json
  etplus predict run job.json --set batch=128 --also other_batch.json --model model.json
  etplus predict run job.json --set seq=2048 --set dtype=bfloat16 --model model.json
  etplus predict run job.json --set batch=128 --model model.json --measured here.json

The model comes from `etplus predict fit` and prices GPU work; host times are those of the
file, or, with --host model, those of the model's host. The measured time is shown
for comparison. Exit status: 0 predicted; 3 a prediction is marked UNCERTAIN;
2 bad input, or refused, since an interval is wider than a factor of 2.
"""


class _Gpu(argparse.Action):
    """A GPU to predict for, by name; or by number one of those of an input, as every command takes it."""

    def __call__(self, _parser: Any, namespace: argparse.Namespace, values: Any, _option: Any = None) -> None:
        setattr(namespace, "gpu" if values.isdecimal() else self.dest, int(values) if values.isdecimal() else values)


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Predict how long a linked trace takes, with durations from a fitted model."
    parser.epilog = _EPILOG
    add = parser.add_argument
    add_inputs(parser, "each is predicted by itself, or with --rank-couple as the ranks of a job", gpu=False)
    add_tables(parser)
    add("--model", required=True, metavar="MODEL", help="output of `etplus predict fit`")
    about = "replay the graph, or sum operators and their overheads (default: replay)"
    add("--engine", choices=("replay", "overheads"), default="replay", help=about)
    add_steps(parser, "predict only")
    add_selection(parser, "predict only", steps=False)
    about = "predict for another GPU, such as 'H100 SXM'; a number chooses a GPU of an Nsight Systems export"
    add("--gpu", dest="gpu_model", action=_Gpu, metavar="NAME", help=about)
    about = "predict for another size of batch, seq or hidden (batch=128, batch=32:128), or dtype=bfloat16; repeatable"
    add("--set", dest="changes", action="append", metavar="NAME=VALUE", help=about)
    add("--also", metavar="FILE", help="with --set: a recording at another size, which shows what changes")
    add("--measured", metavar="MEASURED", help="output of `etplus measure`; its times take precedence over the model's")
    add("--keep-outliers", action="store_true", help="also predict chosen steps that are unlike the others")
    about = "CPU times: those of the trace, or of the host that the model was fitted on (default: trace)"
    add("--host", choices=get_args(Host), default="trace", help=about)
    add("--force", action="store_true", help="predict even if the interval or the replay error is too large")
    add("--rank-couple", action="store_true", help="the files are ranks of one job: collectives wait for the last one")


def run(arguments: argparse.Namespace) -> int:
    """Predict and print; returns the exit status."""
    if arguments.rank_couple and arguments.steps is not None:
        raise UsageError("--rank-couple predicts whole traces; leave --steps out")
    shape = None if arguments.changes is None else parse_changes(arguments.changes)
    if arguments.also is not None and (shape is None or not shape.sizes):
        raise UsageError("--also shows what changes with a size; give one, such as --set batch=128")
    reads = [arguments.also, arguments.model, arguments.measured]
    inputs = find_inputs(arguments, outputs=[arguments.json, arguments.output], reads=reads)
    model = read_model(arguments.model)
    if shape is not None and arguments.also is not None:
        shape = replace(shape, also=read_input(arguments.also))
    measured = None if arguments.measured is None else read_measured(arguments.measured)
    traces = (without_enclosing(selected(trace, arguments)) for trace in read_each(inputs))
    common = options_of(arguments, "engine force host")
    common |= {"device": arguments.gpu_model, "shape": shape, "measured": measured}
    if not arguments.rank_couple:
        common |= {"iterations": arguments.steps, "keep_outliers": arguments.keep_outliers}
    plain: list[Any] = []
    texts, doubts = [], []
    for ranks in [list(traces)] if arguments.rank_couple else ([trace] for trace in traces):
        found = predict_ranks(ranks, model, **common) if arguments.rank_couple else predict(ranks[0], model, **common)
        plain.append(found.to_dict() | {"damage": all_damage(ranks)})
        texts.append(_text(found, terminal_width()))
        if not found.reliable and not arguments.force:
            doubts.append(f"{shorten(found.file, _FILE)}: uncertain; weakest link: {found.weakest_link}")
    write_tables(arguments, "\n\n".join(texts), one_or_all(plain))
    for doubt in doubts:
        say(doubt)
    return _UNCERTAIN if doubts else 0


def _text(one: Prediction, width: int) -> str:
    """The tables of one prediction."""
    recorded, against = ("recorded", "to the recorded") if one.shapes else ("measured", "against measured")
    other = " (other shapes or device)" if one.changed else ""
    sizes = [f" at {text}" for text in _sizes(one.shapes[0])] if one.shapes else ["", other]
    rows = [
        [f"predicted{sizes[0]}", _us(one.predicted_ns), _against(one, one.predicted_ns)],
        ["80% between", _us(one.low_ns), _against(one, one.low_ns)],
        ["and", _us(one.high_ns), _against(one, one.high_ns)],
        [f"{recorded}{sizes[1]}", _us(one.measured_ns), None],
    ]
    if one.without_waiting is not None:
        predicted, alone = one.without_waiting
        change = f"{predicted / alone - 1:+.2%}" if alone else None
        rows.append(["predicted without waiting for other ranks", _us(predicted), change])
        rows.append(["measured without waiting for other ranks", _us(alone), None])
    rows += [[name, _us(ns), _against(one, ns)] for name, ns in one.baselines.items()]
    lines = [render(shorten(one.file, width), [f"engine {one.engine}", "time µs", against], rows, width)]
    steps = one.steps.to_lines() if one.steps is not None else []
    untraced = [] if one.untraced is None else one.untraced.to_lines()
    lines += rewrap(
        [*_doubt(one), *untraced, *one.base.to_lines(), *steps, *outlier_lines(one.set_apart)], width, " " * 11
    )
    ops = [
        [row.op, row.count, number(row.predicted_ns / 1000, 0), number(row.measured_ns / 1000, 0), row.how[0]]
        for row in one.rows[:_ROWS]
    ]
    lines += ["", render("operators", ["op", "count", "predicted µs", f"{recorded} µs", "by"], ops, width)]
    if len(one.rows) > _ROWS:
        lines.append(f"and {len(one.rows) - _ROWS} more; all with --json")
    notes = [f"{one.unknown:.1%} of the work has no counterpart in the model: as recorded"] if one.unknown else []
    if one.sources.get("measured here"):
        notes.append("time " + ", ".join(f"{share(part)} {source}" for source, part in one.sources.items()))
    if one.share_unfamiliar >= _LEAST_UNLIKE:
        notes.append(f"{one.share_unfamiliar:.0%} of the time on devices is unlike anything fitted on")
    lines += rewrap(notes, width, "")
    lines += [line for shapes in one.shapes for line in _shapes(shapes, width)]
    return "\n".join([*lines, *rewrap(one.notes, width, "")])


def _doubt(one: Prediction) -> list[str]:
    """What a prediction is marked with."""
    if one.weakest_link is None:
        return []
    much = "UNRELIABLE, forced: the interval is wider than a factor of 2" if one.forced else (
        "UNCERTAIN: the interval reaches over 25% from the prediction"
    )  # fmt: skip
    return [f"weakest    {one.weakest_link}", f"           {much}"]


def _against(one: Prediction, ns: int) -> str | None:
    if not one.measured_ns:
        return None
    return f"{ns / one.measured_ns:.3f}×" if one.shapes else f"{ns / one.measured_ns - 1:+.2%}"


def _shapes(shapes: Reshaped, width: int) -> Sequence[str]:
    """What was done with the shapes, and what could not be."""
    sizes = ", ".join(f"{size.dimension} {size.recorded_size} to {size.new_size}" for size in shapes.sizes)
    notes = [f"{sizes}: {shapes.changed} of {shapes.calls} operator calls have other shapes"] if sizes else []
    if shapes.dtype is not None:
        notes.append(
            f"dtype {shapes.dtype}: as measured with it, else scaled with bytes and peak rates (FLOPs on a CPU: as "
            "recorded); other kernels may be chosen, casts may be left out"
        )
    if not shapes.underived:
        return rewrap(notes, width, "")
    count, of_time = sum(op.count for op in shapes.underived), sum(op.share for op in shapes.underived)
    title = f"{count} calls, {of_time:.1%} of the time, keep shapes that could not be re-derived:"
    rows = [[op.op, op.count, op.first, share(op.share)] for op in shapes.underived[:_ROWS]]
    lines = [*rewrap(notes, width, ""), render(title, ["op", "count", "begins", "time"], rows, width)]
    if len(shapes.underived) > _ROWS:
        lines.append(f"and {len(shapes.underived) - _ROWS} more operators; all with --json")
    return lines


def _sizes(shapes: Reshaped) -> tuple[str, str]:
    """The new sizes, and those recorded."""
    new = [*(f"{size.dimension} {size.new_size}" for size in shapes.sizes), *([shapes.dtype] if shapes.dtype else [])]
    return ", ".join(new), ", ".join(
        f"{size.dimension} {size.recorded_size}" for size in shapes.sizes
    ) or "its own types"


def _us(ns: int) -> str | None:
    return number(ns / 1000)
