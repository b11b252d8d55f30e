"""What every matching method returns, and the closed list of reasons for which a node stays unlinked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...trace.columns import IntColumn
from ...trace.kinds import CERTAIN, EQUIVALENT, LINK_NAMES, UNLINKED

__all__ = ["CERTAIN", "EQUIVALENT", "LINK_NAMES", "REASONS", "UNLINKED", "Match", "unmatched"]

REASONS = (
    "linked",
    "not in the Kineto trace",
    "name differs from the event with its id",
    "id is not unique",
    "outside the profiled window",
    "thread not profiled",
    "ambiguous (--strict)",
)
"""Why a node is unlinked; `Match.reason` holds indices, 0 for a linked one."""


@dataclass(frozen=True)
class Match:
    """Links of the ET's calls to Kineto's CPU calls.

    Attributes:
        call: int64, one entry a call of `EtCalls`: position in `CpuCalls`, −1 for none.
        link: int8, one of UNLINKED, EQUIVALENT, CERTAIN.
        reason: int8 index into `REASONS`.
        method: the method that made the links, "" for none.
        notes: sentences for the report, in the user's words.
        facts: numbers for the machine-readable report (candidates, offsets, windows).
    """

    call: IntColumn
    link: npt.NDArray[np.int8]
    reason: npt.NDArray[np.int8]
    method: str = ""
    notes: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def linked(self) -> int:
        """How many calls are linked."""
        return int(np.count_nonzero(self.call >= 0))

    def noting(self, *notes: str, **facts: Any) -> Match:
        """The same match with more to say."""
        return replace(self, notes=self.notes + notes, facts={**self.facts, **facts})


def unmatched(count: int, method: str = "") -> Match:
    """A match that links nothing."""
    reason = np.full(count, REASONS.index("not in the Kineto trace"), np.int8)
    return Match(np.full(count, -1, np.int64), np.zeros(count, np.int8), reason, method)
