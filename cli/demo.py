"""`etplus demo`: show kernels under their operators, problems in a recorded step, and commands to try next."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Sequence
from importlib.resources import as_file, files
from itertools import groupby
from textwrap import wrap

from ..linker import link
from ..schemas.text.files import open_output
from ..schemas.text.transaction import make_folder
from ..trace.outer import installed, outer
from ..trace.printable import shortened
from ..trace.views import DeviceEvent, Op
from .link_text import render

# fixtures/gpu/measured.json contains the same number
_MEASURED = "Measured without a profiler: TF32 makes the step 76.1% shorter."
_SHOWN = 2  # The screen shows at most this many GPU events.
_WIDTH = 66


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Link bundled traces of training steps on an H100, show kernels under their operators and list the "
        "problems, and write ET+, an HTML report, a Chakra trace and a trace for Perfetto."
    )
    parser.epilog = "example:\n  etplus demo --output demo-out"
    parser.add_argument(
        "-o", "--output", default="demo-out", metavar="DIR", help="folder for the demo's files (default: demo-out)"
    )


def run(arguments: argparse.Namespace) -> int:
    folder = make_folder(arguments.output)
    etplus, chakra = folder / "train.etplus.json", folder / "train.0.et"
    page, timeline = folder / "report.html", folder / "train.perfetto.json"
    bundle = files("etplus.fixtures").joinpath("gpu")
    with as_file(bundle / "tf32.et.json.gz") as et, as_file(bundle / "tf32.kineto.json.gz") as kineto:
        trace = link(et, kineto)
    for path in (etplus, chakra, timeline):
        trace.save(path)
    has_insight = installed("analysis") and installed("report")
    names = [etplus.name, f"{chakra.name} (simulators)", f"{timeline.name} (ui.perfetto.dev)"]
    if has_insight:
        analysis = trace.with_(file=etplus.name).analyze()  # Commands on the page name the ET+ file next to it.
        title = "etplus demo: training steps on an H100"
        html, _ = outer("report.report_html").ranks_html([analysis], 1, title, shells=[etplus.name])
        with open_output(page) as out:
            out.write(html)
        names.insert(0, f"{page.name} (browser)")
    events = trace.device_events
    print(render(trace, "").partition("\n  ")[0])
    print("\nGPU work under its operators:")
    print("\n".join(kernel_tree(events[:_SHOWN])))
    print(f"  … {len(events) - _SHOWN} more in the report", flush=True)
    if has_insight:
        screen = outer("report.findings_text").render(trace.findings(), _WIDTH + 13).split("\n")
        print("\n".join([screen[0], *screen[2:6]]))
        print(_MEASURED)
    written = f"wrote  {folder}/: {', '.join(names)}"
    print("\n".join(["", *wrap(written, _WIDTH + 14, subsequent_indent=" " * 7, break_long_words=False)]))
    linked, simulated = shlex.quote(str(etplus)), shlex.quote(str(chakra))
    commands = [f"etplus top {linked} --by line", f"etplus why {linked}"] if has_insight else []
    print("next   " + "\n       ".join([*commands, f"etplus convert {simulated} --to jsonl -o -"]))
    return 0


def kernel_tree(events: Sequence[DeviceEvent]) -> Iterator[str]:
    """Yield the lines of a tree. GPU events are below the calls that launched them, with one path per caller.

    Args:
        events: GPU events in the order to print them. Events without a known launching call are left out.

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
    path: list[Op] = []
    while op is not None:
        path.insert(0, op)
        op = op.parent
    return path
