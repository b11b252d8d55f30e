"""Codes for the kinds, links and phases of nodes."""

from __future__ import annotations

from typing import Final

CPU: Final = 0
GPU: Final = 1
RUNTIME: Final = 2  # CPU, GPU and RUNTIME are values of `Nodes.kind`.
UNLINKED: Final = 0
UNVERIFIED: Final = 1
CERTAIN: Final = 2  # UNLINKED, UNVERIFIED and CERTAIN are values of `Nodes.link`.
LINK_NAMES = ("unlinked", "unverified", "certain")  # these names appear in files and reports

# A phase's code is its index in this tuple. "recomputation" is forward work that the backward pass repeats.
# "gradient communication" happens in the backward pass. "communication" is used if no other phase is known.
PHASES = (
    "",
    "forward",
    "backward",
    "recomputation",
    "gradient accumulation",
    "gradient communication",
    "communication",
    "optimizer",
    "data loading",
)
UNKNOWN, FORWARD, BACKWARD, RECOMPUTATION, ACCUMULATION = range(5)
GRADIENT_COMMUNICATION, COMMUNICATION, OPTIMIZER, DATA = range(5, len(PHASES))
# Evidence that links a backward operator to its forward operator. The profiler's `fwdbwd` flows use the same rule.
# The forward operator is the last earlier operator on its thread that has the same sequence number (inferred).
# The ET's `fw_parent` is not used: it is the call open on the forward thread when the backward operator starts.
THROUGH = ("", "sequence number")
