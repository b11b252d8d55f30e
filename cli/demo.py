"""`etplus demo`: GPU kernels under their operators, what is wrong in a recorded step, and what to run next."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Sequence
from importlib.resources import as_file, files
from itertools import groupby
from pathlib import Path

from ..linker import link
from ..schemas.text.transaction import make_folder
from ..trace.outer import installed
from ..trace.printable import shortened
from ..trace.trace import Trace
from ..trace.views import DeviceEvent, Op
from .link import report_text

_PAIR = "gpu/tf32"
"""Three training steps of a linear layer in full float32, recorded on an H100 with Python stacks."""
_MEASURED = "Measured without a profiler: in TF32 the step takes 76.1% less."
"""As fixtures/gpu/measured.json has it."""
_SHOWN = 10
_FINDINGS = 3
_WIDTH = 66


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Link a pair of traces that comes with etplus: training steps recorded on an H100. Show the GPU kernels under "
        "the operators that launched them, what is wrong, on which line, and what fixing it would gain. Write ET+, "
        "an HTML report, a Chakra trace and a trace for Perfetto, and name three commands to go on with."
    )
    parser.epilog = "example:\n  etplus demo --output demo-out"
    parser.add_argument(
        "-o", "--output", default="demo-out", metavar="DIR", help="folder to write to (default: demo-out)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Link the bundled pair, print what it shows, write the files; returns the exit status."""
    folder = make_folder(arguments.output)
    etplus, chakra = folder / "train.etplus.json", folder / "train.0.et"
    page, timeline = folder / "report.html", folder / "train.perfetto.json"
    trace = _bundled(_PAIR)
    for path in (etplus, chakra, timeline):
        trace.save(path)
    written = {
        timeline: "the steps at https://ui.perfetto.dev",
        chakra: "for Chakra simulators",
        etplus: "as ET+, as etplus.load reads it",
    }
    has_insight = installed("analysis") and installed("report")
    if has_insight:
        trace.write_report(page, title="etplus demo: training steps on an H100")
        written = {page: "the steps and what is wrong with them, in a browser", **written}
    print(report_text(trace, str(etplus)))
    print("\nGPU work under the operators that launched it:\n")
    events = trace.device_events
    print("\n".join(kernel_tree(events[:_SHOWN])))
    print(f"  … {len(events) - _SHOWN} more in the report\n", flush=True)
    if has_insight:
        print(f"What is wrong in these steps:\n\n{trace.findings().to_summary(_FINDINGS)}\n\n{_MEASURED}")
    print("\nOpen what was written:")
    print("\n".join(f"  {path}: {how}" for path, how in written.items()))
    print(f"\n{_next(etplus, chakra, has_insight=has_insight)}")
    return 0


def _bundled(name: str) -> Trace:
    """A pair of the package, linked."""
    folder, _, stem = name.rpartition("/")
    bundle = files("etplus.fixtures").joinpath(folder)
    with as_file(bundle / f"{stem}.et.json.gz") as et, as_file(bundle / f"{stem}.kineto.json.gz") as kineto:
        return link(et, kineto)


def _next(steps: Path, chakra: Path, *, has_insight: bool) -> str:
    """Commands that go on from here, each with what it answers."""
    linked, simulated = shlex.quote(str(steps)), shlex.quote(str(chakra))
    insight = f"""
  # which line of the model costs most
  etplus top {linked} --by line
  # every finding with its proofs
  etplus why {linked}"""
    return f"""Next; each command takes your own traces, too:
{insight if has_insight else ""}
  # what a simulator reads
  etplus convert {simulated} --to jsonl -o -"""


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
