"""Small Kineto traces whose replay can be worked out by hand; times in whole µs."""

from __future__ import annotations

from typing import Any

import orjson
from etplus.linker import link
from etplus.timeline.constants import fit_constants
from etplus.timeline.graph_building import build_graph
from etplus.timeline.graph_replay import Replay, replay
from etplus.timeline.replay_graph import ReplayGraph
from etplus.timeline.whatif import apply_what_ifs, parse_what_if
from etplus.trace.trace import Trace
from support import PID, assert_valid, kineto_document

__all__ = ["Timeline", "after", "ends", "starts"]


class Timeline:
    """Gathers events; `document` links them without an ET."""

    def __init__(self, **header: Any) -> None:
        self.events: list[dict[str, Any]] = []
        self.header = header
        self.correlation = 0

    def op(self, name: str, ts: float, dur: float, tid: int = 7, category: str = "cpu_op") -> None:
        """A CPU op or annotation."""
        self._add(category, name, ts, dur, tid)

    def call(self, name: str, ts: float, dur: float, tid: int = 7, **args: Any) -> int:
        """A runtime call; its correlation."""
        self.correlation += 1
        self._add("cuda_runtime", name, ts, dur, tid, correlation=self.correlation, **args)
        return self.correlation

    def gpu(
        self, name: str, ts: float, dur: float, correlation: int, stream: int = 7, category: str = "kernel", **args: Any
    ) -> None:
        """An event on the device."""
        self._add(category, name, ts, dur, stream, pid=0, stream=stream, device=0, correlation=correlation, **args)

    def launch(self, name: str, ts: float, dur: float, start: float, length: float, stream: int = 7) -> None:
        """A launching call and its kernel."""
        self.gpu(name, start, length, self.call("cudaLaunchKernel", ts, dur), stream)

    def _add(self, category: str, name: str, ts: float, dur: float, tid: int, pid: int = PID, **args: Any) -> None:
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": dur, "pid": pid, "tid": tid, "args": args}
        )

    def document(self) -> Trace:
        """The ET+ document, held against the schema."""
        document = link(None, orjson.dumps(kineto_document(self.events, **self.header)))
        assert_valid(document.to_dict())
        return document

    def graph(self) -> ReplayGraph:
        """The replay graph."""
        return build_graph(self.document())


def after(graph: ReplayGraph, *what_ifs: str) -> Replay:
    """The replay of a graph with changes."""
    constants = fit_constants(graph)
    return replay(apply_what_ifs(graph, [parse_what_if(text) for text in what_ifs], constants), constants)


def starts(result: Replay) -> dict[str, float]:
    """Start in µs by name, of names that occur once or the last one of a name."""
    document = result.graph.trace
    return {document.name_of(row): ns / 1000 for row, ns in enumerate(result.start.tolist()) if ns >= 0}


def ends(result: Replay) -> dict[str, float]:
    """The same of the ends."""
    document = result.graph.trace
    return {document.name_of(row): ns / 1000 for row, ns in enumerate(result.end.tolist()) if ns >= 0}
