"""`etplus reshard`: derive the traces of a recorded job in another parallel layout."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import orjson

from ..converters.conversion import convert
from ..planning.costs.fitting import read_model
from ..planning.measure.measured import read_measured
from ..planning.reshard.explain import explain
from ..planning.reshard.job import Resharded, reshard
from ..planning.reshard.layout import Layout, Routing, Schedule, TensorStyle, parse_layout
from ..schemas.text.files import open_output, read_struct
from ..schemas.text.gc_control import gc_disabled
from ..schemas.text.transaction import check_folder, check_outputs, make_folder
from ..timeline.network_file import parse_network
from ..trace.errors import UsageError
from ..trace.text_tables import in_short, number, render, rewrap, share, terminal_width
from .inputs import ReadAnew, add_inputs, find_inputs, input_files
from .options import add_network, add_ranks, add_selection, options_of, rank_list, selected
from .outputs import first_screen, write_json
from .terminal import print_text, say

_REPORT = "reshard.json"
_MOST = 64  # If neither --ranks nor --representative is given, at most this many ranks are written.
_NAMED = 4  # The text lists at most this many entries, but the JSON report lists all.
_DOUBTFUL = 3  # Exit status if something important could not be derived.
COMMON = "files output tp dp pp zero batch network memory explain to"
EPILOG = """\
examples:
  etplus reshard rank0.json --tp 2 --dp 64 --pp 4 --batch 2048 -o out/
  etplus reshard rank0.json --dp 8 --zero 3 --batch 64 --memory 80
  etplus reshard job/ --dp 1024 --representative -o out/
  etplus reshard rank0.json --dp 8 --zero 3 --fsdp-wrap Block --explain
  etplus reshard rank0.json --tp 4 --plan plan.json
  etplus reshard rank0.json --tp 4 --use plan.json --to astra-sim -o out/job

Writes rank_N.etplus.json.gz for each rank and reshard.json: layout, rank map,
step time, memory, and parts that could not be derived. Without --batch each
data-parallel rank keeps the recorded batch (weak scaling). The exit status is 3,
with reasons, if over 1% of the time or any communication could not be derived.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Derive the traces of a job in another parallel layout from the traces of a recorded job."
    add = parser.add_argument
    add_inputs(parser, "traces are the ranks of one job", ranks=False)
    add_ranks(parser, "--source-ranks", "read only these ranks of the recorded job, such as 0,3-7")
    add_selection(parser, "derive from")
    add("-o", "--output", metavar="FOLDER", help="folder for the traces, or a file prefix if --to is given")
    add("--json", metavar="FILE", help="write the report as JSON; - for standard output")
    about = "explain, per module, what is sharded and why (default: on standard output)"
    add("--explain", metavar="FILE", nargs="?", const="-", help=about)
    _add_layout(parser)
    group = parser.add_argument_group("ranks to write")
    which = group.add_mutually_exclusive_group()
    about = f"write these ranks, such as 0,1,60-63 (default: all, at most {_MOST})"
    which.add_argument("--ranks", type=rank_list, metavar="LIST", help=about)
    which.add_argument("--representative", action="store_true", help="write one rank for each group of identical ranks")
    parser.add_argument("--full", action="store_true", help="print every table")
    group.add_argument("--to", choices=("chakra", "astra-sim"), help="write Chakra traces instead of ET+")
    add = parser.add_argument_group("plan").add_argument
    add("--plan", metavar="FILE", help="write the symbolic plan as editable JSON; - for standard output")
    add("--use", metavar="FILE", help="use an edited plan")
    group = parser.add_argument_group("times and memory")
    add = group.add_argument
    add("--model", metavar="MODEL", help="predict kernels with this model from `etplus predict fit`")
    about = "output of `etplus measure` for a derived trace, with times that take precedence over scaled times"
    add("--measured", metavar="MEASURED", help=about)
    add_network(group, "network between ranks (default: 25 GB/s, 5us, ring)")
    add("--memory", type=float, metavar="GB", help="check if each rank fits into this much memory (GB of 10^9 bytes)")


def _add_layout(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("layout").add_argument
    for name, text in (("tp", "tensor-parallel ranks"), ("dp", "data-parallel ranks"), ("pp", "pipeline stages")):
        add(f"--{name}", type=int, default=1, metavar="N", help=f"{text} (default: 1)")
    add("--ep", type=int, default=1, metavar="N", help="expert-parallel ranks in each data-parallel group (default: 1)")
    add("--routing", choices=get_args(Routing), help="how tokens are distributed over experts (default: as recorded)")
    about = "shard optimizer state (1), also gradients (2), also parameters (3, FSDP) over dp (default: 0, DDP)"
    add("--zero", type=int, choices=range(4), default=0, help=about)
    add("--batch", type=int, metavar="GLOBAL", help="global batch size (default: keep the size per data-parallel rank)")
    about = "microbatches per step (default: as recorded; with a pipeline, at least 4 and one per stage)"
    add("--microbatches", type=int, metavar="N", help=about)
    add("--no-sync", action="store_true", help="reduce gradients only after the last microbatch, like DDP's no_sync")
    about = "with --zero 3, unit to gather: a module class, a minimum number of elements, or each part between "
    about += "two activations (default: as recorded, or each repeated block)"
    add("--fsdp-wrap", metavar="WHAT", help=about)
    for name, about in (
        ("--find-unused-parameters", "DDP: order buckets by parameter, and communicate a map of used parameters"),
        ("--broadcast-buffers", "DDP: broadcast buffers before forward"),
        ("--reshard-after-forward", "FSDP: gather units again in backward"),
    ):
        add(name, action=argparse.BooleanOptionalAction, default=None, help=f"{about} (default: as recorded)")
    add("--schedule", choices=get_args(Schedule), default="1f1b", help="pipeline schedule (default: 1f1b)")
    about = "reduce the input gradient per column-parallel layer (dtensor) or per block (megatron) (default: dtensor)"
    add("--tp-style", choices=get_args(TensorStyle), default="dtensor", help=about)
    about = "shard norms and residuals along the sequence; needs --tp-style megatron"
    add("--sequence-parallel", action="store_true", help=about)
    add("--bucket-cap-mb", type=int, metavar="MIB", help="DDP bucket size in MiB (default: 25; the first bucket is 1)")
    add("--from", dest="recorded", metavar="tp=N,dp=N,pp=N", help="layout of the recorded job (default: detected)")
    add("--step", type=int, metavar="N", help="number of the ProfilerStep to use (default: the median step)")


@gc_disabled()
def run(arguments: argparse.Namespace) -> int:
    sizes = options_of(
        arguments,
        "tp dp pp zero batch microbatches schedule tp_style sequence_parallel fsdp_wrap no_sync ep routing "
        "find_unused_parameters broadcast_buffers reshard_after_forward",
    )
    layout = Layout(**sizes, bucket_mib=arguments.bucket_cap_mb)
    recorded = None if arguments.recorded is None else parse_layout(arguments.recorded)
    network = None if arguments.network is None else parse_network(arguments.network)
    ranks = None if arguments.ranks is None else sorted(set(arguments.ranks))
    if ranks is not None and ranks[-1] >= layout.ranks:
        raise UsageError(f"--ranks {ranks[-1]}: the layout has ranks 0 to {layout.ranks - 1}")
    if arguments.to is not None and arguments.output is None:
        raise UsageError(f"--to {arguments.to}: pass the prefix of the files with -o")
    inputs = find_inputs(arguments)
    given = [*input_files(inputs), arguments.use, arguments.model, arguments.measured]
    if arguments.output is not None:
        check_folder(arguments.output) if arguments.to else make_folder(arguments.output)
    explained = None if arguments.explain == "-" else arguments.explain
    check_outputs([arguments.json, arguments.plan, explained], given)
    model = None if arguments.model is None else read_model(arguments.model)
    measured = None if arguments.measured is None else read_measured(arguments.measured)
    plan = None
    if arguments.use is not None:
        plan, _ = read_struct(arguments.use, object, "the plan is not JSON", "regenerate it with --plan")
    traces = ReadAnew(inputs, lambda trace: selected(trace, arguments))
    job = reshard(
        traces, layout, model=model, measured=measured, network=network, recorded=recorded, plan=plan,
        step=arguments.step,
    )  # fmt: skip
    if arguments.plan is not None:
        write_json(arguments.plan, job.plan)
    if ranks is None:
        every = layout.ranks <= _MOST and not arguments.representative
        ranks = list(range(layout.ranks)) if every else sorted(job.rank_map)
    report = {**job.to_dict(), "matched": job.matched()}
    if arguments.output is not None:
        report["written"] = _write(job, ranks, arguments.output, arguments.to, report, arguments.network)
    write_json(arguments.json, report)
    if "-" not in (arguments.json, arguments.plan):
        text = _text(report, arguments.memory, terminal_width(), str(job.network))
        print_text(text if arguments.full else first_screen(text))
    if arguments.explain is not None:
        text = explain(job.derivation)
        if arguments.explain == "-":
            print_text("\n" + text)
        else:
            with open_output(arguments.explain) as output:
                output.write(text.encode() + b"\n")
    for doubt in report["doubts"]:
        say(f"doubt   {doubt}")
    return _DOUBTFUL if report["doubts"] else 0


def _write(
    job: Resharded, ranks: Sequence[int], output: str, to: str | None, report: dict[str, Any],
    network: str | None = None,
) -> list[str]:  # fmt: skip
    if to is not None:
        traces = [job.trace(rank) for rank in ranks]
        renumber = to == "astra-sim" and list(ranks) != list(range(len(ranks)))
        more: dict[str, Any] = {"renumber_ranks": True} if renumber else {}
        if to == "astra-sim" and network is not None:
            more["network"] = network
        done = convert(traces, output, to=to, as_prefix=True, **more)
        for note in done.notes:
            say(f"note    {note}")
        return list(done.files)
    folder, files = Path(output), []
    for rank in ranks:
        files.append(str(folder / f"rank_{rank}.etplus.json.gz"))
        job.trace(rank).write(files[-1])
    with open_output(folder / _REPORT) as file:
        file.write(orjson.dumps(report, option=orjson.OPT_INDENT_2) + b"\n")
    return files


def _evidence(report: dict[str, Any]) -> list[str]:
    found, proof, lines = report["parameters"], report["proof"], [f"batch   {report['scaling']}"]
    how = {"optimizer": "changed by the optimizer", "shapes": "by shape", "use": "by use as weights"}
    buffers = f"; {found['buffers']:,} buffers ({found['buffers_found_by']})" if found["buffers"] else ""
    lines.append(
        f"model   {found['count']:,} parameters of {found['elements']:,} elements, {how[found['found_by']]}{buffers}"
    )
    what = f"{proof['operators']:,} operators and {proof['communications']:,} communications"
    if found_experts := report["experts"]:
        lines.append(_experts(found_experts, report["layout"]["ep"]))
    several = len(proof["ranks"]) > 1
    of = f"{len(proof['ranks'])} recorded ranks derived from themselves are" if several else (
        "the recorded layout derived from itself is"
    )  # fmt: skip
    lines.append(
        f"proof   {of} equal: {what}" if proof["equal"]
        else f"proof   {of} NOT equal: {proof['missing_share']:.1%} of the time of {what} is missing"
        + "".join(f"; {other}" for other in proof["other_communications"][:1])
    )  # fmt: skip
    lines += [
        f"proof   the derived trace of rank {one['rank']} differs from its recording in {one['operators']:,} operators "
        f"and {one['communications']:,} communications" for one in proof["different"][:_NAMED] if several
    ]  # fmt: skip
    for one in report["gradients"]:
        stage = f" of stage {one['stage']}" if len(report["gradients"]) > 1 else ""
        padding = f" and {one['padding']:,} of padding" if one["padding"] else ""
        sent = f"grads   {one['communicated']:,} elements communicated{stage}"
        lines.append(f"{sent}, {one['parameters']:,} of parameters{padding}")
    return [*lines, *(f"assumes {text}" for text in report["assumptions"])]


def _experts(found: dict[str, Any], ranks: int) -> str:
    tokens = "as many tokens for each" if found["tokens"] == "uniform" else "tokens as recorded, in proportion"
    where = f", {found['on_a_rank']:,} on each of {ranks:,} ranks" if ranks > 1 else " on each rank"
    return (
        f"experts {found['count']:,} in {found['layers']:,} layers, {found['top']:,} per token{where}; {tokens}"
        + (" (assumed)" if found["assumed"] else "")
    )  # fmt: skip


def _text(report: dict[str, Any], memory: float | None, width: int, network: str = "") -> str:
    layout = report["layout"]
    sizes = " x ".join(f"{name} {layout[name]}" for name in ("tp", "dp", "pp"))
    sizes += f", ep {layout['ep']}" if layout.get("ep", 1) > 1 else ""
    zero = f", ZeRO {layout['zero']}" if layout["zero"] else ""
    step = f"step {in_short(report['step_ns'])} predicted"
    lines = [f"{step} on {layout['ranks']:,} ranks ({sizes}{zero}), {len(report['rank_map']):,} of them different"]
    lines += _evidence(report)
    lines += [f"network {network}"] * bool(network)
    if "sources" in report:
        sources = ", ".join(f"{share(part)} {source}" for source, part in report["sources"].items() if part)
        lines.append(f"time    {sources} (CPU operators)")
    if "matched" in report:
        lines.append(f"matched {report['matched']:,} collectives and messages of these")
    if "written" in report:
        lines.append(f"wrote   {len(report['written']):,} files: {report['written'][0]} ...")
    parts = [*rewrap(lines, width, " " * 8)]
    names = ("parameters", "gradients", "optimizer", "activations", "buffers", "total")
    rows: list[list[str | None]] = []
    for stage, held in enumerate(report["memory"]):
        fits = [] if memory is None else ["yes" if held["total"] <= memory * 1e9 else "no"]
        rows.append([str(stage), *(number(held[name] / 1e6) for name in names), *fits])
    fits_in = [] if memory is None else [f"fits {memory:g} GB"]
    parts += ["", render("memory of a rank, MB", ["stage", *names, *fits_in], rows, width)]
    if report["not_derived"]:
        rows = [
            [part["what"], part["reason"], str(part["count"]), share(part["share"])]
            for part in report["not_derived"][:15]
        ]
        parts += ["", render("left as recorded", ["what", "reason", "count", "share"], rows, width)]
    return "\n".join(parts)
