"""Rules for traces: each of PyTorch's broken by hand, and the counts of all against a brute force over plain events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from etplus.analysis.trace_rules import check_rules
from etplus.schemas.kineto.read_kineto import read_kineto
from hypothesis import given
from hypothesis import strategies as st
from support import FIXTURE_PAIRS, Document, call, examples, fixture_pair, kineto_document, run

NCCL = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 8, "Out msg nelems": 8, "Group size": 2}


def event(cat: str, name: str, ts: float, dur: float = 1.0, **args: Any) -> Document:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}


def sync(kind: str, ts: float, record: Any = -1, stream: int = 7) -> Document:
    args = {"cuda_sync_kind": kind, "stream": stream, "device": 0, "wait_on_cuda_event_record_corr_id": record}
    return event("cuda_sync", kind, ts, **args)


def launch(ts: float, number: int) -> Document:
    return event("cuda_runtime", "cudaLaunchKernel", ts, **{"External id": number, "correlation": number + 100})


def kernel(ts: float, number: int, dur: float = 1.0, stream: int = 7) -> Document:
    args = {"External id": number, "correlation": number + 100, "stream": stream, "device": 0}
    return event("kernel", "gemm", ts, dur, **args)


def recorded(ts: float, correlation: int) -> Document:
    return event("cuda_runtime", "cudaEventRecord", ts, correlation=correlation)


def backward(ts: float, name: str, number: int) -> Document:
    name = f"autograd::engine::evaluate_function: {name}"
    return event("cpu_op", name, ts, **{"External id": 900 + int(ts), "Sequence number": number})


CASES = {
    "gpu_kernel_causality": [launch(10, 1), kernel(9.5, 1), launch(20, 2), kernel(21, 2)],
    "stream_wait_corr_id_populated": [sync("Event Sync", 5), recorded(1, 3), sync("Stream Wait Event", 6, 3)],
    "stream_sync_overlap": [kernel(10, 1, 5), sync("Stream Sync", 12), sync("Stream Sync", 12, stream=8)],
    "stream_wait_corr_id_in_past": [sync("Stream Wait Event", 6, 3), recorded(7, 3)],
    "nccl_metadata": [event("cpu_op", "record_param_comms", 1, **{k: v for k, v in NCCL.items() if k != "dtype"}),
                      event("cpu_op", "record_param_comms", 2, **NCCL)],
    "backward_seq_id_uniqueness": [backward(1, "A", 5), backward(2, "B", 5), backward(3, "A", 6), backward(4, "A", 6)],
}  # fmt: skip
EXAMPLES = {
    "gpu_kernel_causality": "kernel gemm (External id 1, correlation 101) starts 0.500 µs before its launch "
    "(correlation 101)",
    "stream_wait_corr_id_populated": "Event Sync at 5.000 µs on device 0, stream 7 names no recorded event",
    "stream_sync_overlap": "stream synchronisation on device 0, stream 7 at 12.000 µs, while kernel gemm runs for "
    "3.000 µs more",
    "stream_wait_corr_id_in_past": "Stream Wait Event at 6.000 µs on device 0, stream 7 waits for record 3, made 1.000 "
    "µs later",
    "nccl_metadata": "at 1.000 µs without dtype",
    "backward_seq_id_uniqueness": "sequence number 5: A, B",
}


def document(events: list[Document]) -> bytes:
    return orjson.dumps(kineto_document([event("cpu_op", "aten::mm", 0.0, **{"External id": 1}), *events]))


@pytest.mark.parametrize("rule", CASES)
def test_a_broken_rule_is_counted_and_shown(rule: str) -> None:
    report = check_rules(read_kineto(document(CASES[rule])))
    assert not report.ok
    assert {found.rule: (found.count, found.example) for found in report.rules if found.count} == {
        rule: (1, EXAMPLES[rule])
    }


def brute_force(events: list[Document]) -> dict[str, int]:
    """The rules one event after the other, as PyTorch's validator reads them."""
    counts = dict.fromkeys(CASES, 0)
    first: dict[str, dict[int, float]] = {"cudaLaunchKernel": {}, "gemm": {}}
    records: dict[int, float] = {}
    names: dict[int, set[str]] = {}
    for one in events:
        args, ts = one["args"], one["ts"]
        if one["name"] in first and "External id" in args:
            known = first[one["name"]]
            known[args["External id"]] = min(ts, known.get(args["External id"], ts))
        if one["name"] == "cudaEventRecord":
            records[args["correlation"]] = min(ts, records.get(args["correlation"], ts))
        if "evaluate_function" in one["name"] and args["Sequence number"]:
            names.setdefault(args["Sequence number"], set()).add(one["name"])
        if one["name"] == "record_param_comms":
            counts["nccl_metadata"] += not NCCL.keys() <= args.keys()
    counts["backward_seq_id_uniqueness"] = sum(len(of) > 1 for of in names.values())
    starts = first["cudaLaunchKernel"]
    counts["gpu_kernel_causality"] = sum(
        number in starts and ts < starts[number] for number, ts in first["gemm"].items()
    )
    for wait in (one for one in events if one["cat"] == "cuda_sync"):
        kind, number = wait["name"], wait["args"]["wait_on_cuda_event_record_corr_id"]
        counts["stream_wait_corr_id_populated"] += kind != "Stream Sync" and number < 0
        if kind == "Stream Wait Event" and number >= 0:
            counts["stream_wait_corr_id_in_past"] += records.get(number, 1e9) > wait["ts"]
        for one in events if kind == "Stream Sync" else []:
            same = one["cat"] == "kernel" and one["args"]["stream"] == wait["args"]["stream"]
            counts["stream_sync_overlap"] += same and one["ts"] < wait["ts"] < one["ts"] + one["dur"]
    return counts


_TIMES, _IDS = st.integers(0, 12), st.integers(0, 3)
_EVENTS = st.one_of(
    st.builds(launch, _TIMES, _IDS), st.builds(kernel, _TIMES, _IDS, st.integers(0, 5), st.sampled_from([7, 8])),
    st.builds(sync, st.sampled_from(["Stream Wait Event", "Event Sync", "Stream Sync"]), _TIMES, st.integers(-1, 2)),
    st.builds(recorded, _TIMES, _IDS), st.builds(backward, _TIMES, st.sampled_from("AB"), _IDS),
    st.builds(lambda ts, names: event("cpu_op", "record_param_comms", ts, **{name: NCCL[name] for name in names}),
              _TIMES, st.sets(st.sampled_from(sorted(NCCL)), min_size=3)),
)  # fmt: skip


@given(st.lists(_EVENTS, max_size=15))
@examples(150)
def test_counts_agree_with_brute_force(events: list[Document]) -> None:
    report = check_rules(read_kineto(document(events)))
    assert {rule.rule: rule.count for rule in report.rules} == brute_force(events) | {"possible_times": 0}


@pytest.mark.parametrize("name", FIXTURE_PAIRS)
def test_recorded_traces_break_no_rule(name: str) -> None:
    """But the synthetic GPU waits once for an event recorded before the window."""
    counts = [rule.count for rule in check_rules(read_kineto(fixture_pair(name)[1])).rules]
    assert counts == [0, 0, 0, int("gpu_shaped" in name), 0, 0, 0]


def test_the_command(tmp_path: Path) -> None:
    """With all cases in one trace another one's earlier record is found for the wait."""
    (tmp_path / "bad.json").write_bytes(document([one for case in CASES.values() for one in case]))
    done = run("etplus", "check", tmp_path / "bad.json", "--json", tmp_path / "rules.json")
    assert done.returncode == 1 and not done.stderr
    assert done.stdout.decode().splitlines()[-1] == "failed: 5 of 7 rules broken"
    written = json.loads((tmp_path / "rules.json").read_bytes())
    assert not written["ok"] and sum(bool(rule["count"] and rule["example"]) for rule in written["rules"]) == 5
    kineto = fixture_pair("demo/train_cpu")[1]
    done = call("check", kineto)
    assert done.returncode == 0 and done.stdout.decode().splitlines()[-1] == "passed: no rule broken"


def test_two_kinds_of_traces_are_not_checked_together(tmp_path: Path) -> None:
    (tmp_path / "job.0.et").write_bytes(b"")
    done = call("check", fixture_pair("demo/train_cpu")[1], tmp_path / "job.0.et")
    assert done.returncode == 2
    assert b"is a Kineto trace and" in done.stderr and done.stderr.count(b"\n") == 1
