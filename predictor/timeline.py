"""A replay as documents: the same rows at their predicted times, for whatever draws or writes documents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..trace.index import as_column
from ..trace.trace import Trace
from .replay import Replay

__all__ = ["predicted_documents"]


def predicted_documents(replay: Replay) -> Iterator[Trace]:
    """Of each rank its document with `ts` and `dur` as predicted, on the clock of the document."""
    graph = replay.graph
    for k, document in enumerate(graph.documents):
        here = slice(int(graph.first_row[k]), int(graph.first_row[k + 1]))
        timed = document.timed
        start, end = replay.start[here], replay.end[here]
        measured = graph.measured[graph.start[here][timed]]
        clock = int((document.ts[timed] - measured).min())  # the same of all rows
        ts = as_column(np.where(timed, np.maximum(start + clock, 0), document.ts))
        yield replace(document, ts=ts, dur=as_column(np.where(timed, end - start, document.dur)))
