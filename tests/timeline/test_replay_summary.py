"""What `etplus replay` shows of small traces, whole; errors of the base; communication that is not hidden."""

from __future__ import annotations

import numpy as np
import pytest
from etplus.timeline.constants import fit_constants
from etplus.timeline.graph_replay import replay
from etplus.timeline.rank_coupling import join_ranks
from etplus.timeline.replay_summary import BaseError, exposed_ns, start_error_ns, summarize
from etplus.timeline.replay_text import render_full
from etplus.trace.errors import UsageError
from made_traces import Timeline, after
from test_critical import program
from test_graph_building import stalled
from test_rank_coupling import rank


def test_the_screen_of_a_replay() -> None:
    graph = program().graph()
    found = summarize(after(graph), fit_constants(graph))
    first, error, path, *rows = found.to_text().split("\n")
    assert first == "replayed 230 µs, recorded 230 µs (+0.00%)"
    assert error == "replay error on the recording: +0.00%, kernel starts 0.00%"
    assert path == "critical path: GPU work 65.2%, host work 28.3%, launch latency 4.3%,"
    assert "a                      GPU work    100.0  43.5%" in rows
    changed = summarize(
        after(graph, "kernel:name=a*0.5"), fit_constants(graph), before=after(graph), what_ifs=["kernel:name=a*0.5"]
    )
    text = changed.to_text().split("\n")
    assert text[0] == "230.0 -> 180.0 µs (-21.7%); at best 103 µs, the busiest thread"
    assert max(len(line) for line in changed.to_text(60).split("\n")) <= 60 and len(text) < 24


def test_all_tables_of_a_replay() -> None:
    graph = program().graph()
    lines = render_full(summarize(after(graph), fit_constants(graph))).split("\n")
    for line in (
        "fitted     launch latency 10.0 µs, gap 2.0 µs, no queue limit seen",
        "makespan                        230.0        230.0        +0.00%",
        "mean kernel-start error           0.0               0.000% of it",
        "stream 7 busy                   150.0        150.0",
        "busiest thread                  103.0",
    ):
        assert line in lines


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
    assert any(line.startswith("unexplained waits") for line in render_full(found).split("\n"))


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
        with pytest.raises(UsageError, match="above 5%, predicted changes mean nothing"):
            base.refuse("file", force=False)
    else:
        base.refuse("file", force=False)
    assert BaseError(0.5, 0.25, 0.125).to_lines()[0] == (
        "base error makespan +50.00%, kernel starts 25.00%, unexplained waits 12.50%"
    )
