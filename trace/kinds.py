"""Codes of nodes: kind, link, phase."""

from __future__ import annotations

from typing import Final

CPU: Final = 0
GPU: Final = 1
RUNTIME: Final = 2  # CPU, GPU and RUNTIME are values of `Nodes.kind`.
UNLINKED: Final = 0
UNVERIFIED: Final = 1
CERTAIN: Final = 2  # UNLINKED, UNVERIFIED and CERTAIN are values of `Nodes.link`.
LINK_NAMES = ("unlinked", "unverified", "certain")  # these names appear in files and reports

# Phases of a call, by code; "" if unknown. "recomputation" is forward work that is repeated inside backward.
# "gradient communication" happens inside backward. "communication" is any other communication outside forward.
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
# Evidence for the forward operator of a backward operator. "sequence number" (inferred) means that the forward operator
# is the last one on its thread with this number before the backward operator, as in the profiler's `fwdbwd` flows.
# The ET's `fw_parent` is a different call: the call open on the forward thread when the backward operator ran.
THROUGH = ("", "sequence number")
