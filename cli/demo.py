"""`etplus demo`: link a bundled pair, show GPU kernels under their operators, leave a report and a simulator's file."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from importlib.resources import as_file, files
from itertools import groupby
from pathlib import Path

from ..linker import link
from ..schemas.text.transaction import make_folder
from ..trace.printable import shortened
from ..trace.views import DeviceEvent, Op
from .link import report_text

_PAIR = "gpu_shaped_from_cpu"
_RANK = 0
"""The pair is of one rank of two, and its file names do not say which."""
_SHOWN = 10
_WIDTH = 72


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Link the training step that comes with etplus, show the GPU kernels under their operators, and write ET+, an "
        "HTML report, a Chakra trace and a trace for Perfetto. The operators were recorded on a CPU; the GPU is "
        "synthetic, so no performance can be read from its times."
    )
    parser.epilog = "example:\n  etplus demo --output demo-out"
    parser.add_argument(
        "-o", "--output", default="demo-out", metavar="DIR", help="folder to write to (default: demo-out)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Link the bundled pair, print the report and what was launched, write the files; returns the exit status."""
    folder = make_folder(arguments.output)
    bundle = files("etplus.fixtures") / "pairs"
    with as_file(bundle / f"{_PAIR}.et.json.gz") as et, as_file(bundle / f"{_PAIR}.kineto.json.gz") as kineto:
        trace = link(et, kineto, rank=_RANK)
    etplus, chakra = folder / "train.etplus.json", folder / f"train.{_RANK}.et"
    page, timeline = folder / "report.html", folder / "train.perfetto.json"
    for path in (etplus, chakra, timeline):
        trace.save(path)
    trace.write_report(page, title="etplus demo: synthetic GPU")
    print(report_text(trace, str(etplus)))
    print("\nGPU work under the operators that launched it (synthetic GPU on a recorded CPU step):\n")
    events = trace.device_events
    print("\n".join(kernel_tree(events[:_SHOWN])))
    print(f"  … {len(events) - _SHOWN} more in the report\n")
    print("\n".join(_how_to_open(page, timeline, chakra, etplus)))
    return 0


def kernel_tree(events: Sequence[DeviceEvent]) -> Iterator[str]:
    """Lines of text: device events below the calls that launched them, callers first, a caller once.

    Args:
        events: in the order wanted; those whose launching call is unknown are left out.

    Example:
        >>> print("\\n".join(line[:70] for line in kernel_tree(trace.kernels.matching("gemm")[:1])))
          ProfilerStep#2
            ## forward ##
              aten::linear [4, 8] [8, 8] [8]
                aten::addmm [8] [4, 8] [8, 8]
                  | void cutlass::Kernel2<cutlass_80_simt_sgemm_32x128...
    """
    shown: list[int] = []
    for _, group in groupby(events, key=lambda event: event.op.index if event.op else -1):
        launched = list(group)
        path = _path(launched[0].op)
        same = next((i for i, call in enumerate(path) if shown[i : i + 1] != [call.index]), len(path))
        shown = [call.index for call in path]
        for depth in range(same, len(path)):
            shapes = " ".join(map(str, map(list, path[depth].shapes)))
            yield shortened("  " * (depth + 1) + f"{path[depth].name} {shapes}".rstrip(), _WIDTH)
        for event in launched if path else ():
            name = shortened("  " * (len(path) + 1) + f"| {event.name}", _WIDTH)
            yield f"{name:{_WIDTH}} {event.duration_ns / 1000:8,.1f} µs"


def _path(op: Op | None) -> list[Op]:
    """A call and its callers, outermost first."""
    path: list[Op] = []
    while op is not None:
        path.insert(0, op)
        op = op.parent
    return path


def _how_to_open(page: Path, timeline: Path, chakra: Path, etplus: Path) -> list[str]:
    """A line a file: where it is, and what opens it."""
    return [
        "Open what was written:",
        f"  {page}: in a browser, {page.absolute().as_uri()}",
        f"  {timeline}: at https://ui.perfetto.dev with “Open trace file”",
        f"  {chakra}: with a Chakra simulator; look into it with `etplus convert {chakra} --to jsonl -o -`",
        f"  {etplus}: `etplus analyze {etplus}`, or in Python `etplus.load({str(etplus)!r})`",
    ]
