"""`--graph-capture`: link the kernels of replayed CUDA and HIP graphs to the operators of their captures."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..trace.trace import Trace

if TYPE_CHECKING:
    from ..linker.captures import Capture


def add_graph_captures(parser: argparse.ArgumentParser) -> None:
    """Add the option."""
    parser.add_argument("--graph-capture", action="append", default=[], metavar="FILE_OR_FOLDER",
        help="Kineto trace of the run in which CUDA or HIP graphs were captured, or a folder of these: kernels of "
        "replayed graphs are linked to the operators of the capture; repeatable")  # fmt: skip


def captures_of(arguments: argparse.Namespace) -> list[Capture]:
    """Read what the command line names."""
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
