"""Options that several commands have: one name, one meaning, one help text."""

from __future__ import annotations

import argparse

from .parser import hidden_alias


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
