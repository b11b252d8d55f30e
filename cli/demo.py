"""`etplus demo`: link and convert the bundled real pair, so that a new user sees the whole thing work in seconds."""

from __future__ import annotations

import argparse
from importlib.resources import as_file, files

from ..converters.convert import convert
from ..converters.registry import exporters
from ..linker import link
from ..schemas.transaction import make_folder
from .link import report_text

__all__ = ["prepare_parser", "run"]

_PAIR = "train_cpu"
_CONVERSIONS = {"chakra": "0.et", "chrome": "perfetto.json"}


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.description = "Link and convert the recorded training step that comes with etplus."
    parser.epilog = "example:\n  etplus demo --output demo-out"
    parser.add_argument("--output", default="demo-out", metavar="DIR", help="folder to write to (default: demo-out)")


def run(arguments: argparse.Namespace) -> int:
    """Link the bundled pair and print the report; returns the exit status."""
    folder = make_folder(arguments.output)
    bundle = files("etplus.fixtures") / "demo"
    target = folder / f"{_PAIR}.etplus.json"
    with as_file(bundle / f"{_PAIR}.et.json.gz") as et, as_file(bundle / f"{_PAIR}.kineto.json.gz") as kineto:
        result = link(et, kineto)
    result.write(target)
    print(report_text(result.report, str(target)))
    for form, suffix in _CONVERSIONS.items():
        output = folder / f"{_PAIR}.{suffix}"
        convert(result, output, to=form, as_prefix=False)
        print(f"wrote   {output}: {exporters()[form].summary}")
    return 0
