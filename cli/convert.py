"""`etplus convert`: ET+ to what simulators and viewers read, and back."""

from __future__ import annotations

import argparse
import re
import sys

from ..converters.astra_sim import HOSTS
from ..converters.convert import FORMATS, Conversion, convert
from ..schemas.errors import UsageError
from .damage import warn_of_damage

__all__ = ["prepare_parser", "run"]

_EPILOG = """\
formats (--to):
{formats}

examples:
  etplus convert et_plus.json trace.0.et
  etplus convert rank*.json.gz --to astra-sim --out job   # job.0.et, job.1.et, ...
  etplus convert rank0.json rank1.json trace.json --to chrome
  etplus convert et_plus.json step.svg --to dot --subtree 'ProfilerStep#3' --max-nodes 60
  etplus convert job.0.et job.0.json --to json
  etplus convert runs/*.json.gz --to npz --out dataset    # train/, valid/, test/

Inputs are ET+ files, of trace-link or of Chakra's linker, and Chakra files (.et).
All FILEs stand next to each other, before the options or after them.
Exit status: 0 written, 2 bad input or usage, nothing written.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.description = "Convert ET+ to what simulators and viewers read, and Chakra traces back."
    width = max(map(len, FORMATS))
    parser.epilog = _EPILOG.format(formats="\n".join(f"  {name:{width}}  {text}" for name, text in FORMATS.items()))
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="inputs, and without --out the output as the last one")
    add("--to", choices=tuple(FORMATS), default="chakra", metavar="FORMAT", help="see below (default: chakra)")
    add(
        "--out",
        metavar="PREFIX",
        help="all FILEs are inputs; chakra and astra-sim write PREFIX.<rank>.et, other formats the file PREFIX",
    )
    add(
        "--host",
        choices=HOSTS,
        default="fold",
        help="astra-sim: fold the host's time into delays between GPU nodes, or keep its ops (default: fold)",
    )
    add("--memory-nodes", action="store_true", help="chakra: copies and fills as MEM_LOAD and MEM_STORE nodes")
    add("--rank", type=int, metavar="N", help="take only this rank of the inputs")
    add("--job", metavar="FILE",
        help="job_report.json of etplus batch: aligns clocks, makes unmatched collectives computations")  # fmt: skip
    add("--split", choices=("model", "graph"), default="model",
        help="npz: what of a dataset stays together; files of a model are MODEL__VARIANT (default: model)")  # fmt: skip
    add("--config", action="append", default=[], metavar="NAME=NUMBER", help="npz: threads or batch of the job")
    add("--subtree", metavar="NODE", help="graphs: only this node (id or name) and what it calls and launches")
    add("--max-nodes", type=int, metavar="N", help="graphs: only the first N nodes")


def run(arguments: argparse.Namespace) -> int:
    """Convert, and say on standard error what was written; returns the exit status."""
    inputs, output = arguments.files, arguments.out
    if output is None:
        if len(inputs) < 2:
            raise UsageError("no output; give a file as the last argument, or --out PREFIX")
        inputs, output = inputs[:-1], inputs[-1]
    done = convert(
        inputs,
        output,
        to=arguments.to,
        as_prefix=arguments.out is not None,
        host=arguments.host,
        memory_nodes=arguments.memory_nodes,
        rank=arguments.rank,
        subtree=arguments.subtree,
        max_nodes=arguments.max_nodes,
        job=arguments.job,
        split=arguments.split,
        config=dict(map(_setting, arguments.config)),
    )
    warn_of_damage([done])
    print("\n".join(_lines(done)), file=sys.stderr)
    return 0


def _setting(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    if not re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", number, re.ASCII):
        raise UsageError(f"--config {text!r}: a name and a number, such as threads=2")
    return name, float(number)


def _lines(done: Conversion) -> list[str]:
    lines = [f"note    {note}" for note in done.notes]
    lines += [f"count   {count} {text}" for text, count in sorted(done.counts.items())]
    return [*lines, *(f"wrote   {file}" for file in done.files), f"nodes   {done.nodes}"]
