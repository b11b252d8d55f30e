"""Durations that no event has, and sums that 64 bits do not hold: every reader says so, and none computes with them."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import etplus
import orjson
import pytest
from etplus.converters.conversion import convert
from etplus.linker import link
from etplus.schemas.kineto.read_kineto import read_kineto
from etplus.schemas.nsys import read_nsys
from etplus.trace.errors import TraceFormatError
from nsys_files import small_export
from support import fixture_pair, plain

ET, KINETO = map(plain, fixture_pair("pairs/gpu_shaped_from_cpu"))
STRANGE = ["1e15", "9" * 400, "-Infinity"]
"""Numbers of µs: 31 years, what doubles cannot hold, and what is no JSON."""
_US = re.compile(rb'"dur":\s*([\d.]+)')


def with_duration(text: bytes, us: str, nth: int = 30) -> bytes:
    found = list(_US.finditer(text))[nth]
    return text[: found.start(1)] + us.encode() + text[found.end(1) :]


@pytest.mark.parametrize("us", STRANGE)
def test_an_event_of_kineto_is_left_out_and_counted(us: str) -> None:
    sound, broken = read_kineto(KINETO), read_kineto(with_duration(KINETO, us))
    assert len(broken.events) == len(sound.events) - 1
    assert [(loss.kind, loss.count) for loss in broken.losses][-1] == ("dropped_record", 1)
    wording = "a duration of 1000000000000000 µs, which is over 104 days, of 'aten::randint'"
    assert us != "1e15" or broken.losses[0].example == wording
    assert broken.events.end.max() == sound.events.end.max()
    with pytest.raises(TraceFormatError, match="not a Kineto trace that can be read: "):
        read_kineto(with_duration(KINETO, us), strict=True)


def test_events_that_64_bits_cannot_add_up_are_refused() -> None:
    us = 2**53 // 1000
    events = [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": t, "ts": 1, "dur": us} for t in range(600)]
    with pytest.raises(TraceFormatError, match="durations that add up to over 146 years"):
        read_kineto(orjson.dumps({"traceEvents": events}))
    assert int(read_kineto(orjson.dumps({"traceEvents": events[:300]})).events.dur.sum()) == 300 * us * 1000
    parts = [{**events[0], "tid": t, "dur": 4503599627370.496} for t in range(1024)]  # 2**52 ns each
    with pytest.raises(TraceFormatError, match="durations that add up to over 146 years"):
        read_kineto(orjson.dumps({"traceEvents": parts}))


@pytest.mark.parametrize("us", STRANGE)
def test_an_impossible_duration_in_an_etplus_file_is_refused_with_the_place(us: str) -> None:
    text = with_duration(b"".join(link(ET, KINETO).chunks()), us)
    with pytest.raises(TraceFormatError, match=r"^<bytes>: (nodes\[33\]: .*dur|not an ET\+ file .*byte \d+)"):
        etplus.load(text)


def test_unattached_events_of_an_etplus_file_are_checked_too() -> None:
    document = link(ET, KINETO).to_dict()
    event = {"name": "k", "cat": "kernel", "ts": 1.0, "dur": 9e12, "reason": "no launcher in the trace"}
    assert etplus.load(orjson.dumps(document | {"unattached": [event]})).unattached.dur.tolist() == [0], "over a day"
    for unattached in ([event | {"dur": 1e15}], [event] * 600):
        with pytest.raises(TraceFormatError, match=r'"unattached": .*(104 days|add up to over 146 years)'):
            etplus.load(orjson.dumps(document | {"unattached": unattached}))


def test_an_impossible_duration_in_a_chakra_trace_is_refused_with_the_node(tmp_path: Path) -> None:
    from etplus.schemas.chakra.stream import read_chakra, write_chakra

    convert(link(ET, KINETO), tmp_path / "sound.et", to="chakra", as_prefix=False)
    metadata, messages = read_chakra(tmp_path / "sound.et")
    nodes = list(messages)
    timed = next(node for node in nodes if node.duration_micros)
    next(attribute for attribute in timed.attr if attribute.name == "inclusive_ns").int64_val = 10**18
    write_chakra(tmp_path / "long.et", metadata, nodes)
    with pytest.raises(TraceFormatError, match=rf"long\.et: node {timed.id}: .*104 days"):
        etplus.load(tmp_path / "long.et")


def test_an_impossible_duration_in_an_nsys_export_is_refused_with_the_event(tmp_path: Path) -> None:
    path = small_export(tmp_path / "long.sqlite")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start + 1000000000000000000")
    with pytest.raises(TraceFormatError, match=r"a duration of 1000000000000000 µs, which is over 104 days, of '"):
        read_nsys(path)


def test_an_et_with_an_impossible_finish_time_still_links_completely() -> None:
    started = re.sub(rb'"finish_ts":\s*\d+', b'"finish_ts": ' + b"9" * 400, ET)
    assert started != ET and link(started, KINETO).report.linked_share == 1
