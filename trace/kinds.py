"""Codes of nodes: kind, link, phase."""

from __future__ import annotations

from typing import Final

CPU: Final = 0
GPU: Final = 1
RUNTIME: Final = 2
"""Values of `Nodes.kind`."""
UNLINKED: Final = 0
EQUIVALENT: Final = 1
CERTAIN: Final = 2
"""Values of `Nodes.link`."""
LINK_NAMES = ("unlinked", "equivalent", "certain")
"""Names of links in files and reports."""

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
"""What a call is part of, by code; "" if unknown.

"recomputation" is forward work that runs again inside of backward (activation checkpointing). "gradient
communication" is communication inside of backward; "communication" is other communication outside of forward.
"""
UNKNOWN, FORWARD, BACKWARD, RECOMPUTATION, ACCUMULATION = range(5)
GRADIENT_COMMUNICATION, COMMUNICATION, OPTIMIZER, DATA = range(5, len(PHASES))
THROUGH = ("", "sequence number")
"""Values of `Origin.through`: how the forward operator of a backward one is known.

"sequence number": inferred. It is the last operator on the forward thread that began with the number before the
backward one did, as in the `fwdbwd` flows of PyTorch's profiler. The ET's `fw_parent` is not the forward operator but
what was open on the forward thread when the backward one ran: an annotation around all of backward, or the engine's
call.
"""
