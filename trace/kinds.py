"""Codes of rows: what a row is, and how sure its link is."""

from __future__ import annotations

from typing import Final

CPU: Final = 0
GPU: Final = 1
RUNTIME: Final = 2
"""Values of `Trace.kind`."""
UNLINKED: Final = 0
EQUIVALENT: Final = 1
CERTAIN: Final = 2
"""Values of `Trace.link`."""
LINK_NAMES = ("unlinked", "equivalent", "certain")
"""What each is called in files and reports."""

PHASES = (
    "", "forward", "backward", "recomputation", "gradient accumulation", "gradient communication", "communication",
    "optimizer", "data loading",
)  # fmt: skip
"""What a call is part of, by code; "" for what is not known to be part of any.

"recomputation" is forward work that runs again inside of backward (activation checkpointing). "gradient
communication" is communication inside of backward; other communication outside of forward is "communication".
"""
(
    UNKNOWN, FORWARD, BACKWARD, RECOMPUTATION, ACCUMULATION, GRADIENT_COMMUNICATION, COMMUNICATION, OPTIMIZER, DATA,
) = range(len(PHASES))  # fmt: skip
THROUGH = ("", "sequence number")
"""How the forward operator of a backward one is known: `Origin.through`.

"sequence number": inferred, the last operator on the forward thread that began with the number before the backward one
did, as PyTorch's own profiler finds it (its `fwdbwd` flows). The ET's `fw_parent` is no forward operator but what was
open on the forward thread when the backward one ran: an annotation around all of backward, or the engine's own call.
"""
