"""`etplus augment`: FLOPs, bytes and shares of peaks written into the trace."""

from __future__ import annotations

import argparse
import sys

from ..analysis.devices import read_devices
from ..converters.augment import ARGUMENTS, augment
from ..schemas.transaction import check_outputs
from .damage import warn_of_damage

__all__ = ["prepare_parser", "run"]

_EPILOG = """\
examples:
  etplus augment kineto.json.gz augmented.json     # open it in Perfetto or chrome://tracing
  etplus augment et_plus.json.gz et_plus.augmented.json.gz

Into the args of kernels, copies and memsets, where they are known, are written:
  {arguments}
All else keeps its bytes, and augmenting twice changes nothing more.
Exit status: 0 written, 2 bad input or usage, nothing written.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.description = "Write FLOPs, bytes and shares of the device's peaks into a Kineto trace or ET+."
    parser.epilog = _EPILOG.format(arguments=", ".join(ARGUMENTS))
    add = parser.add_argument
    add("input", metavar="IN", help="ET+ or Kineto trace")
    add("output", metavar="OUT", help="the same with more arguments; gzipped if it ends in .gz")
    add("--device-spec", metavar="FILE", help="peaks of devices, in the form of the package's devices.json")


def run(arguments: argparse.Namespace) -> int:
    """Augment, and say on standard error what was written; returns the exit status."""
    own = read_devices(arguments.device_spec) if arguments.device_spec else ()
    check_outputs([arguments.output], [arguments.input])
    done = augment(arguments.input, arguments.output, own, progress=True)
    warn_of_damage([done])
    print(f"events  {done.events:,}: {done.with_flops:,} with FLOPs, {done.with_bytes:,} with bytes", file=sys.stderr)
    print(f"wrote   {arguments.output}", file=sys.stderr)
    return 0
