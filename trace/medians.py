"""Medians and percentiles of short lists, to the last bit those of numpy, which takes some 30 µs for each list."""

from __future__ import annotations

from collections.abc import Sequence


def median(values: Sequence[float]) -> float:
    """The middle one in order of size, or the mean of the two in the middle; of at least one number.

    Example:
        >>> median([3, 1, 2]), median([4, 1])
        (2, 2.5)
    """
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def percentile(values: Sequence[float], percent: float) -> float:
    """Between neighbours in order of size, as `numpy.percentile` does to the last bit; of at least one number.

    Example:
        >>> percentile([10, 20, 30], 90)
        28.0
    """
    ordered = sorted(values)
    place = percent / 100 * (len(ordered) - 1)
    below = int(place)
    low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    part = place - below
    return high - (high - low) * (1 - part) if part >= 0.5 else low + (high - low) * part
