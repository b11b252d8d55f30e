"""Which events are kept, and what is kept of them: the fast decoder, the general one, and broken events."""

import json
from typing import Any

import msgspec
import pytest
from etplus.schemas.kineto.corrections import GRAPH_ARROW
from etplus.schemas.kineto.kineto_decode import MODULE, decode_any, decode_plain, read_events
from etplus.schemas.kineto.kineto_events import EventColumns

MEMORY = {"Bytes": -64, "Addr": 5, "Total Allocated": 6, "Total Reserved": 7, "Device Type": 1, "Device Id": 0}
EVENTS: list[dict[str, Any]] = [
    {"ph": "M", "name": "process_name"},
    {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 2, "ts": 1.5, "dur": 2, "args": {"Sequence number": 4}},
    {"ph": "X", "cat": "python_function", "name": "f", "pid": 1, "tid": 2, "ts": 1, "dur": 2},
    {"ph": "X", "cat": "python_function", "name": f"{MODULE}M_0", "pid": 1, "tid": 2, "ts": 1, "dur": 2},
    {"ph": "s", "cat": "ac2g", "id": 7, "pid": 1, "tid": 2, "ts": 3},
    {"ph": "f", "cat": "ac2g", "id": 7, "pid": 0, "tid": 7, "ts": 4},
    {"ph": "f", "cat": "ac2g", "id": GRAPH_ARROW, "pid": 0, "tid": 7, "ts": 5},
    {"ph": "f", "cat": "fwdbwd", "id": 9, "pid": 1, "tid": 3, "ts": 6.25},
    {"ph": "i", "name": "[memory]", "pid": 1, "tid": 2, "ts": 7, "args": MEMORY},
    {"ph": "i", "name": "else", "pid": 1, "tid": 2, "ts": 7},
    {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": "stream 7", "ts": 8, "dur": 1,
     "args": {"correlation": 7, "stream": 7, "device": 0, "External id": 3}},
]  # fmt: skip


def tables(columns: EventColumns) -> dict[str, Any]:
    part = columns.part()
    names = {key: part.values[key] for key in ("category", "name", "thread")}

    def plain(table: dict[str, Any]) -> dict[str, Any]:
        return {
            key: [names[key][code] for code in column] if key in names else column.tolist()
            for key, column in table.items()
        }

    return {
        "count": columns.count,
        "phases": dict(+columns.phases),
        **{key: plain(getattr(part, key)) for key in ("events", "flows", "memory")},
    }


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("modules", [True, False])
def test_both_decoders_keep_the_same_events_flows_and_memory(plain: bool, modules: bool) -> None:
    assert read_events([], modules=modules).flows["id"].tolist() == []
    columns, text = EventColumns(), json.dumps(EVENTS).encode()
    if plain:
        assert decode_plain(text, columns, modules=modules)
    else:
        decode_any(text, columns, modules=modules)
    found = tables(columns)
    assert found["count"] == 11 and found["phases"] == {"M": 1, "f": 1, "i": 1}, "the end of a launch, an instant"
    events = found["events"]
    assert events["index"] == ([1, 3, 10] if modules else [1, 10])
    assert (events["ts"][0], events["dur"][0], events["seq"][0], events["thread"][0]) == (1500, 2000, 4, (1, 2))
    last = {key: events[key][-1] for key in ("correlation", "stream", "device", "external_id", "thread", "category")}
    assert last == {
        "correlation": 7, "stream": 7, "device": 0, "external_id": 3, "thread": (0, "stream 7"), "category": "kernel",
    }  # fmt: skip
    assert found["flows"] == {
        "start": [True, False, False], "id": [7, GRAPH_ARROW, 9], "ts": [3000, 5000, 6250],
        "category": ["ac2g", "ac2g", "fwdbwd"], "thread": [(1, 2), (0, 7), (1, 3)],
    }  # fmt: skip
    assert found["memory"] == {
        "index": [8], "ts": [7000], "thread": [(1, 2)], "bytes": [-64], "address": [5], "allocated": [6],
        "reserved": [7], "device_type": [1], "device": [0],
    }  # fmt: skip


@pytest.mark.parametrize(
    "event",
    [{"ph": "X", "ts": 2**53 / 1000}, {"ph": "X", "args": {"stream": "7"}}, {"ph": "Q"}, {"ph": "X", "args": None},
     {"ph": "i", "name": "[memory]", "args": 7}],
)  # fmt: skip
def test_a_part_that_the_fast_decoder_refuses_adds_nothing(event: dict[str, Any]) -> None:
    columns = EventColumns()
    assert not decode_plain(json.dumps([EVENTS[1], event]).encode(), columns, modules=True)
    assert tables(columns) == tables(EventColumns())


def test_times_since_the_epoch_keep_their_decimals() -> None:
    text, columns = b'[{"ph": "X", "ts": 1695835585783692.25, "dur": 0.125}]', EventColumns()
    decode_any(text, columns, modules=False)
    found = tables(columns)["events"]
    assert (found["ts"], found["dur"]) == ([1695835585783692250], [125])
    assert read_events([(0, 1, b'[{"ph": "X", "ts": 4611686018427387.903}]')], modules=False).events["ts"] == 2**62 - 1
    with pytest.raises(msgspec.ValidationError, match="a time of over 146 years"):
        decode_any(b'[{"ph": "X", "ts": 4611686018427387.904}]', EventColumns(), modules=False)


BROKEN = [
    ({"ph": "X", "ts": 2**62}, "a time of over 146 years"), ({"ph": "s", "ts": -(2**62)}, "a time of over 146 years"),
    ({"ph": "X", "dur": 2.0**44}, "which is over 104 days"), ({"ph": "X", "args": [1]}, "`args` that are not an"),
    ({"ph": "i", "name": "[memory]"}, 'has no "Bytes"'), ({"ph": 7}, "Expected `str`"),
]  # fmt: skip


@pytest.mark.parametrize(("event", "problem"), BROKEN)
def test_a_broken_event_is_left_out_and_described(event: dict[str, Any], problem: str) -> None:
    text, wrong = json.dumps([EVENTS[1], event, EVENTS[10], EVENTS[2], EVENTS[8]]).encode(), list[Exception]()
    part = read_events([(10, 20, text), (20, 30, text)], modules=False, invalid=wrong.append)
    assert part.events["index"].tolist() == [0, 2, 5, 7] and part.spans == [(10, 20, 5), (20, 30, 5)]
    assert [table["index"].tolist() for table in (part.frames, part.memory)] == [[3, 8], [4, 9]]
    assert len(wrong) == 2 and problem in str(wrong[0])
    with pytest.raises((msgspec.MsgspecError, UnicodeDecodeError)):
        read_events([(10, 20, text)], modules=False)


@pytest.mark.parametrize(
    "event",
    [{"ph": "X", "cat": "python_function", "ts": -1}, {"ph": "f", "cat": "ac2g", "id": 1, "ts": 2**62},
     {"ph": "X", "ts": -0.0001}, {"ph": "i", "name": "x", "ts": -1}, {"ph": "X", "args": None}],
)  # fmt: skip
def test_odd_values_that_nothing_reads_do_not_make_an_event_broken(event: dict[str, Any]) -> None:
    text, wrong = json.dumps([EVENTS[1], event, {"ph": "X", "ts": -5}]).encode(), list[Exception]()
    read_events([(0, 1, text)], modules=True, invalid=wrong.append)
    assert [str(one) for one in wrong] == ["a negative time stamp"], "of the last event alone"
