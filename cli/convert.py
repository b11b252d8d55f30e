"""`etplus convert`: convert ET+ to the formats of simulators and viewers, and back."""

from __future__ import annotations

import argparse
import re
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from ..converters.augment import ARGUMENTS, augment
from ..converters.conversion import convert
from ..converters.exporter import Conversion
from ..converters.folder import InputPair
from ..converters.registry import exporter_for, exporters, names_a_file, suffixes
from ..schemas.nsys import is_nsys
from ..schemas.parquet.stored_folder import is_stored
from ..schemas.redaction import redact
from ..schemas.text.transaction import check_folder, check_outputs
from ..trace.errors import UsageError
from ..trace.printable import shell_word
from ..trace.text_tables import terminal_width
from .inputs import add_inputs, find_inputs, input_files, read_input
from .options import (
    add_device_spec,
    add_groups,
    add_network,
    add_selection,
    options_of,
    own_devices,
    selected,
    selection_of,
)
from .outputs import add_json, write_json
from .terminal import say, warn_of_damage

if TYPE_CHECKING:
    from ..converters.preflight_findings import Profile

COMMON = "files output to steps network augment redact json"
_EPILOG = """\
formats (--to), and the extensions that select them:
{formats}

examples:
  etplus convert et_plus.json -o trace.0.et
  etplus convert rank*.json.gz --to astra-sim -o job   # one file per rank
  etplus convert rank0.json rank1.json -o trace.perfetto.json
  etplus convert et_plus.json -o step.svg --subtree 'ProfilerStep#3'
  etplus convert runs/*.json.gz --to npz -o dataset
  etplus convert kineto.json.gz --redact names -o shared.json.gz
  etplus convert kineto.json.gz --augment -o augmented.json.gz

--augment copies a Kineto trace or ET+ and adds these arguments, if known, to
GPU events: {arguments}.
A Kineto trace also gets counters: launch queues, memory bandwidth, allocated
memory. All other bytes stay the same; augmenting a second time changes nothing.

ET+ may come from trace-link or from Chakra's linker.

Exit status: 0 written; 1 written, but `etplus check` finds errors in it; 2 bad input or usage, nothing written.
"""

_OPTIONS = (
    "memory_nodes network skew renumber_ranks replicate roofline schema split subtree max_nodes degrade groups "
    "without_times"
)

_FILES, _NOTES = 9, 5  # the screen lists at most this many files and this many notes
_YES: dict[str, Any] = {"action": "store_const", "const": True}
_NO: dict[str, Any] = {"action": "store_const", "const": False}
_SETS: dict[str, Profile] = {"chakra": "chakra", "astra-sim": "astra-sim"}


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Convert ET+ to the formats of simulators and viewers, and Chakra traces back to ET+."
    parser.epilog = _EPILOG.format(formats="\n".join(_formats()), arguments=", ".join(ARGUMENTS))
    add = parser.add_argument
    add_inputs(parser, "several traces are the ranks of one job", rank=False)
    about = "file to write; prefix or folder if the format has several files"
    add("-o", "--output", required=True, metavar="OUTPUT", help=about)
    add_json(parser, "a report of files and changes")
    add_selection(parser, "convert only")
    add("--full", action="store_true", help="list all files and notes")
    add("--to", choices=tuple(exporters()), metavar="FORMAT", help="a format listed below (default: by file extension)")
    add("--memory-nodes", **_YES, help="chakra: write memcpys and memsets as MEM_LOAD and MEM_STORE nodes")
    add("--no-skew", dest="skew", **_NO, help="astra-sim: start all ranks together (default: at their measured times)")
    add("--renumber-ranks", **_YES, help="astra-sim: renumber the ranks from 0 (ranks 4-7 become 0-3)")
    add("--replicate", type=int, metavar="N", help="astra-sim: simulate N ranks that all run the same trace")
    add("--roofline", type=float, metavar="GB/S", help="astra-sim: memory bandwidth for a roofline simulation")
    add_network(parser, "astra-sim: network of the job (default: bandwidth=25,latency=5us)")
    add("--rank", type=int, metavar="N", help="convert only this rank (with --et-file: the pair's rank)")
    add("--job", metavar="FILE", help="job_report.json that aligns clocks and lists unmatched collectives")
    add("--degrade", **_YES, help="turn communications missing on some ranks into computations (default: fail)")
    add_groups(parser)
    add("--without-times", **_YES, help="chakra: also accept unlinked Execution Traces (no durations)")
    add("--schema", choices=("1.1.1",), help="etplus: upgrade older nodes to this schema version")
    add("--split", choices=("model", "graph"), help="npz: split the dataset by model or by graph (default: model)")
    add("--config", action="append", metavar="NAME=NUMBER", help="npz: a setting of the job, threads=N or batch=N")
    add("--subtree", metavar="NODE", help="graphs: write only this node (ID or name) and its descendants")
    add("--max-nodes", type=int, metavar="N", help="graphs: write at most N nodes (default: all; 300 in pictures)")
    add("--augment", action="store_true", help="copy a Kineto trace or ET+, and add FLOPs, bytes and percent of peak")
    add_device_spec(parser)
    about = "copy a trace without unknown fields; names: also hash annotations, paths, hosts and threads"
    add("--redact", nargs="?", const="fields", metavar="names", help=about)
    about = "option of a format, see docs/reference/converters.md; repeatable"
    add("--option", action="append", default=[], metavar="NAME=VALUE", help=about)


def run(arguments: argparse.Namespace) -> int:
    if arguments.redact is not None:
        return _redact(arguments)
    output: str = arguments.output
    if arguments.augment:
        return _augment(arguments, output)
    inputs = find_inputs(arguments, rank_of_job=True)
    exporter = exporter_for(output, arguments.to, inputs)
    is_file = names_a_file(output, exporter.name)
    check_outputs([arguments.json, output if is_file and not is_stored(output) else None], input_files(inputs))
    if is_file or exporter.name in _SETS:
        check_folder(output)
    settings: dict[str, Any] = dict(map(_option, arguments.option))
    settings |= options_of(arguments, _OPTIONS)
    if arguments.config is not None:
        settings["config"] = dict(map(_setting, arguments.config))
    sources = [read_input(given) if isinstance(given, InputPair) else given for given in inputs]
    where = options_of(arguments, "rank job") | selection_of(arguments)
    done = convert(sources, output, to=exporter.name, as_prefix=not is_file, **where, **settings)
    warn_of_damage([done])
    plain = {"files": done.files, "nodes": done.nodes, "counts": dict(sorted(done.counts.items())), "notes": done.notes}
    report = None
    if exporter.name in _SETS:
        from ..converters.preflight import check_written

        report = check_written(done.files, profile=_SETS[exporter.name])
    if done.network is not None:
        plain["network"] = done.network
    if done.base_error is not None:
        plain["base_error"] = done.base_error
    checked = {} if report is None else {"check": {"ok": report.ok, "counts": report.counts}}
    write_json(arguments.json, {**plain, **checked})
    say("\n".join(_lines(done, full=arguments.full)))
    if report is None:
        return 0
    remedy = "" if report.ok else f"; etplus check {shell_word(output)} --profile {report.profile} lists them"
    say(f"check   {report.verdict}{remedy}")
    return 0 if report.ok else 1


def _redact(arguments: argparse.Namespace) -> int:
    # In `convert --redact FILE`, argparse parses FILE as the value of --redact.
    if arguments.redact not in ("fields", "names"):
        arguments.files, arguments.redact = [arguments.redact, *arguments.files], "fields"
    files, output = arguments.files, arguments.output
    if len(files) != 1 or arguments.to is not None:
        raise UsageError("--redact keeps the format of the file; convert the redacted copy in a second step")
    check_outputs([arguments.json, output], files)
    changed = redact(files[0], output, names=arguments.redact == "names", progress=True)
    write_json(arguments.json, {"files": [output], "changed": changed})
    say(f"changed {changed:,} records and header keys\nwrote   {output}")
    return 0


def _augment(arguments: argparse.Namespace, output: str) -> int:
    own = own_devices(arguments)
    (given,) = inputs = find_inputs(arguments, 1, outputs=[output, arguments.json], reads=[arguments.device_spec])
    has_no_text = not isinstance(given, str) or given.endswith((".et", ".et.gz")) or is_nsys(given) or is_stored(given)
    source = b"".join(read_input(given).chunks()) if has_no_text else input_files(inputs)[0]
    part = (lambda trace: selected(trace, arguments)) if selection_of(arguments) else None
    done = augment(source, output, own, part=part, progress=True)
    warn_of_damage([done])
    counts = ("events", "with_flops", "with_bytes", "counters")
    write_json(arguments.json, {name: getattr(done, name) for name in counts})
    counted = f"; {done.counters:,} counter values" if done.counters else ""
    say(f"events  {done.events:,}: {done.with_flops:,} with FLOPs, {done.with_bytes:,} with bytes{counted}")
    say(f"wrote   {output}")
    return 0


def _formats() -> list[str]:
    width = max(map(len, exporters()))
    lines = [
        line
        for name, exporter in exporters().items()
        for line in wrap(f"  {name:{width}}  {exporter.summary}", 80, subsequent_indent=" " * (width + 4))
    ]
    known: dict[str, list[str]] = {}
    for suffix, name in suffixes().items():
        plain = suffix.removesuffix(".gz")
        if plain == suffix or plain not in suffixes():
            known.setdefault(name, []).append(f"{suffix}[.gz]" if f"{suffix}.gz" in suffixes() else suffix)
    return [*lines, "", *(f"  {name:{width}}  {', '.join(those)}" for name, those in known.items())]


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--option {text!r}: expected NAME=VALUE, such as max_nodes=60")
    return name.replace("-", "_"), value


def _setting(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    if not re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", number, re.ASCII):
        raise UsageError(f"--config {text!r}: not NAME=NUMBER, such as threads=2")
    return name, float(number)


def _lines(done: Conversion, *, full: bool) -> list[str]:
    """Return the lines to print. Warnings come before other notes."""
    notes = [f"note    {note}" for note in sorted(done.notes, key=lambda note: not note.startswith("warning"))]
    notes += [f"note    {count:,} {text}" for text, count in sorted(done.counts.items())]
    more = 0 if full else len(notes) - _NOTES
    lines = [f"wrote   {file}" for file in done.files]
    if not full and len(lines) > _FILES:
        lines[_FILES - 1 : -1] = [f"        and {len(lines) - _FILES} more"]
    lines[0] += f" ({done.nodes:,} nodes)"
    layout: dict[str, Any] = {"subsequent_indent": " " * 8, "max_lines": None if full else 2, "placeholder": " …"}
    for note in notes if full else notes[:_NOTES]:
        lines += wrap(note, terminal_width(), **layout)
    return [*lines, f"        and {more} more: --full"] if more > 0 else lines
