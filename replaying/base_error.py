"""How far the unchanged replay of a trace is from what was measured: what any change or prediction builds on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..trace.brief import brief
from ..trace.errors import UsageError
from ..trace.kinds import GPU
from .graph_replay import Replay

UNRELIABLE, REFUSED = 0.01, 0.05
"""What-ifs on a base with a larger error are marked, and refused."""


@dataclass(frozen=True)
class BaseError:
    """The error of a replay without changes.

    Attributes:
        makespan: predicted over measured, less 1.
        kernel_starts: mean absolute error of the starts of GPU events over the measured makespan; None without any.
        unexplained: time of waits that nothing in the trace explains, over the makespan (`Replay.unexplained`).

    Example:
        >>> BaseError(-0.02, None).reliable
        False
    """

    makespan: float
    kernel_starts: float | None
    unexplained: float = 0.0

    __repr__ = brief

    @staticmethod
    def of(unchanged: Replay) -> BaseError:
        """Of the replay of a graph as it was built."""
        starts, measured = start_error_ns(unchanged), unchanged.measured_ns
        relative = None if starts is None else starts / measured if measured else 0.0
        return BaseError(unchanged.error, relative, unchanged.unexplained.share)

    @property
    def largest(self) -> float:
        """The larger of the two, absolute."""
        return max(abs(self.makespan), self.kernel_starts or 0.0)

    @property
    def reliable(self) -> bool:
        """Whether changes on this base say something."""
        return self.largest <= UNRELIABLE

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; keys as in docs/replay.md."""
        return {
            "makespan": self.makespan,
            "kernel_starts": self.kernel_starts,
            "reliable": self.reliable,
            "unexplained": self.unexplained,
        }

    def to_lines(self) -> list[str]:
        """Lines of at most 80 columns: the errors, and a second line if the base is not reliable."""
        starts = "" if self.kernel_starts is None else f", kernel starts {self.kernel_starts:.2%}"
        unexplained = f", unexplained waits {self.unexplained:.2%}" if self.unexplained else ""
        lines = [f"base error makespan {self.makespan:+.2%}{starts}{unexplained}"]
        if not self.reliable:
            lines.append(f"           UNRELIABLE: the replay without changes is off by over {UNRELIABLE:.0%}")
        return lines

    def refuse(self, what: str, *, force: bool) -> None:
        """Refuse to build a change on a base that is too far off.

        Args:
            what: the files, for the message. force: do it all the same.

        Raises:
            UsageError: the error is over `REFUSED`.
        """
        if self.largest > REFUSED and not force:
            starts = "" if self.kernel_starts is None else f", its kernel starts by {self.kernel_starts:.1%}"
            raise UsageError(
                f"{what}: the replay without changes is off by {self.makespan:+.1%}{starts}; over {REFUSED:.0%} a "
                "change says nothing, --force computes it all the same"
            )


def start_error_ns(replay: Replay) -> float | None:
    """Mean absolute error of the starts of GPU events, ns; None if there are none."""
    graph = replay.graph
    gpu = np.flatnonzero((graph.column("kind") == GPU) & (graph.start >= 0))
    return float(np.abs(replay.start[gpu] - graph.measured[graph.start[gpu]]).mean()) if len(gpu) else None
