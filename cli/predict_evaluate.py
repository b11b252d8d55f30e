"""`etplus predict evaluate`: compare neural networks with simple baselines on held-out graphs."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

import numpy as np

from ..planning.learned.graph_baselines import baselines, log_times, quality, runs
from ..schemas.graph_arrays import SPLITS, read_dataset
from ..schemas.text.transaction import check_outputs
from ..trace.errors import UsageError
from ..trace.text_tables import Cell, number, render, share, terminal_width
from .options import MISSING_LEARN
from .outputs import add_tables, write_tables

COMMON = "folder model split full json"
EPILOG = """\
example:
  etplus predict evaluate dataset --model model.safetensors

Baselines are fitted on train/: mean of all graphs, and ridge regression. Columns:
geomean, median and mean of |predicted/measured - 1|; tau is Kendall's tau; pairs
is the share of pairs in the right order; top 1 and top 5 compare the best of the
K variants predicted fastest with the fastest variant of the model.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Compare neural networks with simple baselines on graphs outside the training set."
    add = parser.add_argument
    add("folder", metavar="DIR", help="dataset written by `etplus convert --to npz`")
    about = "model from `etplus predict train`; repeatable"
    add("--model", action="append", default=[], metavar="MODEL", help=about)
    add_tables(parser)
    add("--split", choices=SPLITS, default="test", help="graphs to predict (default: test)")


def run(arguments: argparse.Namespace) -> int:
    check_outputs([arguments.json, arguments.output], arguments.model)
    train, held = (list(read_dataset(arguments.folder, split)) for split in ("train", arguments.split))
    if not train or not held:
        raise UsageError(f"{arguments.folder}: no graphs in train/ or {arguments.split}/")
    predictions = baselines(train, held)
    if arguments.model:
        try:
            from ..planning.learned.training import predict_graphs, read_trained
        except ImportError as error:
            raise UsageError("etplus predict evaluate --model " + MISSING_LEARN.format(error=error)) from None
        for file in arguments.model:
            predictions[Path(file).stem] = predict_graphs(read_trained(file), held)
    measured, models = np.exp(log_times(held)), [graph.model for graph, _ in runs(held)]
    qualities = {name: quality(predicted, measured, models) for name, predicted in predictions.items()}
    title = f"{len(measured)} runs of {len(held)} graphs of {len(set(models))} models in {arguments.split}/"
    rows: list[list[Cell]] = []
    for name, found in qualities.items():
        errors, ranking = found.errors, (found.pairs, found.top1, found.top5)
        relative = map(share, (errors.geomean, errors.median, errors.mape))
        rows.append([name, *relative, f"{errors.bias:+.1%}", number(found.tau, 3), *map(share, ranking)])
    heads = ["model", "geomean", "median", "mean", "total", "tau", "pairs", "top 1", "top 5"]
    plain = {name: asdict(found) for name, found in qualities.items()}
    write_tables(arguments, render(title, heads, rows, terminal_width()), plain)
    return 0
