"""Draw charts of device use for notebooks, with matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..analysis.breakdown import DeviceUse
from ..trace.errors import UsageError


def device_use_axes(uses: Mapping[str, DeviceUse]) -> Any:
    """Return the axes of a new figure that has one bar per device.

    Raises:
        UsageError: matplotlib cannot be imported, or there are no devices."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise UsageError(f"figures need matplotlib ({error}); run pip install 'etplus[plots]'") from None
    if not uses:
        raise UsageError("there is nothing to plot, because the trace has no GPU events")
    _, axes = pyplot.subplots(figsize=(7, 1.4 + 0.5 * len(uses)), layout="constrained")
    columns = {
        "computing": [use.compute_ns for use in uses.values()],
        "exposed communication": [use.exposed_communication_ns for use in uses.values()],
        "other copies": [use.busy_ns - use.compute_ns - use.exposed_communication_ns for use in uses.values()],
        "idle": [use.idle_ns for use in uses.values()],
    }
    left = np.zeros(len(uses))
    for (name, values), color in zip(columns.items(), ("C0", "C3", "C1", "0.85"), strict=True):
        axes.barh(list(uses), np.array(values) / 1e6, left=left, label=name, color=color)
        left += np.array(values) / 1e6
    axes.set_xlabel("GPU time, ms")
    axes.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False, fontsize="small")
    return axes
