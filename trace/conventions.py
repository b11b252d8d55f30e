"""Names and bounds that the formats' readers share."""

from __future__ import annotations

import re

__all__ = ["ANNOTATION_SCOPE", "EXACT_US", "MAX_NS", "MAX_RANKS", "PROFILER_STEP", "STRUCTURAL"]

ANNOTATION_SCOPE = 7
"""`scope` of a user annotation (record_function) in the ET; Kineto's category `user_annotation`."""
EXACT_US = 2.0**43
"""Below this many µs a double with three decimals rounds to the right ns (half an ulp is under 0.5 ns)."""
MAX_NS = 2**62
"""Times and their sums are below this, 146 years, so that int64 does not overflow."""
MAX_RANKS = 2**31
"""Ranks are below this."""
PROFILER_STEP = re.compile(r"ProfilerStep#(\d+)")
"""The annotation that `torch.profiler` puts around each step."""
STRUCTURAL = re.compile(r"\[pytorch\|profiler\|execution_(?:graph|trace)\|(?:process|thread)\]")
"""Names of an ET's process and thread nodes, which are no calls."""
