"""`etplus augment`: FLOPs, bytes and shares of peaks written into the trace."""

from __future__ import annotations

import argparse

from ..converters.augment import ARGUMENTS, augment
from ..schemas.nsys import is_nsys
from ..schemas.parquet import is_stored
from ..trace.errors import UsageError
from .inputs import add_inputs, find_inputs, input_files, read_input
from .options import add_device_spec, add_selection, own_devices, selected, selection_of
from .outputs import add_json, write_json
from .terminal import say, warn_of_damage

_EPILOG = """\
examples:
  etplus augment kineto.json.gz -o augmented.json     # open it in Perfetto or chrome://tracing
  etplus augment et_plus.json.gz -o et_plus.augmented.json.gz

Adds these to the args of kernels, copies and memsets, where they are known:
  {arguments}
A Kineto trace also gets counters: launch queues, memory bandwidth, allocated memory. All other bytes stay as they
are; augmenting again changes nothing. A pair or a Chakra trace becomes ET+.

Exit status: 0 written, 2 bad input or usage, nothing written.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Add FLOPs, bytes and shares of the device's peaks to a Kineto trace or ET+."
    parser.epilog = _EPILOG.format(arguments=", ".join(ARGUMENTS))
    add = parser.add_argument
    add_inputs(parser, "one")
    add("-o", "--output", metavar="OUT", help="the augmented trace; gzipped if it ends in .gz")
    add_json(parser, "the counts of events")
    add_selection(parser, "augment only")
    add_device_spec(parser)


def run(arguments: argparse.Namespace) -> int:
    """Augment, and say on standard error what was written; returns the exit status."""
    if arguments.output is None and len(arguments.files) > 1:  # `etplus augment IN OUT`
        arguments.output = arguments.files.pop()
    if arguments.output is None:
        raise UsageError("no output was given; give it with -o OUT")
    own = own_devices(arguments)
    outputs = [arguments.output, arguments.json]
    (one,) = inputs = find_inputs(arguments, 1, outputs=outputs, reads=[arguments.device_spec])
    as_etplus = (
        not isinstance(one, str) or one.endswith((".et", ".et.gz")) or is_nsys(one) or is_stored(one)
    )  # no text of its own
    source = b"".join(read_input(one).chunks()) if as_etplus else input_files(inputs)[0]
    part = (lambda trace: selected(trace, arguments)) if selection_of(arguments) else None
    done = augment(source, arguments.output, own, part=part, progress=True)
    warn_of_damage([done])
    counts = ("events", "with_flops", "with_bytes", "counters")
    write_json(arguments.json, {name: getattr(done, name) for name in counts})
    counted = f"; {done.counters:,} values of counters" if done.counters else ""
    found = f"{done.events:,}: {done.with_flops:,} with FLOPs, {done.with_bytes:,} with bytes{counted}"
    say(f"events  {found}\nwrote   {arguments.output}")
    return 0
