"""Options that several commands share."""

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

_ROWS = 15  # of a table
_MANY = 16  # more processes pay off from this number of traces
MISSING_LEARN = "needs PyTorch and safetensors ({error}); install them with: pip install 'etplus[learn]'"


def options_of(arguments: argparse.Namespace, names: str) -> dict[str, Any]:
    """Return the values of options (names separated by spaces) as keywords."""
    return {name: getattr(arguments, name) for name in names.split()}


def rank_list(text: str) -> list[int]:
    """Return the ranks of a list such as "0-3,7"."""
    from ..trace.selection import ranks_of

    try:
        return ranks_of(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_ranks(
    parser: argparse._ActionsContainer, option: str = "--ranks", about: str = "only these ranks of a job, such as 0,3-7"
) -> None:
    """Add --ranks for `find_inputs`, or another option if --ranks has another meaning."""
    parser.add_argument(option, dest="chosen_ranks", type=rank_list, metavar="LIST", help=about)


def add_engine(parser: argparse._ActionsContainer) -> None:
    add = parser.add_argument
    add("--jobs", type=_at_least_one, metavar="N", help="processes (default: one per core, from 16 traces on)")
    add("--scheduler", metavar="ADDRESS", help="use a Dask cluster: tcp://host:8786, or its scheduler file")


def engine_for(arguments: argparse.Namespace, traces: int) -> Engine | None:
    """Return the engine for a number of traces; None for this process."""
    from ..jobs.engines import engine_of  # slow import, for many traces only

    if arguments.scheduler is not None:
        return engine_of("dask", arguments.jobs, arguments.scheduler)
    if arguments.jobs == 1 or (arguments.jobs is None and traces < _MANY):
        return None
    return engine_of("processes", min(arguments.jobs or os.cpu_count() or 1, traces), None)


def add_network(parser: argparse._ActionsContainer, what: str, **more: Any) -> None:
    """Add --network; `what` begins its help, `more` goes to argparse."""
    form = "a file (docs/reference/network.md), or bandwidth=GB/s,latency=us,algorithm=NAME,library=gloo or nccl"
    parser.add_argument("--network", metavar="SPEC", help=f"{what}: {form}", **more)


def add_groups(parser: argparse._ActionsContainer) -> None:
    about = "process groups of Chakra traces (default: <prefix>.comm_groups.json, <prefix>.json or comm_group.json)"
    parser.add_argument("--groups", metavar="FILE", help=about)


def add_annotation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--annotation", metavar="NAME", help="steps are annotations with NAME in theirs (default: detected)"
    )


def add_steps(
    parser: argparse._ActionsContainer, what: str, numbers: str = "such as 3 or 0-19, or a phase such as decode"
) -> None:
    """Add --steps; `what` begins its help, `numbers` explains step numbers."""
    parser.add_argument("--steps", metavar="A-B", help=f"{what} these iterations, counted from 0, {numbers}")


def add_own(parser: argparse._ActionsContainer) -> None:
    about = "your code, for source lines: files with PATTERN in their path, * matches any text; repeatable (default: "
    about += "all but torch, Triton and the standard library)"
    parser.add_argument("--own", action="append", default=[], metavar="PATTERN", help=about)


def chosen_part(trace: Trace, own: Sequence[str], part: Mapping[str, Any]) -> Trace:
    """Return the part of a trace that --own and the selection options choose; also runs in worker processes."""
    trace = trace.with_(own_code=tuple(own)) if own else trace
    if not part:
        return trace
    from ..trace.selection import part_of  # rarely needed

    return part_of(trace, **part)


class _Between(argparse.Action):
    """Reads a name and an optional number as a pair."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: Any = None
    ) -> None:
        name, *number = values
        if len(number) > 1 or not all(text.isdecimal() and len(text) < 10 for text in number):
            raise argparse.ArgumentError(self, f"{' '.join(values)[:60]!r}: a name, and a number from 0, before FILEs")
        setattr(namespace, self.dest, (name, int(number[0]) if number else 0))


def add_selection(parser: argparse.ArgumentParser, what: str, *, steps: bool = True) -> None:
    """Add the options that choose a part of each trace, for `selected`.

    Args:
        what: begins their help, such as "convert only".
        steps: also add --steps.
    """
    group = parser.add_argument_group("a part of each trace (default: the whole one)")
    if steps:
        add_steps(group, what)
    about = f"{what} this span of time, from the start of the trace, such as 10-12.5ms (ns, us, ms, s)"
    group.add_argument("--window", metavar="A-B", help=about)
    about = f"{what} what runs in or is launched from the N-th annotation, from 0, with this in its name (default: 0)"
    group.add_argument("--between", nargs="+", action=_Between, metavar=("ANNOTATION", "N"), help=about)
    about = f"{what} the forward and backward calls of this module, such as Encoder_0.Linear_3, and their GPU events"
    group.add_argument("--module", metavar="NAME", help=about)
    parser.set_defaults(own_steps=not steps)


def selection_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the chosen part as keywords of `part_of`; {} for the whole trace."""
    names = "window between module" if arguments.own_steps else "steps window between module"
    return {name: value for name, value in options_of(arguments, names).items() if value is not None}


def selected(trace: Trace, arguments: argparse.Namespace) -> Trace:
    """Return the part of a trace that the options choose."""
    return chosen_part(trace, (), selection_of(arguments))


def add_analysis(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the options of commands that analyze a trace; `what` begins the help of the selection."""
    add_selection(parser, what)
    add_annotation(parser)
    add_own(parser)


def add_top(parser: argparse.ArgumentParser) -> None:
    about = f"rows per table (default: {_ROWS})"
    parser.add_argument("--top", type=_at_least_one, default=_ROWS, metavar="N", help=about)


def add_device_spec(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device-spec", metavar="FILE", help="peak rates of devices, in the format of devices.json")


def own_devices(arguments: argparse.Namespace) -> tuple[Device, ...]:
    """Return the devices of --device-spec."""
    return outer("analysis.devices").read_devices(arguments.device_spec) if arguments.device_spec else ()


def _at_least_one(text: str) -> int:
    value = int(text) if text.strip().removeprefix("-").isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, 1 or more")
    return value


def add_graph_captures(parser: argparse.ArgumentParser) -> None:
    about = "Kineto trace of the run that captured the CUDA graphs, or a folder of such: links kernels of replayed "
    about += "graphs to the captured operators; repeatable"
    parser.add_argument("--graph-capture", action="append", default=[], metavar="FILE", help=about)


def add_provenance(parser: argparse._ActionsContainer) -> None:
    about = "source lines of compiled kernels: kernel_information.json or the node mappings that Inductor wrote, or "
    about += "annotations of graph nodes as JSON; repeatable (default: files named after the Kineto trace)"
    parser.add_argument("--provenance", action="append", metavar="FILE", help=about)


def captures_linker(arguments: argparse.Namespace) -> Callable[[Trace], Trace]:
    """Read the captures of --graph-capture; return a function that links a trace to them."""
    if not getattr(arguments, "graph_capture", ()):
        return lambda trace: trace
    # Slow import; few runs have captures.
    from ..linker.captured_graphs import link_captured_graphs
    from ..linker.pipeline import read_captures

    captures = read_captures(arguments.graph_capture, progress=True)
    return lambda trace: link_captured_graphs(trace, captures)
