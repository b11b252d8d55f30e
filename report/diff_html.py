"""The comparison of two traces as a self-contained HTML page, in the report's style."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from .. import __version__
from ..analysis.diff import Difference, json_of_difference
from ..analysis.summary import Analysis, plain_rows
from .html_page import page

__all__ = ["diff_html"]

_ROWS = 2_000
_LEAST_SHARE = 0.0002
"""Call paths with no more of the device time (of the host time, without any) are left out of the page's tree."""


def diff_html(found: Difference, a: Analysis, b: Analysis) -> bytes:
    """The page; the same traces give the same bytes.

    Args:
        a, b: what was compared, for the list of iterations.
    """
    difference = json_of_difference(found)
    key, whole = "device_ns", max(found.total_a, found.total_b)
    if not whole:
        key, whole = "host_ns", max(found.latency_a, found.latency_b)
    paths = [row for row in difference["paths"] if _size(row, key) > _LEAST_SHARE * whole]
    name = f"{PurePath(found.a).name} → {PurePath(found.b).name}"
    shown = {
        "title": name,
        "version": __version__,
        "difference": difference | {
            "ops": difference["ops"][:_ROWS], "kernels": difference["kernels"][:_ROWS], "paths": paths[:_ROWS],
            "left_out": {key: max(len(difference[key]) - _ROWS, 0) for key in ("ops", "kernels")},
            "paths_left_out": len(found.paths) - len(paths[:_ROWS]),
            "iteration_list": {key: plain_rows(one.iterations, "latency_ns") for key, one in (("a", a), ("b", b))},
        },
        "ranks": [{"label": "", "analysis": {"devices": {}, "kernel_labels": {}}}],
    }  # fmt: skip
    return page(shown, f"{name} · etplus diff")


def _size(row: dict[str, Any], key: str) -> float:
    return max(float(side[key]) for side in (row["a"], row["b"]) if side)
