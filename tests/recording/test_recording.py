"""Recording from a real training loop: the files, their windows, and what is left when things go wrong."""

import importlib
import json
import os
import queue
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from etplus.linker import link
from etplus.recording.hook import forks
from etplus.recording.record import record
from etplus.trace.errors import TraceFormatError, UsageError
from support import names_in, read_json

PAIR = ["rank-0.et.json.gz", "rank-0.kineto.json.gz"]
SET = ["rank-0.et.json.gz", "rank-0.etplus.json.gz", "rank-0.kineto.json.gz"]


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.delenv("RANK", raising=False)
    yield pytest.importorskip("torch", reason="recording needs PyTorch")


def loop(torch: Any, recording: Any, steps: int) -> None:
    model, x = torch.nn.Linear(4, 2), torch.ones(3, 4)
    for _ in range(steps):
        model(x).sum().backward()
        recording.step()


def windows(recording: Any) -> tuple[list[str], list[str]]:
    nodes, events = read_json(recording.et_path)["nodes"], read_json(recording.kineto_path)["traceEvents"]
    steps = [{item["name"] for item in items if item["name"].startswith("ProfilerStep#")} for items in (nodes, events)]
    return sorted(steps[0]), sorted(steps[1])


def test_the_capture_phase_is_recorded_apart(torch: Any, tmp_path: Path) -> None:
    with record(tmp_path, wait=1, warmup=1, active=2, graphs=True, link=False) as recording:
        torch.ones(3, 4).add(torch.ones(4)).relu()
        recording.step()
        assert names_in(tmp_path)[-2:] == ["rank-0.graphs.et.json.gz", "rank-0.graphs.kineto.json.gz"]
        loop(torch, recording, 4)
        assert recording.finished
    paths = recording.graphs_kineto_path, recording.kineto_path
    before, inside = (read_json(path)["traceEvents"] for path in paths)
    assert any(event["name"] == "aten::relu" for event in before) and "aten::linear" not in str(before)
    assert not any(event["name"] == "aten::relu" for event in inside)
    assert len(windows(recording)[1]) == 2
    assert any(node["name"] == "aten::relu" for node in read_json(recording.graphs_et_path)["nodes"])


def test_without_a_graph_the_capture_phase_is_refused(torch: Any, tmp_path: Path) -> None:
    with (
        pytest.raises(TraceFormatError, match="no graph is captured in it"),
        record(tmp_path, wait=0, warmup=1, active=1, graphs=True) as recording,
    ):
        recording.step()
        loop(torch, recording, 2)
    assert recording.finished and recording.kineto_path.exists()


def test_a_loop_gives_three_files(torch: Any, tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    with record(folder, wait=1, warmup=1, active=2) as recording:
        assert not recording.finished
        loop(torch, recording, 4)
        assert recording.finished
        assert names_in(folder)[-2:] == PAIR
        assert recording.result is None
        loop(torch, recording, 2)
    assert names_in(folder) == SET
    assert windows(recording) == (["ProfilerStep#2", "ProfilerStep#3"], ["ProfilerStep#2", "ProfilerStep#3"])
    assert recording.result is not None
    nodes = [node for node in read_json(recording.etplus_path)["nodes"] if not node["name"].startswith("[pytorch|")]
    events = read_json(recording.kineto_path)["traceEvents"]
    assert len(nodes) > 40
    for node in nodes:
        assert node["link"] == "certain"
        assert events[node["kineto_event"]]["name"] == node["name"]


def run_ids(recording: Any) -> list[list[str]]:
    nodes, events = read_json(recording.et_path)["nodes"], read_json(recording.kineto_path)["traceEvents"]
    return [[item["name"] for item in items if item["name"].startswith("etplus.run=")] for items in (nodes, events)]


@pytest.mark.parametrize(("wait", "warmup"), [(0, 0), (0, 1), (2, 1)])
def test_both_files_have_one_id_and_the_rank(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait: int, warmup: int
) -> None:
    monkeypatch.setenv("RANK", "3")
    with record(tmp_path, wait=wait, warmup=warmup, active=2) as recording:
        loop(torch, recording, wait + warmup + 2)
    ours, theirs = run_ids(recording)
    assert len(ours) == 1 and ours == theirs
    assert re.fullmatch(r"etplus\.run=[0-9a-f-]{36} rank=3", ours[0])
    assert recording.result is not None
    report = recording.result.report
    assert report.ops["certain"] == report.ops["total"] > 20
    assert report.identity is not None and (report.identity.verdict, report.identity.rank) == ("proved", 3)


def test_the_id_proves_and_refutes_whatever_names_and_clocks_say(torch: Any, tmp_path: Path) -> None:
    recordings = []
    for name in "ab":
        with record(tmp_path, wait=0, active=1, name=name, link=False) as recording:
            loop(torch, recording, 2)
        recordings.append(recording)
    assert run_ids(recordings[0])[0] != run_ids(recordings[1])[0]
    et = read_json(recordings[0].et_path)
    et["time"] = "2001-01-01 00:00:00"
    own, other = (one.kineto_path.read_bytes() for one in recordings)
    assert link(json.dumps(et).encode(), own).report.ops["certain"] > 10
    report = link(json.dumps(read_json(recordings[0].et_path)).encode(), other).report
    assert report.ops["certain"] == 0 and report.identity is not None and report.identity.verdict == "refuted"


@pytest.mark.parametrize(("steps", "left"), [(0, []), (3, []), (6, PAIR)])
def test_an_exception_passes_and_leaves_the_two_traces_after_the_window(
    torch: Any, tmp_path: Path, steps: int, left: list[str]
) -> None:
    with pytest.raises(ZeroDivisionError), record(tmp_path) as recording:
        loop(torch, recording, steps)
        raise ZeroDivisionError
    assert names_in(tmp_path) == left and recording.result is None
    with record(tmp_path) as recording:  # both observers are free again
        loop(torch, recording, 5)
    assert names_in(tmp_path) == SET


def test_a_second_recording_at_the_same_time_is_refused(torch: Any, tmp_path: Path) -> None:
    with record(tmp_path, link=False) as outer:
        with pytest.raises(UsageError, match="another ExecutionTraceObserver"), record(tmp_path, name="inner"):
            pass
        loop(torch, outer, 5)
    assert names_in(tmp_path) == PAIR
    assert len(windows(outer)[0]) == 3


@pytest.mark.parametrize("all_threads", [False, True])
def test_other_threads_are_recorded_only_with_all_threads(torch: Any, tmp_path: Path, all_threads: bool) -> None:
    wanted: queue.Queue[bool] = queue.Queue()
    done: queue.Queue[bool] = queue.Queue()

    def work() -> None:
        while wanted.get():
            torch.ones(3).sum()
            done.put(True)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        with record(tmp_path, wait=0, active=1, link=False, all_threads=all_threads) as recording:
            for _ in range(2):
                wanted.put(True)
                done.get()
                loop(torch, recording, 1)
    finally:
        wanted.put(False)
        thread.join()
    threads = {e["tid"] for e in read_json(recording.kineto_path)["traceEvents"] if e.get("cat") == "cpu_op"}
    assert len(threads) == 1 + all_threads


def test_missing_pytorch_or_a_path_as_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("torch", "torch.profiler"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=r"needs PyTorch .*pip install torch"), record(tmp_path):
        pass
    monkeypatch.undo()
    with pytest.raises(UsageError, match="pass the folder as out_dir"), record(tmp_path, name="a/b"):
        pass
    assert names_in(tmp_path) == []


def compiled_loop(torch: Any, recording: Any, model: Any) -> None:
    for _ in range(3):
        model(torch.ones(3, 4)).sum().backward()
        recording.step()


@pytest.mark.slow
def test_what_the_compiler_says_is_saved_where_code_is_compiled(torch: Any, tmp_path: Path) -> None:
    config = importlib.import_module("torch._inductor.config")
    if not hasattr(config.trace, "provenance_tracking_to_timeline"):
        pytest.skip("needs PyTorch 2.14")
    linear = torch.nn.Linear(4, 2)
    model = torch.compile(lambda x: torch.nn.functional.gelu(linear(x)))
    with record(tmp_path, wait=1, warmup=1, active=1) as recording:
        compiled_loop(torch, recording, model)
    assert names_in(tmp_path) == sorted([*SET, "rank-0.kernel_information.json.gz"])
    assert not config.trace.provenance_tracking_to_timeline
    assert recording.result is not None
    known = [op for op in recording.result.ops if op.generated is not None]
    assert known and {op.source.file for op in known if op.source is not None} == {__file__}
    with record(tmp_path, wait=0, warmup=0, active=1, provenance=False) as recording:
        compiled_loop(torch, recording, linear)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.parametrize("graphs", [False, True])
def test_a_fork_that_leaves_the_block_changes_nothing(torch: Any, tmp_path: Path, graphs: bool) -> None:
    parent, children = os.getpid(), []
    try:
        with record(tmp_path, wait=1, warmup=1, active=2, graphs=graphs, link=False) as recording:
            for step in range(4 + graphs):
                children.append(os.fork() or sys.exit(step))
                loop(torch, recording, 1)
    except SystemExit as done:
        os._exit(done.code if os.getpid() != parent and not recording.finished else 99)  # type: ignore[arg-type]
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == list(range(4 + graphs))
    assert windows(recording) == (["ProfilerStep#2", "ProfilerStep#3"],) * 2 and forks._knows_forks
    trace = link(recording.et_path, recording.kineto_path)
    assert trace.report.linked_share == 1 and not trace.report.warnings
    assert len(names_in(tmp_path)) == (4 if graphs else 2)
