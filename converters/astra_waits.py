"""What waits for communications in a simulation of a rank's GPU alone, and when its host has submitted what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..schemas.communications import blocking_calls, issue_times
from ..trace.columns import IntColumn, lists_by, marked
from ..trace.host_waits import LONG_PAUSE_NS, ROUNDING_NS
from ..trace.kinds import GPU
from ..trace.trace import Trace
from .collectives import Communication
from .host import waits

__all__ = ["Waits", "submitted"]

_MAX_LATENCY_NS = 1_000_000
"""No device takes longer to begin what was launched to an idle stream: more is waiting for other work."""

_Rows = dict[int, list[int]]
_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Waits:
    """Which computations wait for which communications, and the other way round.

    Attributes:
        on_gpu: row of a computation to the rows of the communications that its stream waits for.
        through_host: row of a computation to the rows of the communications and GPU events that the host waits for
            before it submits the computation.
        inside: row of an operator to the rows of the communications on the host that it waits for while it runs; what
            it takes by itself comes after them.
        asked: row of a computation to the time, ns, at which the host began the last of these waits.
        before_comm: row of a communication to the rows of the computations that its stream waits for.
    """

    on_gpu: _Rows
    through_host: _Rows
    inside: _Rows
    asked: dict[int, int]
    before_comm: _Rows

    @staticmethod
    def of(document: Trace, rows: IntColumn, comms: Sequence[Communication]) -> Waits:
        """Find them in the edges of a document.

        Args:
            rows: the computations, in the order in which they run.
        """
        communicates, computes = marked(len(document), [comm.row for comm in comms]), marked(len(document), rows)
        source, target, _ = document.edges.T
        done = document.finish[source] <= document.ts[target] + ROUNDING_NS
        on_gpu = communicates[source] & (document.kind[source] == GPU) & computes[target]
        before = computes[source] & communicates[target]
        waited, row, asked = _through_host(document, rows, communicates, computes)
        order = np.argsort(asked, kind="stable")
        return Waits(
            _by_target(source[on_gpu & done], target[on_gpu & done]),
            _by_target(waited, row),
            _by_target(*blocking_calls(document, np.flatnonzero(communicates)).T),
            dict(zip(row[order].tolist(), asked[order].tolist(), strict=True)),
            _by_target(source[before & done], target[before & done]),
        )


def _through_host(
    document: Trace, rows: IntColumn, communicates: _Flags, computes: _Flags
) -> tuple[IntColumn, IntColumn, IntColumn]:
    """Communications and GPU events, the first computation that the host submitted after it had waited for each, and
    when it began to wait, ns.

    A GPU event holds the host in a synchronising call. One on the host holds back the operators that the edges name
    and what follows the pause in which it ended; where no edge names any, all that begins after its end.
    """
    source, target, _ = document.edges_of("data", "sync").T
    waited = communicates | (computes & (document.kind == GPU))
    released = waited[source] & (document.kind[target] != GPU) & ~communicates[target]
    source, target = source[released], target[released]
    edges = np.stack([source, target], axis=1)
    on_gpu = document.kind[source] == GPU
    since = np.where(on_gpu, document.finish[target], document.ts[target])
    asked = np.where(document.finish[source] > document.ts[target], document.ts[target], document.ts[source])
    unread = np.setdiff1d(np.flatnonzero(communicates & (document.kind != GPU)), source)
    source, since = np.concatenate([source, unread]), np.concatenate([since, document.finish[unread]])
    asked = np.concatenate([asked, document.ts[unread]])
    issued = np.maximum.accumulate(issue_times(document, np.flatnonzero(communicates & (document.kind != GPU)))[rows])
    first = np.searchsorted(issued, since)
    known = first < len(rows)
    source, first, asked = source[known], rows[first[known]], asked[known]
    paused, resumed = _after_pauses(document, rows, edges[~on_gpu])
    source, first = np.concatenate([source, paused]), np.concatenate([first, resumed])
    asked = np.concatenate([asked, document.ts[paused]])
    done = document.finish[source] <= document.ts[first] + ROUNDING_NS
    return source[done], first[done], asked[done]


def _after_pauses(document: Trace, rows: IntColumn, edges: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Communications on the host that ended in a long pause of the thread that reads their results, and the computation
    that follows the pause.

    Args:
        edges: (n, 2), communications and their readers.
    """
    rows = rows[np.lexsort((document.ts[rows], document.thread[rows]))]
    found = [np.zeros((0, 2), np.int64)]
    for thread in np.unique(document.thread[edges[:, 1]]).tolist():
        own, (run, reader) = rows[document.thread[rows] == thread], edges[document.thread[edges[:, 1]] == thread].T
        after = np.searchsorted(document.ts[own], document.finish[run])
        inside = (after > 0) & (after < len(own))
        run, reader, before, after = run[inside], reader[inside], own[after[inside] - 1], own[after[inside]]
        paused = (document.finish[before] <= document.finish[run]) & (document.ts[after] <= document.ts[reader])
        paused &= document.ts[after] - document.finish[before] > LONG_PAUSE_NS
        found.append(np.stack([run[paused], after[paused]], axis=1))
    run, after = np.concatenate(found).T
    return run, after


def _by_target(source: IntColumn, target: IntColumn) -> _Rows:
    pairs = np.unique(np.stack([source, target], axis=1), axis=0)
    return lists_by(*pairs.T[::-1].tolist())


def submitted(document: Trace) -> IntColumn:
    """When the host has let each row begin, ns: its start where the GPU was idle until then, else its launch and the
    usual latency.

    Rows on the host are let begin when they do; GPU events without a launch in the trace were submitted before it.
    """
    result: IntColumn = np.where(document.kind == GPU, document.span[0], document.ts)
    call, gpu, _ = document.edges_of("launch").T
    timed = document.timed[call] & document.timed[gpu]
    call, gpu = call[timed], gpu[timed]
    waiting = waits(document)[1][call] > 0
    launched = np.where(waiting, document.ts[call], np.minimum(document.finish[call], document.ts[gpu]))
    latency = document.ts[gpu] - launched
    free = _free(document)[gpu]
    idle = (free <= launched) & (latency <= _MAX_LATENCY_NS)
    usual = int(np.median(latency[idle])) if idle.any() else 0
    bound = (launched + usual >= free) & (latency <= _MAX_LATENCY_NS)
    result[gpu] = np.where(bound, document.ts[gpu], np.minimum(launched + usual, document.ts[gpu]))
    return result


def _free(document: Trace) -> IntColumn:
    """For each row the latest end of what its edges of kinds `stream` and `event` wait for, ns; −1 for none."""
    free = np.full(len(document), -1, np.int64)
    source, target, _ = document.edges_of("stream", "event").T
    np.maximum.at(free, target, document.finish[source])
    return free
