"""Options of `etplus link` and `etplus batch` for programs that call them: gates, -q, facts of a run in --json."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any

from .. import __version__

_VERSION = "1.0"
"""Version of the form of what `facts_of_run` returns."""


def add_gates(parser: argparse.ArgumentParser, consequence: str) -> None:
    """Add --min-match, --min-certain and -q; `consequence` follows from a share that is too small, for the help."""
    for name, default, has in (("match", 0.95, "is linked"), ("certain", 0.0, "has a certain link")):
        parser.add_argument(f"--min-{name}", type=share, default=default, metavar="SHARE",
            help=f"{consequence} if a smaller share of the ET's ops {has} (default: {default:g})")  # fmt: skip
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="print errors only: no report, warnings or progress bar"
    )


def share(text: str) -> float:
    """A number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number from 0 to 1")
    return value


def facts_of_run(
    arguments: argparse.Namespace, status: int, ops: Iterable[Mapping[str, int]], *, outputs: Sequence[str],
    warnings: Sequence[str], started: float,
) -> dict[str, Any]:  # fmt: skip
    """Return what a program should know of a run, JSON-ready.

    Args:
        status: exit status.
        ops: of each rank, the counts "total", "linked" and "certain" of its ET's ops; gates hold for each rank.
        started: `perf_counter` when the run began.
    """
    ranks = list(ops)
    counts = {"min_match": "linked", "min_certain": "certain"}
    least = {
        gate: min((rank[count] / rank["total"] if rank["total"] else 0.0 for rank in ranks), default=0.0)
        for gate, count in counts.items()
    }
    total = sum(rank["total"] for rank in ranks)
    return {
        "version": _VERSION,
        "tool_version": __version__,
        "status": "failed" if status else "linked",
        "exit_code": status,
        **{f"{count}_share": sum(rank[count] for rank in ranks) / total if total else 0.0 for count in counts.values()},
        "gates": {
            gate: {"least": getattr(arguments, gate), "share": value, "passed": value >= getattr(arguments, gate)}
            for gate, value in least.items()
        },
        "outputs": list(outputs),
        "warnings": list(warnings),
        "elapsed_s": round(perf_counter() - started, 3),
    }
