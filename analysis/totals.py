"""What rows of tables have in common: a number of events and their total duration, and rates."""

from __future__ import annotations


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


def per_second(amount: float | None, ns: float | None) -> float | None:
    """The rate of an amount over a time; None where either is unknown or there is no time.

    Example:
        >>> per_second(30, 2_000)
        15000000.0
    """
    return amount / ns * 1e9 if amount is not None and ns else None
