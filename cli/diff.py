"""`etplus diff`: two traces side by side."""

from __future__ import annotations

import argparse

from ..analysis.summary import analyse
from ..findings.trace_changes import changes
from ..report.report_html import diff_html
from ..schemas.text.files import open_output
from ..trace.text_tables import terminal_width
from .inputs import add_inputs, find_inputs, read_inputs
from .options import (
    add_annotation,
    add_device_spec,
    add_own,
    add_selection,
    add_top,
    own_devices,
    selected,
    with_own,
)
from .outputs import add_tables_and_switch, is_page, write_json, write_tables
from .regressions import add_limit, report_regressions
from .terminal import say, warn_of_damage

_EPILOG = """\
examples:
  etplus diff h100.json.gz mi300x.json.gz
  etplus diff before.json after.json --by-shape --top 30
  etplus diff before.json after.json --json diff.json
  etplus diff before.json after.json -o diff.html       # a page: call tree, iterations, what got slower
  etplus diff main.json branch.json --fail-over 5%      # in continuous integration

The first trace is A, the second B; their devices may differ; a pair (--et-file, --kineto-file) is A. What became
slower comes first, and why, as far as the traces show. Dashes stand for what one of them lacks. Where both have
iterations, means per iteration are compared; otherwise, and with --total, the whole traces.

Exit status: 0 compared; 2 bad input or usage; 4 B takes longer than --fail-over allows.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Compare the device time of two traces, by source line, operator and kernel."
    parser.epilog = _EPILOG
    add = parser.add_argument
    add_inputs(parser, "two, A and B")
    add_tables_and_switch(parser)
    add("--by-shape", action="store_true", help="match operators by name and shapes")
    add("--total", action="store_true", help="compare whole traces, not means per iteration")
    add_selection(parser, "compare only")
    add_annotation(parser)
    add_own(parser)
    add_top(parser)
    add_limit(parser, "B", "A")
    add_device_spec(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare and print; returns the exit status."""
    inputs = find_inputs(arguments, 2, outputs=[arguments.json, arguments.output], reads=[arguments.device_spec])
    own = own_devices(arguments)
    parts = (selected(with_own(trace, arguments), arguments) for trace in read_inputs(inputs))
    a, b = (analyse(part, own, annotation=arguments.annotation) for part in parts)
    warn_of_damage([a.trace, b.trace])
    changed = changes(a, b, by_shape=arguments.by_shape, total=arguments.total)
    if is_page(arguments.output):
        write_json(arguments.json, changed.to_dict() if arguments.json else None)
        with open_output(arguments.output) as out:
            out.write(diff_html(changed, a, b))
        say(f"wrote   {arguments.output}")
    else:
        write_tables(arguments, changed.to_text(terminal_width(), arguments.top), changed.to_dict())
    return report_regressions(changed, arguments.fail_over)
