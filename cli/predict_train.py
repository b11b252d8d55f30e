"""`etplus predict train`: train a neural network that predicts the run times of graphs."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tqdm import tqdm

from ..schemas.graph_arrays import read_dataset
from ..schemas.text.transaction import check_outputs
from ..trace.errors import UsageError
from .options import MISSING_LEARN, options_of
from .outputs import add_json, write_json

COMMON = "folder output epochs"
EPILOG = """\
example:
  etplus convert runs/*.json.gz --to npz -o dataset
  etplus predict train dataset -o model.safetensors
  etplus predict evaluate dataset --model model.safetensors

DIR has train/ and valid/ with .npz graphs from etplus or TpuGraphs.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Train a neural network that predicts graph run times (needs the `learn` extra)."
    add = parser.add_argument
    add("folder", metavar="DIR", help="dataset written by `etplus convert --to npz`")
    add("-o", "--output", required=True, metavar="MODEL", help="network to write (.safetensors)")
    add_json(parser, "settings and error on valid/")
    add("--hidden", type=int, default=64, metavar="N", help="size of each node's hidden state (default: 64)")
    add("--epochs", type=int, metavar="N", help="maximum number of epochs (default: 150)")
    add("--seed", type=int, default=0, metavar="N", help="random seed for weights and graph order (default: 0)")


def run(arguments: argparse.Namespace) -> int:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # Threads that spin would slow down a shared machine.
    try:
        from ..planning.learned.training import EPOCHS, train, write_trained
    except ImportError as error:
        raise UsageError("etplus predict train " + MISSING_LEARN.format(error=error)) from None
    most = EPOCHS if arguments.epochs is None else arguments.epochs
    if arguments.hidden < 1 or most < 1:
        raise UsageError("--hidden and --epochs must be at least 1")
    check_outputs([arguments.output, arguments.json], Path(arguments.folder).glob("*/*.npz"))
    graphs, valid = (list(read_dataset(arguments.folder, split)) for split in ("train", "valid"))
    with tqdm(total=most, desc="epochs", leave=False, disable=None) as bar:

        def report(epoch: int, error: float) -> None:
            bar.update(epoch - bar.n)
            bar.set_postfix_str(f"validation {error:.3f}")

        trained = train(graphs, valid, report=report, **options_of(arguments, "hidden epochs seed"))
    write_trained(trained, arguments.output)
    write_json(arguments.json, {"graphs": len(graphs), "epochs": trained.epochs, "valid": trained.valid})
    quality = f"mean |log ratio| on valid/ {trained.valid:.3f}"
    print(f"{len(graphs)} graphs, {trained.epochs} epochs, {quality}", file=sys.stderr)
    print(f"wrote {arguments.output}", file=sys.stderr)
    return 0
