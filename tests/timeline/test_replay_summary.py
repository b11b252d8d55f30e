"""What `etplus replay` shows of small traces, whole; errors of the base; communication that is not hidden."""

from __future__ import annotations

import numpy as np
import pytest
from etplus.timeline.constants import fit_constants
from etplus.timeline.graph_replay import replay
from etplus.timeline.rank_coupling import join_ranks
from etplus.timeline.replay_summary import BaseError, exposed_ns, start_error_ns, summarize
from etplus.trace.errors import UsageError
from synthetic import Timeline, after
from test_critical import program
from test_graph_building import rank, stalled

REPLAYED = [
    "<bytes>: 10 calls and events, 3 on a device",
    "fitted     launch latency 10.0 µs, gap 2.0 µs, no queue limit seen",
    "time                     predicted µs  measured µs   of makespan",
    "makespan                        230.0        230.0        +0.00%",
    "mean kernel-start error           0.0               0.000% of it",
    "thread 7 busy                   195.0        195.0",
    "stream 7 busy                   150.0        150.0",
    "stream 9 busy                    20.0         20.0",
    "thread 8 busy                    20.0         20.0",
    "busiest stream                  150.0",
    "busiest thread                  103.0",
    "critical path: GPU work 65.2%, host work 28.3%, launch latency 4.3%,",
    "    synchronisation 1.3%, stream gap 0.9%",
    "on the critical path       kind  time µs  share",
    "a                      GPU work    100.0  43.5%",
    "b                      GPU work     50.0  21.7%",
    "end                   host work     30.0  13.0%",
    "prepare               host work     20.0   8.7%",
    "(between calls)       host work     15.0   6.5%",
    "base error makespan +0.00%, kernel starts 0.00%",
]
CHANGED = [
    "<bytes>: 10 calls and events, 3 on a device",
    "fitted     launch latency 10.0 µs, gap 2.0 µs, no queue limit seen",
    "time            changed µs  measured µs  of makespan",
    "makespan             180.0        230.0",
    "thread 7 busy        145.0        195.0",
    "stream 7 busy        100.0        150.0",
    "stream 9 busy         20.0         20.0",
    "thread 8 busy         20.0         20.0",
    "busiest stream       100.0",
    "busiest thread       103.0",
    "critical path: GPU work 55.6%, host work 36.1%, launch latency 5.6%,",
    "    synchronisation 1.7%, stream gap 1.1%",
    "on the critical path       kind  time µs  share",
    "a                      GPU work     50.0  27.8%",
    "b                      GPU work     50.0  27.8%",
    "end                   host work     30.0  16.7%",
    "prepare               host work     20.0  11.1%",
    "(between calls)       host work     15.0   8.3%",
    "critical path before: GPU work 65.2%, host work 28.3%, launch latency 4.3%,",
    "    synchronisation 1.3%, stream gap 0.9%",
    "what if    kernel:name=a*0.5",
    "           230.0 µs -> 180.0 µs, -21.74%",
    "           cannot be less than 103.0 µs (busiest thread)",
    "base error makespan +0.00%, kernel starts 0.00%",
]


def test_the_text_of_a_replay() -> None:
    graph = program().graph()
    found = summarize(after(graph), fit_constants(graph))
    assert found.to_text().split("\n") == REPLAYED
    changed = summarize(
        after(graph, "kernel:name=a*0.5"), fit_constants(graph), before=after(graph), what_ifs=["kernel:name=a*0.5"]
    )
    assert changed.to_text().split("\n") == CHANGED
    assert max(len(line) for line in changed.to_text(60).split("\n")) <= 60


def test_the_numbers_of_a_replay() -> None:
    graph = program().graph()
    plain = summarize(after(graph), fit_constants(graph)).to_dict()
    assert plain["makespan_ns"] == {"predicted": 230_000, "measured": 230_000, "error": 0.0}
    assert (plain["rows"], plain["gpu_events"], plain["files"]) == (10, 3, ["<bytes>"])
    assert plain["lanes"] == [
        {"name": name, "busy_ns": busy, "idle_ns": 230_000 - busy, "measured_busy_ns": busy,
         "measured_idle_ns": 230_000 - busy}
        for name, busy in (("stream 7", 150_000), ("stream 9", 20_000), ("thread 7", 195_000), ("thread 8", 20_000))
    ]  # fmt: skip
    assert "what_if" not in plain and plain["steps"] is None
    changed = summarize(after(graph, "cpu*0"), fit_constants(graph), before=after(graph), what_ifs=["cpu*0"])
    told = changed.to_dict()["what_if"]
    assert (told["changes"], told["before_ns"], told["after_ns"]) == (["cpu*0"], 230_000, changed.predicted_ns)
    assert told["critical_path_before"] == plain["critical_path"]
    assert changed.error == changed.predicted_ns / 230_000 - 1


def test_waits_that_nothing_explains() -> None:
    """A stream that stalls for 500 and kernels that follow it: a note, a row of the table, the base's share."""
    graph = stalled().graph()
    found = summarize(after(graph), fit_constants(graph))
    assert found.unexplained.count == 1 and found.unexplained.ns == pytest.approx(500_000, abs=80_000)
    assert found.base.unexplained == found.unexplained.share == found.unexplained.ns / found.predicted_ns
    assert len(found.notes) == 1 and found.notes[0].startswith("nothing in the trace explains 1 wait (")
    assert any(line.startswith("unexplained waits") for line in found.to_text().split("\n"))


def test_lanes_of_ranks_and_communication() -> None:
    """Both ranks' all-reduce runs until 100: alone, since nothing else does on a device."""
    graphs = [rank(0, 0, 10, 90).graph(), rank(1, 50, 60, 40).graph()]
    constants = [fit_constants(graph) for graph in graphs]
    found = summarize(replay(join_ranks(graphs), constants), constants)
    assert [lane.name for lane in found.lanes] == [
        "rank 0 stream 20", "rank 0 thread 7", "rank 1 stream 20", "rank 1 thread 7"
    ]  # fmt: skip
    assert found.exposed_ns == found.measured_exposed_ns == 130_000
    assert found.steps is None and len(found.constants) == 2


def test_communication_is_exposed_where_no_other_kernel_runs() -> None:
    """Communication 0–100, kernels 20–40 and 90–130: 70 remain; an op does not hide it."""
    start, end = np.array([0, 20, 90, 50]), np.array([100, 40, 130, 60])
    communicates, kernel = np.array([True, False, False, False]), np.array([True, True, True, False])
    assert exposed_ns(start, end, communicates, kernel) == 70


def test_the_error_of_the_base() -> None:
    graph = program().graph()
    found = BaseError.of(after(graph))
    assert found == BaseError(0.0, 0.0, 0.0) and found.reliable and found.largest == 0.0
    later = after(graph, "kernel:name=a*1.5")
    assert start_error_ns(later) == pytest.approx(50_000 / 3)
    worse = BaseError.of(later)
    assert worse.kernel_starts == pytest.approx(50 / 3 / 230) and worse.makespan == pytest.approx(50 / 230)
    host = Timeline()
    host.op("op", 0, 5)
    assert BaseError.of(after(host.graph())).kernel_starts is None


@pytest.mark.parametrize(
    ("base", "reliable", "refused"),
    [
        (BaseError(0.01, None), True, False), (BaseError(-0.011, 0.001), False, False),
        (BaseError(0.0, 0.05), False, False), (BaseError(-0.0501, None), False, True),
        (BaseError(0.0, 0.06), False, True),
    ],
)  # fmt: skip
def test_what_a_base_is_good_for(base: BaseError, reliable: bool, refused: bool) -> None:
    assert base.reliable is reliable and len(base.to_lines()) == 2 - reliable
    base.refuse("file", force=True)
    if refused:
        with pytest.raises(UsageError, match="over 5% a change says nothing"):
            base.refuse("file", force=False)
    else:
        base.refuse("file", force=False)
    assert BaseError(0.5, 0.25, 0.125).to_lines()[0] == (
        "base error makespan +50.00%, kernel starts 25.00%, unexplained waits 12.50%"
    )
