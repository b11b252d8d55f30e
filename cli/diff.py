"""`etplus diff`: two traces side by side."""

from __future__ import annotations

import argparse

import orjson

from ..analysis.devices import read_devices
from ..analysis.diff import diff_text, difference, json_of_difference
from ..analysis.summary import analyse
from ..analysis.tables import terminal_width
from ..converters.open import load
from .damage import warn_of_damage

__all__ = ["prepare_parser", "run"]

_EPILOG = """\
examples:
  etplus diff h100.json.gz mi300x.json.gz
  etplus diff before.json after.json --by-shape --top 30
  etplus diff before.json after.json --json > diff.json

A and B are ET+ or Kineto traces, of whatever devices. What only one of them has is shown with dashes. Where both have
iterations, means of an iteration are compared; else, and with --total, the whole traces.
Exit status: 0 compared, 2 bad input or usage.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.description = "Compare the device time of two traces, by operator and by kernel."
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("a", metavar="A", help="ET+ or Kineto trace")
    add("b", metavar="B", help="another one")
    add("--json", action="store_true", help="print everything as JSON instead of tables")
    add("--by-shape", action="store_true", help="match operators by name and shapes")
    add("--total", action="store_true", help="compare the whole traces, not an iteration of each on average")
    add("--iteration-annotation", metavar="NAME", help="annotations with NAME in theirs are the iterations")
    add("--top", type=int, default=15, metavar="N", help="rows of each printed table (default: 15)")
    add("--device-spec", metavar="FILE", help="peaks of devices, in the form of the package's devices.json")


def run(arguments: argparse.Namespace) -> int:
    """Compare and print; returns the exit status."""
    own = read_devices(arguments.device_spec) if arguments.device_spec else ()
    annotation = arguments.iteration_annotation
    a, b = (analyse(load(file, progress=True), own, annotation=annotation) for file in (arguments.a, arguments.b))
    warn_of_damage([a.trace, b.trace])
    found = difference(a, b, by_shape=arguments.by_shape, total=arguments.total)
    if arguments.json:
        print(orjson.dumps(json_of_difference(found), option=orjson.OPT_INDENT_2).decode())
    else:
        print(diff_text(found, terminal_width(), max(arguments.top, 1)))
    return 0
