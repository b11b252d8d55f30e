"""Operators in the recorded order: what is sent to the worker, and what comes of its answers."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import etplus
import numpy as np
import pytest
from etplus.planning.measure import execute as module
from etplus.planning.measure.execute import Execution, OpTime, RecordedComms, execute
from etplus.planning.measure.measured import Conditions, NotExecuted
from etplus.planning.measure.timing import Options
from etplus.timeline.network import parse_network
from etplus.trace.errors import UsageError
from etplus.trace.index import CallIndex
from fake_worker import FakeWorker
from recorded_ops import mm, op, tensor, trace_of
from support import shared_pair

LINEAR = op("aten::linear", "aten::linear(Tensor i, Tensor w) -> Tensor", tensor(1, 4, 8), tensor(2, 8, 2),
            outputs=(tensor(3, 4, 2),))  # fmt: skip


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> FakeWorker:
    """Each call takes 1,000 ns more than the one before it; `linear` is refused."""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        names = [call["op"] for call in request["program"]["calls"]]
        failed = {str(at): "refused" for at, name in enumerate(names) if name == "aten::linear"}
        return {"ns": [-1 if str(at) in failed else 1000 * (at + 1) for at in range(len(names))], "failed": failed}

    found = FakeWorker(answer)
    monkeypatch.setattr(module, "WorkerProcess", found)
    return found


def test_a_refused_call_is_replaced_by_its_callees(worker: FakeWorker) -> None:
    done = execute(trace_of(LINEAR, mm(parent=1), mm()), options=Options(threads=3, timeout_s=7, max_bytes=10**6))
    assert worker.options == {"device": "cpu", "threads": 3, "max_bytes": 10**6, "timeout_s": 7}
    programs = [[call["op"] for call in one["program"]["calls"]] for one in worker.asked]
    assert programs == [["aten::linear", "aten::mm"], ["aten::mm", "aten::mm"]]
    assert {(one["do"], one["device"], one["repeat"]) for one in worker.asked} == {("run", "cpu", 3)}
    assert done == Execution(
        "<bytes>", Conditions("CPU", 2, "2.13.0"), (OpTime("aten::mm", 2, 150_000, 3000),),
        (NotExecuted("aten::linear", "refused", 1, 0.25),), 0.75, 150_000, 3000, 50_000, RecordedComms(0, 0, None),
    )  # fmt: skip
    assert done.to_dict()["ops"] == [{"op": "aten::mm", "count": 2, "recorded_ns": 150_000, "executed_ns": 3000}]
    assert done.to_dict()["not_executed"] == [{"op": "aten::linear", "reason": "refused", "count": 1, "share": 0.25}]
    assert list(done.to_dict()) == [
        "file", "device", "threads", "torch", "executed", "recorded_ns", "executed_ns", "not_executed_ns",
        "communications", "ops", "not_executed",
    ]  # fmt: skip


def test_some_calls_only(worker: FakeWorker) -> None:
    done = execute(trace_of(mm(), mm(8), mm(16)), calls=np.array([1, 2]))
    assert [call["tensors"][0]["shape"][0] for call in worker.asked[0]["program"]["calls"]] == [8, 16]
    assert done.rows == (OpTime("aten::mm", 2, 200_000, 3000),) and done.executed == 1.0


def test_a_call_of_no_time_was_executed(worker: FakeWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_answer", lambda request: {"ns": [0, -1], "failed": {}})
    done = execute(trace_of(mm(), mm(8)))
    assert done.rows == (OpTime("aten::mm", 1, 100_000, 0),) and (done.executed, done.executed_ns) == (0.5, 0)


def test_rows_are_sorted_by_what_was_recorded(worker: FakeWorker) -> None:
    relu = op("aten::relu", "aten::relu(Tensor self) -> Tensor", tensor(1, 4), outputs=(tensor(2, 4),))
    done = execute(trace_of(relu, relu, mm(), op("aten::abs", "aten::abs(Tensor self) -> Tensor", tensor(1, 4))))
    assert [(row.op, row.count) for row in done.rows] == [("aten::relu", 2), ("aten::abs", 1), ("aten::mm", 1)]


def test_what_is_too_large_is_not_called(worker: FakeWorker) -> None:
    done = execute(trace_of(mm(), mm(1 << 10)), options=Options(max_bytes=(1 << 15) + (1 << 13) - 1))
    assert done.not_executed == (NotExecuted("aten::mm", "over --max-bytes", 1, 0.5),)
    with pytest.raises(UsageError, match="no operator in it can be called; over --max-bytes"):
        execute(trace_of(mm(1 << 10)), options=Options(max_bytes=10))
    with pytest.raises(UsageError, match="give a trace with its Execution Trace"):
        execute(trace_of(op("aten::mm", "", tensor(1, 4))))


def test_a_worker_that_ends_loses_the_call_that_ran(worker: FakeWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its place is in the file that both processes see; the next run goes on without it."""

    def answer(request: dict[str, Any]) -> dict[str, Any] | str:
        calls = request["program"]["calls"]
        assert Path(request["progress_file"]).read_bytes() == bytes(16)
        if len(calls) == 3:
            Path(request["progress_file"]).write_bytes(struct.pack("<qq", 1, 5))
            return "took over 30 s"
        return {"ns": [2000] * len(calls), "failed": {}}

    monkeypatch.setattr(worker, "_answer", answer)
    done = execute(trace_of(mm(), mm(8), mm(16)))
    assert done.not_executed == (NotExecuted("aten::mm", "took over 30 s", 1, pytest.approx(1 / 3)),)
    assert [call["tensors"][0]["shape"][0] for call in worker.asked[1]["program"]["calls"]] == [4, 16]
    assert done.executed_ns == 4000


@pytest.mark.parametrize(("place", "lost"), [(-1, 4), (9, 8)])
def test_the_place_is_one_of_the_program(
    worker: FakeWorker, monkeypatch: pytest.MonkeyPatch, place: int, lost: int
) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any] | str:
        calls = request["program"]["calls"]
        Path(request["progress_file"]).write_bytes(struct.pack("<qq", place, 0))
        return "ended" if len(calls) == 2 else {"ns": [1], "failed": {}}

    monkeypatch.setattr(worker, "_answer", answer)
    execute(trace_of(mm(), mm(8)))
    assert worker.asked[1]["program"]["calls"][0]["tensors"][0]["shape"][0] == 12 - lost


def test_so_many_rounds(worker: FakeWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails anew each time, it ends."""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        count = len(request["program"]["calls"])
        return {"ns": [-1, *[5] * (count - 1)], "failed": {"0": "no"}}

    monkeypatch.setattr(worker, "_answer", answer)
    done = execute(trace_of(*(mm(rows) for rows in range(1, 12))))
    assert len(worker.asked) == 8 and done.rows[0].count == 3


def test_communications_are_given_as_recorded_and_on_a_network() -> None:
    trace = etplus.link(*shared_pair("cpu-pairs/ddp_one.rank0"))
    every = {CallIndex(at) for at in range(len(trace.calls))}
    gloo = [at for at in every if trace.name_at(trace.calls.name[at]).startswith("gloo:")]
    took = sum(int(trace.calls.end[at] - trace.calls.ts[at]) for at in gloo)
    assert RecordedComms.of(trace, every, None) == RecordedComms(len(gloo), took, None)
    assert RecordedComms.of(trace, set(), None) == RecordedComms(0, 0, None)
    on = RecordedComms.of(trace, every, parse_network("bandwidth=1e9,latency=10us")).predicted_ns
    assert on is not None and on % 10_000 < len(gloo) and on >= 10_000 * len(gloo)  # steps, and transfers of 0 ns
