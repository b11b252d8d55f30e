"""Options shared by several commands."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..trace.errors import UsageError
from ..trace.outer import outer
from ..trace.trace import Trace

if TYPE_CHECKING:
    from ..analysis.devices import Device
    from ..jobs.engines import Engine

_MANY = 16  # For fewer traces than this, a single process is faster.
MISSING_LEARN = "needs PyTorch and safetensors ({error}); install them with: pip install 'etplus[learn]'"


def options_of(arguments: argparse.Namespace, names: str) -> dict[str, Any]:
    """Return the given options in `names` (separated by spaces) and their values as keyword arguments."""
    values = ((name, getattr(arguments, name)) for name in names.split())
    return {name: value for name, value in values if value is not None}


def rank_list(text: str) -> list[int]:
    from ..trace.selection import ranks_of

    try:
        return ranks_of(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_ranks(
    parser: argparse._ActionsContainer, option: str = "--ranks", about: str = "only these ranks of a job, such as 0,3-7"
) -> None:
    """Add --ranks for `find_inputs`. If --ranks means something else in this command, `option` is its name."""
    parser.add_argument(option, dest="chosen_ranks", type=rank_list, metavar="LIST", help=about)


def add_engine(parser: argparse._ActionsContainer) -> None:
    add = parser.add_argument
    add("--jobs", type=at_least_one, metavar="N", help="worker processes (default: one per core for 16 or more traces)")
    add("--scheduler", metavar="ADDRESS", help="Dask cluster to use (tcp://host:8786 or a scheduler file)")


def engine_for(arguments: argparse.Namespace, traces: int) -> Engine | None:
    """Return the engine for this number of traces. None means that the current process does all the work."""
    from ..jobs.engines import engine_of  # This import is slow, and only large jobs need it.

    if arguments.scheduler is not None:
        return engine_of("dask", arguments.jobs, arguments.scheduler)
    if arguments.jobs == 1 or (arguments.jobs is None and traces < _MANY):
        return None
    return engine_of("processes", min(arguments.jobs or os.cpu_count() or 1, traces), None)


def add_network(parser: argparse._ActionsContainer, what: str, **more: Any) -> None:
    """Add --network. Its help text starts with `what`. `more` contains further argparse settings."""
    form = "a file (docs/reference/network.md), or bandwidth=GB/s,latency=us,algorithm=NAME,library=NAME (gloo or nccl)"
    parser.add_argument("--network", metavar="SPEC", help=f"{what}: {form}", **more)


def add_groups(parser: argparse._ActionsContainer) -> None:
    about = "process groups of Chakra traces (default: <prefix>.comm_groups.json, <prefix>.json or comm_group.json)"
    parser.add_argument("--groups", metavar="FILE", help=about)


def add_annotation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--annotation", metavar="NAME", help="annotations that contain NAME mark steps (default: detected)"
    )


def add_steps(parser: argparse._ActionsContainer, what: str) -> None:
    """Add --steps. Its help text starts with `what`."""
    about = f"{what} these iterations, counted from 0, such as 3 or 0-19, or a phase such as decode"
    parser.add_argument("--steps", metavar="A-B", help=about)


def add_own(parser: argparse._ActionsContainer) -> None:
    about = "files that count as your code in source lines; PATTERN matches a part of the path (* is a wildcard); "
    about += "repeatable (default: all except torch, Triton and the standard library)"
    parser.add_argument("--own", action="append", default=[], metavar="PATTERN", help=about)


def chosen_part(trace: Trace, own: Sequence[str], part: Mapping[str, Any]) -> Trace:
    """Return the selected part of a trace, with the patterns of --own applied. Also runs in worker processes."""
    trace = trace.with_(own_code=tuple(own)) if own else trace
    if not part:
        return trace
    from ..trace.selection import part_of  # This import is slow, and few runs need it.

    return part_of(trace, **part)


class _Between(argparse.Action):
    """Converts the option's words to a pair of a name and a number (default: 0)."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: Any = None
    ) -> None:
        name, *number = values
        if len(number) > 1 or not all(text.isdecimal() and len(text) < 10 for text in number):
            raise argparse.ArgumentError(self, f"{' '.join(values)[:60]!r}: give a name and a number; put FILEs last")
        setattr(namespace, self.dest, (name, int(number[0]) if number else 0))


def add_selection(parser: argparse.ArgumentParser, what: str, *, steps: bool = True) -> None:
    """Add the options that select parts of traces. Their help texts start with `what`, such as "convert only"."""
    group = parser.add_argument_group("part of each trace (default: all)")
    if steps:
        add_steps(group, what)
    about = f"{what} this time span, counted from the start of the trace, such as 10-12.5ms (ns, us, ms, s)"
    group.add_argument("--window", metavar="A-B", help=about)
    about = f"{what} the calls and GPU events of annotation number N (default: 0, the first) with NAME in its name"
    group.add_argument("--between", nargs="+", action=_Between, metavar=("ANNOTATION", "N"), help=about)
    about = f"{what} the forward and backward calls of this module, such as Encoder_0.Linear_3, and their GPU events"
    group.add_argument("--module", metavar="NAME", help=about)
    parser.set_defaults(own_steps=not steps)


def selection_of(arguments: argparse.Namespace) -> dict[str, Any]:
    return options_of(arguments, "window between module" if arguments.own_steps else "steps window between module")


def selected(trace: Trace, arguments: argparse.Namespace) -> Trace:
    return chosen_part(trace, (), selection_of(arguments))


def add_analysis(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the options of commands that analyze a trace. The help of options that select parts starts with `what`."""
    add_selection(parser, what)
    add_annotation(parser)
    add_own(parser)


def add_device_spec(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device-spec", metavar="FILE", help="file with the peak rates of devices, like devices.json")


def own_devices(arguments: argparse.Namespace) -> tuple[Device, ...]:
    return outer("analysis.devices").read_devices(arguments.device_spec) if arguments.device_spec else ()


def at_least_one(text: str) -> int:
    value = int(text) if text.strip().removeprefix("-").isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, 1 or more")
    return value


def add_graph_captures(parser: argparse.ArgumentParser) -> None:
    about = "Kineto trace, or folder of traces, of the run that captured the CUDA graphs; "
    about += "links kernels of replayed graphs to the captured operators; repeatable"
    parser.add_argument("--graph-capture", action="append", default=[], metavar="FILE", help=about)


def add_provenance(parser: argparse._ActionsContainer) -> None:
    about = "source lines of compiled kernels: kernel_information.json or node mappings from Inductor, or "
    about += "JSON annotations of graph nodes; repeatable (default: files named after the Kineto trace)"
    parser.add_argument("--provenance", action="append", metavar="FILE", help=about)


def captures_linker(arguments: argparse.Namespace) -> Callable[[Trace], Trace]:
    """Read the captures of --graph-capture. Return a function that links a trace to these captures."""
    if not getattr(arguments, "graph_capture", ()):
        return lambda trace: trace
    # This import is slow, and few runs need it.
    from ..linker.captured_graphs import link_captured_graphs
    from ..linker.pipeline import read_captures

    captures = read_captures(arguments.graph_capture, progress=True)
    return lambda trace: link_captured_graphs(trace, captures)
