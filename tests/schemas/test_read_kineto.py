"""Kineto traces of both generations: the event table against a plain JSON reader that keeps every decimal."""

import json
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pytest
from etplus.schemas.kineto.kineto_events import is_runtime
from etplus.schemas.kineto.read_kineto import KinetoTrace, read_kineto
from etplus.schemas.text import recover
from etplus.schemas.text.records import RecordArray
from etplus.trace.conventions import GPU_CATEGORIES
from etplus.trace.errors import TraceFormatError
from hypothesis import given
from hypothesis import strategies as st
from support import Document, examples, kineto_document, plain, shared_trace

ARGS = {"external_id": "External id", "rf_id": "Record function id", "seq": "Sequence number",
        "correlation": "correlation", "stream": "stream", "device": "device"}  # fmt: skip
CPU_ARGS, OTHER_ARGS = {"external_id", "rf_id", "seq"}, {"external_id", "correlation", "stream", "device"}
"""What operators and annotations can have, and what all other events can have: nothing else is read from them."""


def exact_ns(value: Any) -> int:
    return int((Decimal(value) * 1000).to_integral_value())


OP = {"ph": "X", "cat": "cpu_op"}


def check(data: bytes) -> KinetoTrace:
    whole = json.loads(data, parse_float=Decimal)["traceEvents"]
    trace = read_kineto(data)
    events = trace.events
    wanted = [(i, e) for i, e in enumerate(whole) if e.get("ph") == "X" and e.get("cat") != "python_function"]
    assert trace.event_count == trace.account.total == len(whole) and not trace.losses
    assert events.index.tolist() == [i for i, _ in wanted]
    assert events.ts.tolist() == [exact_ns(e.get("ts", 0)) for _, e in wanted]
    assert events.dur.tolist() == [exact_ns(e.get("dur", 0)) for _, e in wanted]
    assert [events.categories[c] for c in events.category] == [e.get("cat", "") for _, e in wanted]
    assert [events.names[c] for c in events.name] == [e.get("name", "") for _, e in wanted]
    assert [events.threads[c] for c in events.thread] == [(e.get("pid", -1), e.get("tid", -1)) for _, e in wanted]
    on_device = events.mask(GPU_CATEGORIES)
    for column, key in ARGS.items():
        kinds = [CPU_ARGS if e.get("cat") in ("cpu_op", "user_annotation") else OTHER_ARGS for _, e in wanted]
        given = [(e.get("args") or {}).get(key) for _, e in wanted]
        values = [value if column in kind else -1 for value, kind in zip(given, kinds, strict=True)]
        values = [int(v) if type(v) is Decimal and v == int(v) else v for v in values]
        expected = [v if type(v) is int and -(2**63) <= v < 2**63 else -1 for v in values]
        found = getattr(events, column)
        if column in ("device", "stream"):  # GPU events get what they lack from their process and thread
            expected = [-1 if lacks and v < 0 else v for lacks, v in zip(on_device, expected, strict=True)]
            found = np.where(on_device & (np.array(expected) < 0), -1, found)
        assert found.tolist() == expected, column
    for row, (_, event) in enumerate(wanted):
        assert json.loads(events.args_of(np.array([row]))[0], parse_float=Decimal) == event.get("args", {})
    check_flows(trace, whole)
    return trace


def check_flows(trace: KinetoTrace, whole: list[Document]) -> None:
    flows, events = trace.flows, trace.events
    kept = [e for e in whole if e.get("ph") == "s" or (e.get("ph") == "f" and e.get("cat") != "ac2g")]
    assert flows.start.tolist() == [e["ph"] == "s" for e in kept]
    assert flows.id.tolist() == [e.get("id", -1) for e in kept]
    assert flows.ts.tolist() == [exact_ns(e["ts"]) for e in kept]
    assert [events.categories[c] for c in flows.category] == [e.get("cat", "") for e in kept]
    assert [events.threads[c] for c in flows.thread] == [(e["pid"], e["tid"]) for e in kept]


def events_of(*events: Document) -> bytes:
    return json.dumps(kineto_document(list(events))).encode()


@pytest.mark.parametrize("name", ["cuda_event_sync", "mi250_minitoy"])
def test_real_gpu_traces_have_the_same_events_as_plain_json(name: str) -> None:
    assert check(plain(shared_trace(f"gpu-kineto/{name}.json.gz"))).modern == (name != "cuda_event_sync")


def test_times_are_wall_clock_with_and_without_a_base_time() -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "dur": 1}
    old = {"schemaVersion": 1, "traceEvents": [{**event, "ts": 1_700_000_000_123_456}]}
    new = {"baseTimeNanoseconds": 1_700_000_000_000_000_000, "traceEvents": [{**event, "ts": 123456.0}]}
    traces = [read_kineto(orjson.dumps(document)) for document in (old, new)]
    assert len({trace.base_time_ns + int(trace.events.ts[0]) for trace in traces}) == 1


@examples(60)
@given(st.lists(st.integers(0, 2**62 - 1), min_size=1, max_size=4), st.integers(0, 3))
def test_times_are_read_exactly_to_the_ns(times: list[int], digits: int) -> None:
    times = [t - t % 10 ** (3 - digits) for t in times]
    written = [f"{t // 1000}.{t % 1000:03d}"[: None if digits == 3 else digits - 3 - (digits == 0)] for t in times]
    events = ",".join(f'{{"ph": "X", "cat": "cpu_op", "ts": {us}, "dur": 0}}' for us in written)
    assert read_kineto(f'{{"traceEvents": [{events}]}}'.encode()).events.ts.tolist() == times


def test_pids_as_numbers_and_as_texts_are_different_threads() -> None:
    trace = check(events_of(*({"ph": "X", "cat": "cpu_op", "ts": 1, "dur": 1, "pid": pid} for pid in (7, "7", 7))))
    assert trace.events.thread.tolist() == [0, 1, 0]


ODD = ["5", 5.5, True, None, [5], {"a": 5}, 2**64, -(2**63) - 1, 1e300]
WHOLE = [5.0, 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)]


@pytest.mark.parametrize("number", [*ODD, *WHOLE])
def test_whole_numbers_are_exact_and_others_count_as_missing(number: Any) -> None:
    for category in ("kernel", "cpu_op"):
        event = {"ph": "X", "cat": category, "ts": 1, "dur": 1, "args": dict.fromkeys(ARGS.values(), number)}
        check(events_of(event))
        check(events_of(event, {**event, "args": dict.fromkeys(ARGS.values(), "0x1")}))


def test_unusual_events_between_plain_ones_are_read_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = {"ph": "X", "cat": "kernel", "name": "k" * 90, "ts": 1.5, "dur": 2.25, "args": {"stream": 7}}
    odd = [{"ph": "?", "ts": []}, {**plain, "args": {"stream": "0x0"}}, {**plain, "ts": 1_700_000_000_000_000.125}]
    before, after = ([{**plain, "ts": ts + 0.5} for ts in range(at, at + 90)] for at in (0, 5000))
    monkeypatch.setattr(RecordArray.blocks, "__defaults__", (None, 5000))
    for name in ("_PART", "_LEAST_PART"):
        monkeypatch.setattr(recover, name, 5000)
    for one in odd[1:]:
        assert len(check(events_of(*before, one, *after)).events) == 181
    with pytest.raises(TraceFormatError):
        read_kineto(events_of(plain, odd[0]), strict=True)


def test_events_without_args_are_read_and_those_without_phase_are_not() -> None:
    trace = check(events_of(OP, {**OP, "args": None}, {**OP, "args": {}}, {"name": "no phase"}, {}))
    assert len(trace.events) == 3 and trace.event_count == 5
    assert trace.events.args_of(np.array([0]))[0] == b"{}"
    records = read_kineto(events_of(OP, {**OP, "cat": "Trace"}, {**OP, "name": "Trace"})).events.records
    assert [index for index, _ in records.others(frozenset({"Trace"}))] == [1]


def test_an_unfinished_event_ends_where_it_starts() -> None:
    trace = check(events_of({**OP, "ts": 5, "dur": -1}, {**OP, "ts": 6, "dur": 2}))
    assert (trace.events.dur.tolist(), trace.events.end.tolist()) == ([-1000, 2000], [5000, 8000])


def test_args_are_kept_byte_for_byte() -> None:
    odd = b'{ "a" : 1.50, "b":[1,2 ],\n"c":"\\u00e9" }'
    text = b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "args": %b, "name": "a"}, {"ph": "X", "args": {}}]}' % odd
    assert read_kineto(text).events.args_of(np.array([0])) == [odd]


def test_calls_of_runtimes_and_drivers_are_known_by_category() -> None:
    assert all(map(is_runtime, ("cuda_runtime", "xpu_driver", "privateuse1_runtime", "hip_api", "hpu_op")))
    assert not any(map(is_runtime, ("mtia_ccp_events", "collective_comm", "xpu_sync", "kernel", "")))


@pytest.mark.parametrize("base", [None, "5", 1.5])
def test_a_base_time_that_is_no_integer_counts_as_0_and_is_reported(base: Any) -> None:
    trace = read_kineto(orjson.dumps(kineto_document([OP], baseTimeNanoseconds=base)))
    assert trace.base_time_ns == 0 and [(loss.kind, loss.count) for loss in trace.losses] == [("header", 1)]


@pytest.mark.parametrize("text", [b"no json", b"[]", b"{}", b"null", b'{"traceEvents": 1}', b'{"traceEvents": {}}'])
def test_input_that_is_no_kineto_trace_is_refused_in_one_line(text: bytes) -> None:
    with pytest.raises(TraceFormatError) as caught:
        read_kineto(text)
    assert caught.value.file == "<bytes>" and "\n" not in str(caught.value)
    with pytest.raises(TraceFormatError, match="no events"):
        read_kineto(b'{"traceEvents": []}')


@pytest.mark.parametrize("where", ["header", "args"])
def test_absurd_nesting_is_an_error_not_a_crash(where: str) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    event = '{"ph": "X", "name": "a", "args": {"x": %s}}' % (deep if where == "args" else "1")
    text = f'{{"x": {deep if where == "header" else "1"}, "traceEvents": [{event}]}}'
    with pytest.raises(TraceFormatError):
        read_kineto(text.encode(), strict=True)
