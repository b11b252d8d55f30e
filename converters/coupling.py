"""How coupled a graph is: whether what computes waits for what communicates, so that its time follows the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..schemas.communications import comm_rows
from ..trace.columns import mask_at
from ..trace.trace import Trace
from .collectives import Communication

_FEW = 0.5
"""With a smaller share of collectives that computation waits for, a graph says little about another network."""


@dataclass(frozen=True)
class Coupling:
    """Who waits for the collectives of one rank or of several.

    Attributes:
        collectives: how many there are.
        by_computation: how many have a computation or host operator behind them.
        by_nothing: how many have nothing behind them.
        fixed_ns: how long the communications take that are kept as computations of their measured duration.

    Example:
        >>> print(Coupling(21, 19, 2) + Coupling(21, 21, 0))
        40 of 42 collectives are waited for by computation; 2 by nothing
    """

    collectives: int = 0
    by_computation: int = 0
    by_nothing: int = 0
    fixed_ns: int = 0

    def __add__(self, other: Coupling) -> Coupling:
        return Coupling(
            self.collectives + other.collectives, self.by_computation + other.by_computation,
            self.by_nothing + other.by_nothing, self.fixed_ns + other.fixed_ns,
        )  # fmt: skip

    def __str__(self) -> str:
        others = self.collectives - self.by_computation - self.by_nothing
        text = f"{self.by_computation:,} of {self.collectives:,} collectives are waited for by computation"
        return text + f"; {others:,} by communication alone" * (others > 0) + f"; {self.by_nothing:,} by nothing"

    @property
    def few(self) -> bool:
        """Whether computation waits for less than half of the collectives."""
        return self.by_computation < _FEW * self.collectives

    def notes(self) -> tuple[str, ...]:
        """Messages for the user, in sentences; none about a rank that does not communicate."""
        found = [str(self)] if self.collectives else []
        if self.few:
            found.append("warning: computation waits for few collectives, so that the simulated time hardly follows "
                         "the network; link with the ET, or record with cuda_sync events")  # fmt: skip
        if self.fixed_ns:
            found.append(f"{self.fixed_ns / 1e6:,.3f} ms of communication are computations of fixed duration")
            if not self.collectives:
                found.append("warning: no collective is left, so that the simulated time does not follow the network")
        return tuple(found)


def coupling(
    collectives: npt.NDArray[np.integer],
    communicates: npt.NDArray[np.bool_],
    source: npt.NDArray[np.integer],
    target: npt.NDArray[np.integer],
) -> Coupling:
    """Count what is directly behind each collective.

    Args:
        collectives: nodes.
        communicates: by node, whether it is a collective or message.
        source, target: dependencies; `target` waits for `source`.
    """
    followed = mask_at(len(communicates), source)[collectives]
    computed = mask_at(len(communicates), source[~communicates[target]])[collectives]
    return Coupling(len(collectives), int(np.count_nonzero(computed)), int(np.count_nonzero(~followed)))


def coupling_of(trace: Trace, comms: Sequence[Communication]) -> Coupling:
    """The coupling of a rank as it is exported.

    A GPU event waits by its stream or for an event, an operator by its tensors, the host in a call.

    Args:
        comms: its communications; the others of the trace are kept as computations.
    """
    collectives = np.array([comm.row for comm in comms if comm.kind >= 0], np.int64)
    communicates = mask_at(len(trace), [comm.row for comm in comms])
    source, target, _ = trace.edges_of("event", "sync", "data", "stream", "comm").T
    communicating = comm_rows(trace)
    fixed = int(trace.dur[communicating[~communicates[communicating]]].sum())
    return replace(coupling(collectives, communicates, source, target), fixed_ns=fixed)
