"""`etplus predict fit`: fit a cost model to linked traces, and measure its errors on held-out work."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from textwrap import wrap
from typing import Any

import msgspec
import numpy as np

from ..planning.costs.end_to_end import calibrated
from ..planning.costs.fitting import fit, write_model
from ..planning.costs.kernel_model import KernelModel
from ..planning.costs.registry import explain
from ..planning.measure.measured import read_measured
from ..schemas.text.transaction import check_outputs
from ..timeline.collective_times import Library
from ..timeline.iterations import outlier_lines
from ..timeline.network_file import fit_network, job_samples, library_of, read_calibration, write_networks
from ..trace.printable import shortened
from ..trace.selection import part_of, without_enclosing
from ..trace.text_tables import Cell, render, rewrap, share, terminal_width
from .inputs import ReadAnew, add_inputs, find_inputs, read_each
from .options import add_device_spec, add_selection, add_steps, options_of, own_devices, selected, selection_of
from .outputs import add_json, write_json
from .terminal import print_text, say

_CLOSE = 0.25
COMMON = "files output steps measured explain network json"
EPILOG = """\
examples:
  etplus predict fit rank0.json rank1.json -o model.json
  etplus predict fit job.json --steps 0-19 -o model.json.gz
  etplus predict fit traces/ -o model.json --explain layer_norm
  etplus predict fit --network calibration.json -o network.json

Each row of the table is an order of models with its errors on held-out GPU events:
the factor between prediction and measurement, and the error of the total time.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Fit a model that predicts durations to linked traces."
    add = parser.add_argument
    add_inputs(parser, "the model is fitted to all traces")
    add("-o", "--output", required=True, metavar="MODEL", help="JSON file for the model (gzipped if named *.gz)")
    add_steps(parser, "fit on")
    add_selection(parser, "fit on", steps=False)
    add("--keep-outliers", action="store_true", help="also use outlier iterations in the fit")
    add("--measured", metavar="MEASURED", help="file from `etplus measure` with times that replace recorded times")
    add_device_spec(parser)
    add_json(parser, "the errors on held-out traces")
    add("--explain", metavar="KERNEL", help="explain the predictions for kernels that have KERNEL in their names")
    about = (
        "fit a network instead, to a calibration (times of collectives by kind and size) or to the collectives of a job"
    )
    add("--network", action="store_true", help=about)


def run(arguments: argparse.Namespace) -> int:
    if arguments.network:
        return _fit_network(arguments)
    outputs, reads = [arguments.output, arguments.json], [arguments.device_spec, arguments.measured]
    inputs = find_inputs(arguments, outputs=outputs, reads=reads)
    own = own_devices(arguments)
    traces = ReadAnew(inputs, lambda trace: without_enclosing(selected(trace, arguments)))
    keep = arguments.keep_outliers
    model = fit(traces, iterations=arguments.steps, devices=own, keep_outliers=keep)
    model = calibrated(model, traces, arguments.steps, keep_outliers=keep)
    if arguments.measured is not None:
        model = msgspec.structs.replace(model, executed=read_measured(arguments.measured))
    write_model(model, arguments.output)
    for file, set_apart in zip(model.files, model.outliers, strict=True):
        for line in outlier_lines(set_apart):
            print(f"{shortened(file, 40)}: {line}", file=sys.stderr)
    numbers: dict[str, Any] = {}
    kernels = model.kernels
    if kernels is not None:
        numbers["held out"] = {
            "traces": kernels.held_out,
            "jobs": kernels.jobs,
            "order": list(kernels.order),
            "errors": kernels.errors,
        }
        if arguments.json != "-":
            print_text("\n".join(held_out_lines(kernels, terminal_width())))
    if arguments.explain is not None and arguments.json != "-":
        lines = explain(arguments.explain, kernels.utilization, model.gpu, model.records()) if kernels else []
        print_text("\n".join(rewrap(lines or ["the model was fitted without GPU events"], terminal_width(), " " * 8)))
    write_json(arguments.json, {"cross_validation": numbers, "calibration": model.calibration})
    sys.stdout.flush()
    say(f"calibration {model.calibration:.3f}\nwrote {arguments.output}")
    return 0


def held_out_lines(kernels: KernelModel, width: int = 80) -> list[str]:
    several = f"{kernels.held_out} traces, each predicted from other jobs ({kernels.jobs} jobs)"
    one_job = f"each of {kernels.held_out} traces from the others" if kernels.held_out else "fifths of one trace's work"
    rows: list[list[Cell]] = []
    chosen = ""
    for order, errors in kernels.errors.items():
        factors, totals = (np.array([pair[at] for pair in errors]) for at in (0, 1))
        middle, off = (share(float(np.median(values))) for values in (factors, np.abs(totals)))
        mark = "*" if order == " > ".join(kernels.order) else ""
        chosen = f"GPU kernels off by {middle}, totals by {off} (medians)" if mark else chosen
        close = f"{np.mean(np.abs(totals) <= _CLOSE):.0%}"
        rows.append([order, middle, share(float(factors.max())), off, close, mark])
    heads = ["models in order", "factor", "worst", "total off", "within 25%", "chosen"]
    if not rows:
        return []
    title = f"{chosen}; held out: {several if kernels.jobs > 1 else one_job}"
    return [*wrap(title, width), render("", heads, rows, width).strip("\n")]


def _fit_network(arguments: argparse.Namespace) -> int:
    """Fit one network per entry of a calibration, or one network to a job's collectives. Write and print the result."""
    outputs, files = [arguments.output, arguments.json], arguments.files
    library: Library = "gloo"  # for a calibration file
    samples = None
    if len(files) == 1 and Path(files[0]).is_file():
        check_outputs([of for of in outputs if of != "-"], files)
        samples = read_calibration(files[0])
    if samples is None:
        chosen = selection_of(arguments) | options_of(arguments, "steps")
        traces = [part_of(trace, **chosen) for trace in read_each(find_inputs(arguments, outputs=outputs))]
        samples, library = {"job": job_samples(traces)}, library_of(traces)
    fitted = {name: fit_network(of, library) for name, of in samples.items()}
    write_networks(fitted, arguments.output)
    write_json(arguments.json, {name: msgspec.to_builtins(of) for name, of in fitted.items()})
    if arguments.json != "-":
        rows: list[list[Cell]] = [
            [name, f"{of.bandwidth:g}", f"{of.latency_ns / 1000:,.0f}", kind.kind, f"{kind.over_bytes:,}",
             f"{kind.times:.2f}", f"{kind.low:.2f}", f"{kind.high:.2f}"]
            for name, of in fitted.items() for kind in of.kinds
        ]  # fmt: skip
        heads = ["network", "GB/s", "latency µs", "kind", "over bytes", "times", "least", "most"]
        print_text(render("measured communication time divided by the formula", heads, rows, terminal_width()))
    return 0
