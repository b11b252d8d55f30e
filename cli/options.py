"""Options that several commands have: one name, one meaning, one help text."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..trace.conventions import MAX_NS, NS_PER_UNIT
from ..trace.trace import Trace
from .parser import hidden_alias

if TYPE_CHECKING:
    from ..linker.captures import Capture

_TIME = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s)", re.ASCII)
MISSING_LEARN = "needs PyTorch and safetensors ({error}); install them with: pip install 'etplus[learn]'"


def add_annotation(parser: argparse.ArgumentParser) -> None:
    """Add --annotation to a command that looks at iterations."""
    parser.add_argument("--annotation", metavar="NAME",
        help="the annotations with NAME in theirs are the iterations (default: found by themselves)")  # fmt: skip
    hidden_alias(parser, "--iteration-annotation", "--annotation")


def add_steps(parser: argparse._ActionsContainer, what: str, numbers: str = "such as 3 or 0-19") -> None:
    """Add --steps.

    Args:
        what: is done with them, for the help. numbers: how they are given.
    """
    parser.add_argument("--steps", metavar="A-B", help=f"{what} these iterations, by number from 0, {numbers}")


def add_part(parser: argparse._ActionsContainer, what: str) -> None:
    """Add the options that choose a part of a trace: --steps and --window."""
    add_steps(parser, what)
    parser.add_argument("--window", metavar="A-B",
        help=f"{what} this time after the trace's start, such as 10-12.5ms (ns, us, ms, s)")  # fmt: skip


def add_top(parser: argparse._ActionsContainer) -> None:
    """Add --top."""
    parser.add_argument(
        "--top", type=at_least_one, default=15, metavar="N", help="rows of each printed table (default: 15)"
    )


def add_batch_size(parser: argparse._ActionsContainer) -> None:
    """Add --batch-size."""
    parser.add_argument("--batch-size", type=at_least_one, metavar="N", help="samples an iteration, for the throughput")


def add_device_spec(parser: argparse._ActionsContainer) -> None:
    """Add --device-spec."""
    parser.add_argument(
        "--device-spec", metavar="FILE", help="peaks of devices, in the form of the package's devices.json"
    )


def at_least_one(text: str) -> int:
    """A number from 1."""
    value = int(text) if text.strip().removeprefix("-").isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, 1 or more")
    return value


def add_kernel_delay(parser: argparse.ArgumentParser) -> None:
    """Add --consecutive-kernel-delay; its value is ns."""
    from ..analysis.launch_queues import KERNEL_DELAY_NS  # for commands that analyse

    parser.add_argument("--consecutive-kernel-delay", type=_nanoseconds, default=KERNEL_DELAY_NS, metavar="TIME",
        help="shorter gaps of a stream, before events that were not launched late, are the device's own delay between "
        "kernels (default: 30us)")  # fmt: skip


def _nanoseconds(text: str) -> int:
    found = _TIME.fullmatch(text)
    ns = float(found[1]) * NS_PER_UNIT[found[2]] if found is not None else MAX_NS
    if not ns < MAX_NS:
        raise argparse.ArgumentTypeError(f"{text[:40]!r}: a time with its unit, such as 30us (ns, us, ms, s)")
    return round(ns)


def add_graph_captures(parser: argparse.ArgumentParser) -> None:
    """Add --graph-capture."""
    parser.add_argument("--graph-capture", action="append", default=[], metavar="FILE_OR_FOLDER",
        help="Kineto trace of the run in which CUDA or HIP graphs were captured, or a folder of these: kernels of "
        "replayed graphs are linked to the operators of the capture; repeatable")  # fmt: skip


def captures_of(arguments: argparse.Namespace) -> list[Capture]:
    """Read what --graph-capture names."""
    if not arguments.graph_capture:
        return []
    from ..linker.pipeline import read_captures  # few runs have captures, and importing takes as long as many commands

    return read_captures(arguments.graph_capture, progress=True)


def with_captures(trace: Trace, captures: Sequence[Capture]) -> Trace:
    """The trace, linked to captures if there are any."""
    if not captures:
        return trace
    from ..linker.captured_graphs import link_captured_graphs

    return link_captured_graphs(trace, captures)
