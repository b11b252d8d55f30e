"""Kineto's form of events: categories, headers, and the text of an event with other arguments."""

import msgspec
import orjson
import pytest
from etplus.linker import link
from etplus.schemas.kineto.event_form import (
    counter_name,
    header,
    kineto_threads_of,
    other_events,
    recorded_args,
    shown_text,
    with_arguments,
)
from etplus_files import etplus, step_by_hand
from made_traces import event, kineto_of, op
from support import PID


def test_threads_of_kineto_are_those_of_its_runtime_calls() -> None:
    assert kineto_threads_of(step_by_hand()) == {99: 1}


def test_other_events_are_in_order_of_start_and_outer_ones_first() -> None:
    where = {"pid": 0, "tid": 9}
    events = [event("gpu_user_annotation", name, 3, dur, **where) for name, dur in (("b", 2), ("a", 4), ("odd", -1))]
    trace = link(None, kineto_of([op("aten::mm", 0, 10), *events, event("python_function", "f", 1, 2)]))
    found = [(one.index, one.on_gpu, one.pid, one.tid, one.ts, one.dur) for one in other_events(trace)]
    assert found == [(4, False, PID, 7, 1000, 2000), (2, True, 0, 9, 3000, 4000), (1, True, 0, 9, 3000, 2000)]


def test_the_header_holds_known_fields_with_too_large_numbers_as_floats() -> None:
    assert header(step_by_hand(), 77) == {
        "schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 2}, "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 77,
    }  # fmt: skip
    big = etplus([], rank=2**64, world_size=2**64 - 1, pg_count=-(2**63), nccl_version=-(2**63) - 1, unknown=1)
    info = header(big, 0)["distributedInfo"]
    assert [type(info[key]) for key in ("rank", "world_size", "pg_count", "nccl_version")] == [float, int, int, float]
    assert "unknown" not in info


@pytest.mark.parametrize(
    ("text", "name"),
    [(b'{"ph": "C", "name": "x"}', "x"), (b'{"ph": "X", "name": "x"}', None), (b'{"ph": "C"}', ""), (b"{}", None)],
)
def test_only_counter_events_have_a_counter_name(text: bytes, name: str | None) -> None:
    assert counter_name(text) == name


def test_arguments_are_replaced_and_unchanged_events_keep_their_text() -> None:
    text = b'{"name": "k", "args": {"stream": 7, "flop": 1, "gb": 2}}'
    changed = orjson.loads(with_arguments(text, {"flop": 2.5}, ["flop", "gb"]))
    assert changed == {"name": "k", "args": {"stream": 7, "flop": 2.5}}
    assert with_arguments(text, {"flop": 1, "gb": 2}, ["flop", "gb"]) == text
    assert with_arguments(text, {}, ["other"]) == text
    assert with_arguments(b'{"args":null}', {"flop": 1}, ["flop"]) == with_arguments(b"{}", {"flop": 1}, ["flop"])
    assert with_arguments(b"{}", {"flop": 1}, ["flop"]) == b'{"args":{"flop":1}}'


def test_recorded_arguments_become_texts_without_the_excluded_names() -> None:
    assert recorded_args({"args": msgspec.Raw(b'{"a": 1, "b": "x", "c": 2}')}, {"c"}) == {"a": "1", "b": '"x"'}
    assert recorded_args({}, ()) == {} == recorded_args({"args": msgspec.Raw(b"[1]")}, ())
    assert (shown_text('"a"'), shown_text("[1, 2]")) == (b"a", b"[1,2]")
