"""What rows of tables have in common: a number of events and their total duration."""

from __future__ import annotations

__all__ = ["Totals"]


class Totals:
    """Base of rows that sum up events.

    Attributes:
        count: number of events, above 0. total_ns: sum of their durations.
    """

    count: float
    total_ns: float

    @property
    def mean_ns(self) -> float:
        """Mean duration, ns."""
        return self.total_ns / self.count
