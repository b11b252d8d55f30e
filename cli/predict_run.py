"""`etplus predict run`: predict the time of a linked trace with a fitted model."""

from __future__ import annotations

import argparse
from functools import partial
from textwrap import wrap
from typing import Any, get_args

from ..planning.costs.end_to_end import Prediction, predict, predict_ranks
from ..planning.costs.fitting import read_model
from ..planning.costs.rank_job import Host
from ..planning.measure.measured import read_measured
from ..planning.reshape.reshape import Reshaped
from ..planning.reshape.shape_change import parse_changes
from ..timeline.iterations import outlier_lines
from ..trace.errors import UsageError
from ..trace.selection import without_enclosing
from ..trace.text_tables import in_short, number, render, rewrap, share, shorten, terminal_width
from .inputs import add_inputs, find_inputs, read_each
from .options import add_selection, add_steps, options_of, selected
from .outputs import add_tables, one_or_all, write_tables
from .terminal import all_damage, say

_ON_SCREEN = 8  # The screen shows at most this many operators.
_UNCERTAIN = 3  # Exit status if the prediction is uncertain. With --force, the exit status is 0 instead.
_LEAST_UNLIKE = 0.005
_FILE = 40
COMMON = "files model changes gpu_model steps rank_couple full json"
EPILOG = """\
examples:
  etplus predict run rank2.json --model model.json
  etplus predict run job.json --model model.json --set batch=128
  etplus predict run job.json --model model.json --gpu 'H100 SXM'
  etplus predict run rank2.json rank3.json --rank-couple --model model.json

The model from `etplus predict fit` estimates GPU times. CPU times come from the
trace; with --host model they come from the model and describe the machine of the
fitted traces. If recorded CPU time makes up most of the critical path, only the GPU
time is predicted, because faster kernels would not shorten the step.

Exit status: 0 predicted; 2 bad input, or an interval wider than a factor of 2;
3 a prediction is UNCERTAIN.
"""


class _Gpu(argparse.Action):
    """Parses the name of the GPU to predict for, or the number of a GPU in the input."""

    def __call__(self, _parser: Any, namespace: argparse.Namespace, values: Any, _option: Any = None) -> None:
        setattr(namespace, "gpu" if values.isdecimal() else self.dest, int(values) if values.isdecimal() else values)


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Predict the duration of a linked trace with a fitted model."
    add = parser.add_argument
    add_inputs(parser, "each trace is predicted separately, or with --rank-couple as a rank of one job", gpu=False)
    add_tables(parser)
    add("--model", required=True, metavar="MODEL", help="model from `etplus predict fit`")
    add_steps(parser, "predict only")
    add_selection(parser, "predict only", steps=False)
    about = "predict for another GPU, such as 'H100 SXM'; a number selects a GPU of an Nsight Systems export"
    add("--gpu", dest="gpu_model", action=_Gpu, metavar="NAME", help=about)
    about = "predict for another batch size or sequence length (batch=128, batch=32:128, seq=512); repeatable"
    add("--set", dest="changes", action="append", metavar="NAME=VALUE", help=about)
    add("--measured", metavar="MEASURED", help="file from `etplus measure` with times that override the model")
    add("--keep-outliers", action="store_true", help="also predict outliers among the selected steps")
    about = "source of CPU times: the trace, or the model (default: trace)"
    add("--host", choices=get_args(Host), default="trace", help=about)
    add("--force", action="store_true", help="predict even if the interval or the replay error is too large")
    add("--rank-couple", action="store_true", help="replay the files as ranks of one job that wait at collectives")


def run(arguments: argparse.Namespace) -> int:
    if arguments.rank_couple and arguments.steps is not None:
        raise UsageError("--rank-couple predicts whole traces; leave out --steps")
    shape = None if arguments.changes is None else parse_changes(arguments.changes)
    reads = [arguments.model, arguments.measured]
    inputs = find_inputs(arguments, outputs=[arguments.json, arguments.output], reads=reads)
    model = read_model(arguments.model)
    measured = None if arguments.measured is None else read_measured(arguments.measured)
    traces = (without_enclosing(selected(trace, arguments)) for trace in read_each(inputs))
    common = options_of(arguments, "force host")
    common |= {"device": arguments.gpu_model, "shape": shape, "measured": measured}
    if not arguments.rank_couple:
        common |= {"iterations": arguments.steps, "keep_outliers": arguments.keep_outliers}
    plain: list[Any] = []
    texts, full, doubts = [], [], []
    for ranks in [list(traces)] if arguments.rank_couple else ([trace] for trace in traces):
        found = predict_ranks(ranks, model, **common) if arguments.rank_couple else predict(ranks[0], model, **common)
        plain.append(found.to_dict() | {"damage": all_damage(ranks)})
        texts.append(_screen(found, terminal_width()))
        full.append(partial(_full, found, terminal_width()))
        if not found.reliable and not arguments.force:
            doubts.append(f"{shorten(found.file, _FILE)}: uncertain; weakest link: {found.weakest_link}")
    write_tables(arguments, "\n\n".join(texts), one_or_all(plain), lambda: "\n\n".join(text() for text in full))
    for doubt in doubts:
        say(doubt)
    return _UNCERTAIN if doubts else 0


def _screen(found: Prediction, width: int) -> str:
    lines = wrap(_answer(found), width)
    lines += _doubt(found)
    lines += [] if found.untraced is None else found.untraced.to_lines()
    lines += [*found.base.to_lines(), *outlier_lines(found.set_apart)]
    lines += _operators(found, width, _ON_SCREEN)
    notes = [*_notes(found), *(note for shapes in found.shapes for note in _shape_notes(shapes)), *found.notes]
    lines += [line for note in notes for line in wrap(f"note   {note}", width, subsequent_indent=" " * 7)[:2]]
    return "\n".join(rewrap(lines, width, " " * 11))


def _answer(found: Prediction) -> str:
    total = found.kernel_total
    if found.limited_by_host and total is not None:
        text = f"GPU time {in_short(total.predicted)} (80%: {in_short(total.low)} to {in_short(total.high)}), recorded "
        text += f"{in_short(total.measured)}; this step is limited by the host ({found.from_model:.0%} of the critical "
        return text + f"path is predicted); faster kernels would not shorten its {in_short(found.measured_ns)}"
    new, old = _sizes(found.shapes[0]) if found.shapes else ("", "")
    against = _against(found, found.predicted_ns)
    text = f"predicted {in_short(found.predicted_ns)}{f' at {new}' if new else ''}"
    text += f" (80%: {in_short(found.low_ns)} to {in_short(found.high_ns)})"
    text += f", recorded {in_short(found.measured_ns)}{f' at {old}' if old else ''}"
    return text + (f" ({against})" if against else "")


def _full(found: Prediction, width: int) -> str:
    recorded, against = ("recorded", "to the recorded") if found.shapes else ("measured", "against measured")
    rows: list[list[str | None]] = [
        [name, _us(ns), _against(found, ns)]
        for name, ns in (
            ("predicted", found.predicted_ns), ("80% from", found.low_ns), ("to", found.high_ns),
            *found.baselines.items(),
        )
    ]  # fmt: skip
    rows.insert(3, [recorded, _us(found.measured_ns), None])
    if found.limited_by_host:
        rows = rows[3:]
    if (total := found.kernel_total) is not None:
        named = ("predicted", total.predicted), ("80% from", total.low), ("to", total.high), (recorded, total.measured)
        rows += [[f"GPU time, {name}", _us(ns), _against(found, ns, total.measured)] for name, ns in named]
    rows.append(["critical path that the model predicts", f"{found.from_model:.0%}", None])
    if found.without_waiting is not None:
        predicted, alone = found.without_waiting
        change = f"{predicted / alone - 1:+.2%}" if alone else None
        rows.append(["predicted without waiting for other ranks", _us(predicted), change])
        rows.append(["measured without waiting for other ranks", _us(alone), None])
    lines = [*wrap(_answer(found), width), render("", ["", "time µs", against], rows, width)]
    steps = [] if found.steps is None else found.steps.to_lines()
    untraced = [] if found.untraced is None else found.untraced.to_lines()
    facts = [*_doubt(found), *untraced, *found.base.to_lines(), *steps, *outlier_lines(found.set_apart)]
    lines += [*rewrap(facts, width, " " * 11), "", *_operators(found, width, len(found.rows)), *_notes(found)]
    for shapes in found.shapes:
        lines += [*rewrap(_shape_notes(shapes), width, ""), *_underived(shapes, width)]
    return "\n".join([*lines, *rewrap(found.notes, width, "")])


def _operators(found: Prediction, width: int, count: int) -> list[str]:
    rows = [
        [row.op, row.count, number(row.predicted_ns / 1000, 0), number(row.measured_ns / 1000, 0), row.how[0]]
        for row in found.rows[:count]
    ]
    heads = ["operator", "count", "predicted µs", "recorded µs", "by"]
    more = [f"and {len(found.rows) - count} more with --full"] if len(found.rows) > count else []
    return [*render("", heads, rows, width).strip("\n").split("\n"), *more] if rows else []


def _notes(found: Prediction) -> list[str]:
    notes = ["the recorded time is for other shapes or another device"] if found.changed and not found.shapes else []
    if found.unknown:
        notes.append(f"{found.unknown:.1%} of the work has no counterpart in the model and keeps its recorded times")
    if found.sources.get("measured here"):
        notes.append("time " + ", ".join(f"{share(part)} {source}" for source, part in found.sources.items()))
    if found.share_unfamiliar >= _LEAST_UNLIKE:
        notes.append(f"{found.share_unfamiliar:.0%} of the GPU time is in kernels unlike those that the model knows")
    return notes


def _doubt(found: Prediction) -> list[str]:
    if found.weakest_link is None:
        return []
    much = "UNCERTAIN: the interval extends more than 25% from the prediction"
    if found.forced:
        much = "UNRELIABLE, forced: the interval is wider than a factor of 2"
    elif found.share_unfamiliar > 0.1:
        much = "UNCERTAIN: over 10% of the GPU time is unfamiliar to the model"
    return [f"weakest    {found.weakest_link}", f"           {much}"]


def _against(found: Prediction, ns: int, measured: int | None = None) -> str | None:
    measured = found.measured_ns if measured is None else measured
    if not measured:
        return None
    return f"{ns / measured:.3f}×" if found.shapes else f"{ns / measured - 1:+.2%}"


def _shape_notes(shapes: Reshaped) -> list[str]:
    sizes = ", ".join(f"{size.dimension} {size.recorded_size} to {size.new_size}" for size in shapes.sizes)
    notes = [f"{sizes}: {shapes.changed} of {shapes.calls} operator calls have new shapes"]
    if shapes.underived:
        count, of_time = sum(op.count for op in shapes.underived), sum(op.share for op in shapes.underived)
        notes.append(f"{count} calls, {of_time:.1%} of the time, keep their recorded shapes (no rule for new shapes)")
    return notes


def _underived(shapes: Reshaped, width: int) -> list[str]:
    rows = [[op.op, op.count, op.first, share(op.share)] for op in shapes.underived]
    return [render("operators that keep their shapes", ["op", "count", "begins", "time"], rows, width)] if rows else []


def _sizes(shapes: Reshaped) -> tuple[str, str]:
    new = ", ".join(f"{size.dimension} {size.new_size}" for size in shapes.sizes)
    return new, ", ".join(f"{size.dimension} {size.recorded_size}" for size in shapes.sizes)


def _us(ns: int) -> str | None:
    return number(ns / 1000)
