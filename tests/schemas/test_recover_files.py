"""Tolerant reading of whole files: sound, cut, damaged all over, with broken headers, or no traces at all."""

import random

import orjson
import pytest
from broken_records import KEY, document, event, fixture, kinds, lost_records, node, records, recovered, spans
from etplus.schemas.text.recover import Recovered, recover
from etplus.trace.errors import TraceFormatError


@pytest.mark.parametrize("kind", KEY)
def test_a_sound_file_is_returned_as_it_is(kind: str) -> None:
    text = fixture("demo/train_cpu", kind)
    assert recover(text, KEY[kind]) == Recovered(text, ())


@pytest.mark.parametrize("kind", KEY)
def test_all_whole_records_before_a_cut_survive(kind: str) -> None:
    text = document(kind, records(fixture("demo/train_cpu", kind), KEY[kind])[:40])
    where = spans(text, KEY[kind])
    rng = random.Random(kind)
    cuts = [rng.randrange(where[0][0], where[-1][1]) for _ in range(12)]
    cuts += [where[0][0], where[3][1], where[3][1] + 1, where[-1][1] - 1, where[-1][1], len(text) - 1]
    for cut in cuts:
        result, found = recovered(text[:cut], KEY[kind])
        assert found == [text[begin:end] for begin, end in where if end <= cut]
        assert "truncated" in kinds(result)
        assert lost_records(result) == any(begin < cut < end for begin, end in where)


@pytest.mark.parametrize("kind", KEY)
def test_records_around_a_hole_of_zero_bytes_survive(kind: str) -> None:
    text = fixture("pairs/one_of_n", kind)
    where = spans(text, KEY[kind])
    begin = where[10][0] + 40
    end = where[12][0] + 60
    result, found = recovered(text[:begin] + bytes(end - begin) + text[end:], KEY[kind])
    whole = [text[a:b] for a, b in where]
    assert found[:10] == whole[:10] and found[-len(whole[13:]) :] == whole[13:]
    assert lost_records(result) and "truncated" not in kinds(result)


# The header and the ends of the document


def test_only_the_first_of_two_documents_in_a_file_is_kept() -> None:
    text = fixture("pairs/one_of_n", "et")
    result, _ = recovered(text + text, "nodes")
    assert orjson.loads(result.data) == orjson.loads(text)
    assert kinds(result) == {"trailing_data"}


@pytest.mark.parametrize("kind", KEY)
def test_zero_bytes_and_a_byte_order_mark_around_the_document(kind: str) -> None:
    text = fixture("pairs/one_of_n", kind)
    result, _ = recovered(b"\xef\xbb\xbf" + text.replace(b"}", b"},", 1) + bytes(100), KEY[kind])
    assert orjson.loads(result.data).keys() == orjson.loads(text).keys()


def test_a_closing_bracket_of_the_array_that_is_missing() -> None:
    text = fixture("pairs/one_of_n", "et")
    where = spans(text, "nodes")
    assert text.count(b"]", where[-1][1]) == 1
    broken = text[: where[-1][1]] + text[where[-1][1] :].replace(b"]", b"")
    result, found = recovered(broken, "nodes")
    assert found == [text[begin:end] for begin, end in where]
    assert kinds(result) == {"unbalanced_bracket"}
    assert orjson.loads(result.data)["finish_ts"] == orjson.loads(text)["finish_ts"]


def test_unescaped_quotes_in_the_header_are_repaired() -> None:
    devices = b'"deviceProperties": [{"id": 0, "name": "GPU "X""}]'
    text = b'{"schemaVersion": 1, %b,\n"traceEvents": [%b],"traceName": "a"b" }' % (devices, event(b"a"))
    result, found = recovered(text, "traceEvents")
    header = orjson.loads(result.data)
    assert found == [event(b"a")]
    assert header["deviceProperties"] == [{"id": 0, "name": 'GPU "X"'}] and header["traceName"] == 'a"b'


def test_a_header_beyond_repair_keeps_its_simple_fields() -> None:
    text = b'{"schema": "1.0.1", "pid": 7, "x": [}{]:, "start_ts": 3, "nodes": [%b], "finish_ts": 4, "y": :' % node(
        b"a"
    )
    result, found = recovered(text, "nodes")
    document = orjson.loads(result.data)
    del document["nodes"]
    assert found == [node(b"a")]
    assert document == {"schema": "1.0.1", "pid": 7, "start_ts": 3, "finish_ts": 4}
    assert {"header", "truncated"} <= kinds(result)


def test_an_array_of_the_same_name_inside_the_header() -> None:
    text = b'{"distributedInfo": {"nodes": [{"id": 9}]}, "schema": "1.0.1", "nodes": [%b,,%b]}' % (
        node(b"a"),
        node(b"b"),
    )
    result = recover(text, "nodes")
    assert result.data == text.replace(b",,", b",\n")
    assert kinds(result) == {"extra_comma"}


def test_text_between_records_is_dropped_and_called_garbage() -> None:
    text = document("kineto", [event(b"a", i) for i in range(3)]).replace(b"},\n  {", b"},\nWARNING: slow disk\n  {", 1)
    result, found = recovered(text, "traceEvents")
    assert found == [event(b"a", i) for i in range(3)]
    assert kinds(result) == {"garbage"}


def test_values_that_are_no_events_keep_their_places() -> None:
    values = [b"null", b"[1, [2]]", b'"x"', b"3.5"]
    text = document("kineto", [event(b"a"), *values, event(b"b"), values[1], event(b"c")])
    result, found = recovered(text, "traceEvents")
    assert found == [event(b"a"), *[b"{}"] * 4, event(b"b"), b"{}", event(b"c")]
    assert kinds(result) == {"dropped_record"} and lost_records(result) == 5


@pytest.mark.parametrize("text", [
    b"hello", b"[1, 2]", b'{"a": 1}', b'{"nodes": {}}', b'{"nodes": null}', b"\x00\xff",
])  # fmt: skip
def test_text_without_the_array_of_nodes_is_refused(text: bytes) -> None:
    with pytest.raises(TraceFormatError, match=r'^a\.json: byte 0: no "nodes" array'):
        recover(text, "nodes", "a.json")


@pytest.mark.parametrize("text", [b"", b'{"schema": "1.0', b"[" * 9999])
def test_a_file_cut_off_before_the_array_ends_at_its_last_byte(text: bytes) -> None:
    with pytest.raises(TraceFormatError, match=rf'^a\.json: byte {len(text)}: the file is cut off before its "nodes"'):
        recover(text, "nodes", "a.json")
