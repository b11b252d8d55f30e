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
