"""What `etplus replay` shows of small traces, whole; errors of the base; communication that is not hidden."""

from contextlib import nullcontext
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from etplus.timeline.constants import fit_constants
from etplus.timeline.replay_summary import BaseError, exposed_ns, start_error_ns, summarize
from etplus.trace.errors import UsageError
from etplus.trace.trace import Trace
from made_traces import Timeline, after
from support import read_json, refused, succeeds
from test_critical import program


def test_a_summary_gives_makespans_lanes_and_changes() -> None:
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


def test_communication_is_exposed_where_no_other_kernel_runs() -> None:
    start, end = np.array([0, 20, 90, 50]), np.array([100, 40, 130, 60])
    communicates, kernel = np.array([True, False, False, False]), np.array([True, True, True, False])
    assert exposed_ns(start, end, communicates, kernel) == 70


def test_the_base_error_covers_makespan_and_kernel_starts() -> None:
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
def test_a_base_error_above_5_percent_is_refused_unless_forced(base: BaseError, reliable: bool, refused: bool) -> None:
    assert base.reliable is reliable and len(base.to_lines()) == 2 - reliable
    base.refuse("file", force=True)
    with pytest.raises(UsageError, match="above 5%, predicted changes mean nothing") if refused else nullcontext():
        base.refuse("file", force=False)
    said = "base error makespan +50.00%, kernel starts 25.00%, unexplained waits 12.50%"
    assert BaseError(0.5, 0.25, 0.125).to_lines()[0] == said


@cache
def noisy(length: float) -> Trace:
    """Steps of 25 kernels of a length, each launched by a call of 2 µs that the host then waits for. The launch latency
    is 2 µs, of every third kernel 6.5 µs; the constant is 2, so that the replay is short by 4.5 µs for each of those.
    What takes so little longer is noise, and nothing that the replay could keep."""
    trace, now = Timeline(), 0.0
    for step in range(4):
        begin = now
        for k in range(25):
            latency = 6.5 if (step * 25 + k) % 3 == 1 else 2.0
            trace.launch("k", now, 2, now + latency, length)
            trace.call("cudaDeviceSynchronize", now + 2, latency + length + 1 - 2)
            now += latency + length + 2
        trace.op(f"ProfilerStep#{step}", begin, now - begin, category="user_annotation")
        now += 1
    return trace.document()


def test_a_what_if_on_a_wrong_base_is_refused(tmp_path: Path) -> None:
    files, out = [tmp_path / "reliable.json", tmp_path / "refused.json"], tmp_path / "out.json"
    for file, length in zip(files, (1000, 5), strict=True):
        noisy(length).write(file)
    words = ["replay", *files, "--what-if", "kernel*0.5", "--json", out]
    text = refused(*words)
    assert not out.exists() and "refused.json" in text and "--force" in text and "off by -" in text
    assert b"UNRELIABLE" in succeeds(*words, "--force").stdout
    assert not read_json(out)[-1]["base_error"]["reliable"]
