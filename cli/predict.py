"""`etplus predict`: the time of a linked trace from a fitted model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import orjson

from ..converters.convert import open_document
from ..predictor.end_to_end import Prediction, predict, predict_ranks
from ..predictor.model_file import read_model
from ..predictor.summary import shortened
from ..schemas.errors import UsageError
from ..schemas.files import open_output

__all__ = ["prepare_parser", "run"]

_ROWS = 15
_EPILOG = """\
examples:
  etplus predict rank2.json --model model.json
  etplus predict rank2.json rank3.json --rank-couple --model model.json
  etplus predict job.json --iterations 30-39 --engine overheads --model model.json
  etplus predict job.json --device 'H100 SXM' --model model.json

Make the model with `etplus fit`. Of the file's own times only the order of its
work is used, and what precedes the iterations asked for. The measured time
stands beside for comparison.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.description = "Predict the time of a linked trace with durations from a fitted model."
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="ET+ files, or Chakra files (.et) that etplus wrote")
    add("--model", required=True, metavar="MODEL", help="what `etplus fit` wrote")
    add("--engine", choices=("replay", "overheads"), default="replay",
        help="replay of the graph, or the walk over operators and their overheads (default: replay)")  # fmt: skip
    add("--iterations", metavar="A-B", help="predict only these iterations, from 0")
    add("--device", metavar="NAME", help="predict for another device, such as 'H100 SXM'")
    add("--rank-couple", action="store_true", help="the files are ranks of one job: collectives wait for the last one")
    add("--json", metavar="FILE", help="write the numbers as JSON; - for standard output, instead of the table")


def run(arguments: argparse.Namespace) -> int:
    """Predict and print; returns the exit status."""
    if arguments.rank_couple and arguments.iterations is not None:
        raise UsageError("--rank-couple takes whole files, no --iterations")
    model = read_model(arguments.model)
    documents = [open_document(file) for file in arguments.files]
    if arguments.rank_couple:
        done = [predict_ranks(documents, model, engine=arguments.engine, device=arguments.device)]
    else:
        done = [
            predict(document, model, engine=arguments.engine, iterations=arguments.iterations, device=arguments.device)
            for document in documents
        ]
    plain = [one.to_dict() for one in done]
    numbers = orjson.dumps(plain if len(plain) > 1 else plain[0], option=orjson.OPT_INDENT_2) + b"\n"
    if arguments.json == "-":
        print(numbers.decode(), end="")
        return 0
    if arguments.json is not None:
        with open_output(arguments.json) as out:
            out.write(numbers)
    print("\n\n".join("\n".join(_lines(one)) for one in done))
    return 0


def _lines(one: Prediction) -> Sequence[str]:
    lines = [
        shortened(one.file, 79),
        f"{'engine ' + one.engine:44}{'time':>14}{'':2}{'against measured':>18}",
        f"{'predicted':44}{_us(one.predicted_ns)}  {one.error:>+18.2%}",
        f"{'measured' + (' (other shapes or device)' if one.changed else ''):44}{_us(one.measured_ns)}",
    ]
    if one.unhindered is not None:
        predicted, measured = one.unhindered
        against = f"{predicted / measured - 1:>+18.2%}" if measured else ""
        lines += [
            f"{'  without waiting for other ranks, predicted':44}{_us(predicted)}  {against}",
            f"{'  the same, measured':44}{_us(measured)}",
        ]
    for name, ns in one.baselines.items():
        against = f"{ns / one.measured_ns - 1:>+18.2%}" if one.measured_ns else ""
        lines.append(f"{'  ' + name:44}{_us(ns)}  {against}")
    lines += ["", f"{'op':32}{'count':>6}{'predicted':>12}{'measured':>12}  by"]
    for row in one.rows[:_ROWS]:
        times = f"{row.predicted_ns / 1000:>12,.0f}{row.measured_ns / 1000:>12,.0f}"
        lines.append(f"{shortened(row.op, 31):32}{row.count:>6}{times}  {shortened(row.how[0], 15)}")
    if len(one.rows) > _ROWS:
        lines.append(f"and {len(one.rows) - _ROWS} more; all with --json")
    if one.unknown:
        lines.append(f"{one.unknown:.1%} of the timed edges have no counterpart in the model and count nothing")
    return [*lines, *one.notes]


def _us(ns: int) -> str:
    return f"{ns / 1000:>11,.1f} us"
