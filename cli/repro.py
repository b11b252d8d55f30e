"""`etplus repro`: a script that calls an operator of a trace as recorded."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..planning.measure.reader import recorded_calls
from ..planning.measure.recorded_calls import RecordedCall
from ..planning.measure.run_program import op_script, outermost, program_of, sequence_script
from ..schemas.text.files import open_output
from ..trace.errors import UsageError
from ..trace.index import CallIndex
from ..trace.printable import shortened
from ..trace.trace import Trace
from .execute import add_execution, execution_options
from .inputs import add_inputs, find_inputs, read_all
from .options import add_selection, selected
from .terminal import say

_EPILOG = """\
examples:
  etplus repro et_plus.json --op aten::addmm -o repro.py
  etplus repro et_plus.json --op 1234 -o repro.py
  etplus repro et_plus.json --op 'nn.Module: Linear_0' --subtree -o repro.py
  python repro.py

Of several calls with one name, the longest is taken. The script needs only
PyTorch; it prints the operator's time beside the recorded one.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Write a standalone script that calls an operator with its recorded arguments."
    parser.epilog = _EPILOG
    add = parser.add_argument
    add_inputs(parser)
    add("--op", required=True, metavar="ID|NAME", help="id of a node, or name of an operator, annotation or module")
    add("--subtree", action="store_true", help="call all operators within it in order, passing tensors on")
    add("-o", "--output", required=True, metavar="OUTPUT", help="script to write")
    add_selection(parser, "search only")
    add_execution(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the script; returns the exit status."""
    options = execution_options(arguments)
    traces = [selected(trace, arguments) for trace in read_all(find_inputs(arguments, outputs=[arguments.output]))]
    if len(traces) != 1:
        raise UsageError(f"{len(traces)} traces are given; give the one that has the operator")
    trace = traces[0]
    found = dict(recorded_calls(trace))
    call = _chosen(trace, arguments.op, found, subtree=arguments.subtree)
    where = {"device": arguments.device, "threads": max(options.threads, 1)}
    source, name = Path(trace.file).name, Path(arguments.output).name
    took = (trace.calls.end - trace.calls.ts) / 1000
    if arguments.subtree:
        below = sorted({int(call), *trace.call_tree.below(call).tolist()})
        among = [CallIndex(at) for at in below]
        chosen = outermost(trace, found, among, lambda call: _takes(found, call) > options.max_bytes)
        if not chosen:
            reason = next((why for call in among if isinstance(why := found.get(call), str)), "")
            because = f" ({reason})" if reason else ""
            raise UsageError(f"{trace.file}: {arguments.op!r}: no operator in it can be called{because}")
        plan = program_of(chosen, options.max_bytes)
        title = f"{trace.name_at(trace.calls.name[call])}: its {len(chosen)} operators"
        text = sequence_script(plan, [float(took[made.index]) for made in chosen], title, source, name, **where)
        done = f"{len(chosen)} operators of {shortened(trace.name_at(trace.calls.name[call]), 40)}"
    else:
        recorded = found.get(call)
        if not isinstance(recorded, RecordedCall):
            raise UsageError(f"{trace.file}: {arguments.op!r} cannot be called: {recorded or _NO_OPERATOR}")
        if recorded.needed_bytes > options.max_bytes:
            raise UsageError(f"{trace.file}: {arguments.op!r} takes {recorded.needed_bytes:,} bytes, over --max-bytes")
        text, done = op_script(recorded, float(took[call]), source, name, **where), recorded.schema.op
    with open_output(arguments.output) as out:
        out.write(text.encode())
    say(f"wrote {arguments.output}: {done}")
    return 0


_NO_OPERATOR = "it is not an operator with a schema; give --subtree for those within it"


def _chosen(trace: Trace, wanted: str, found: Mapping[CallIndex, RecordedCall | str], *, subtree: bool) -> CallIndex:
    """The call of an id; of a name the longest one, of those that can be called if there are any.

    Raises:
        UsageError: there is none.
    """
    calls = trace.calls
    if wanted.isdecimal():
        at = np.flatnonzero(trace.id[calls.source] == int(wanted)) if len(wanted) < 19 else np.zeros(0, np.int64)
    else:
        names = [code for code, name in enumerate(trace.names) if name == wanted]
        at = np.flatnonzero(np.isin(calls.name, names))
    if not len(at):
        raise UsageError(f"{trace.file}: no call with the id or name {wanted!r}; `etplus analyze` lists operators")
    able = [call for call in at.tolist() if isinstance(found.get(CallIndex(call)), RecordedCall)]
    among = np.array(able if able and not subtree else at.tolist())
    return CallIndex(int(among[np.argmax((calls.end - calls.ts)[among])]))


def _takes(found: Mapping[CallIndex, RecordedCall | str], call: CallIndex) -> int:
    """Bytes of an operator's storages."""
    recorded = found[call]
    return recorded.storage_bytes if isinstance(recorded, RecordedCall) else 0
