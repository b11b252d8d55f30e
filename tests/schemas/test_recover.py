"""Tolerant reading: what is whole survives unchanged in its place, what is broken comes back right or is counted."""

from __future__ import annotations

import gzip
import json
import random
import re
from typing import Any

import msgspec
import orjson
import pytest
from etplus.schemas.errors import TraceFormatError
from etplus.schemas.inflate import decompress_tolerant
from etplus.schemas.recover import LOSS_KINDS, Loss, Recovered, recover
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support import FIXTURE_PAIRS, fixture_pair, plain, shared_trace

KEY = {"et": "nodes", "kineto": "traceEvents"}
SOUND = [(name, kind) for name in FIXTURE_PAIRS for kind in KEY]
_decode_one = json.JSONDecoder().raw_decode


def spans(text: bytes, key: str) -> list[tuple[int, int]]:
    """Where the records of a valid document lie, found by the standard library's parser."""
    latin = text.decode("latin-1")
    opening = re.search(rf'"{key}"\s*:\s*\[', latin)
    assert opening
    at, found = opening.end(), list[tuple[int, int]]()
    separator = re.compile(r"[\s,]*")
    while True:
        at = separator.match(latin, at).end()  # type: ignore[union-attr]
        if latin[at] == "]":
            return found
        _, end = _decode_one(latin, at)
        found.append((at, end))
        at = end


def records(text: bytes, key: str) -> list[bytes]:
    return [text[begin:end] for begin, end in spans(text, key)]


def recovered(text: bytes, key: str) -> tuple[Recovered, list[bytes]]:
    """The result and its records; both strict decoders must take the document."""
    result = recover(text, key, "trace.json")
    orjson.loads(result.data)
    msgspec.json.decode(result.data)
    assert all(loss.kind in LOSS_KINDS and loss.count > 0 for loss in result.losses)
    return result, records(result.data, key)


def kinds(result: Recovered) -> set[str]:
    return {loss.kind for loss in result.losses}


def fixture(name: str, kind: str) -> bytes:
    return plain(fixture_pair(name)[kind == "kineto"])


def node(name: bytes, number: int = 5) -> bytes:
    """An ET node as PyTorch writes it, but for the spacing between attributes."""
    return (
        b'{\n        "id": %d, "name": "%b", "ctrl_deps": 2,\n        "inputs": {"values": [[8,9,0,16,4,"cpu"],1], '
        b'"shapes": [[4,4],[]], "types": ["Tensor(float)","Int"]},\n        "outputs": {"values": [], "shapes": [], '
        b'"types": []},\n        "attrs": [{"name": "rf_id", "type": "uint64", "value": 7},{"name": "op_schema", '
        b'"type": "string", "value": "aten::add(Tensor self) -> Tensor"}]\n      }' % (number, name)
    )


def event(name: bytes, number: int = 5) -> bytes:
    """A Kineto event as Kineto writes it."""
    return (
        b'{\n    "ph": "X",\n    "cat": "cpu_op",\n    "name": "%b",\n    "pid": 7,\n    "tid": 8,\n    "ts": 12.345,\n'
        b'    "dur": 2.000\n    ,\n    "args": {\n      "External id": %d,"Record function id": 3, "Concrete Inputs": '
        b'["", "[1, 2]"], "Ev Idx": 2\n    }\n  }' % (name, number)
    )


RECORD = {"et": node, "kineto": event}


def document(kind: str, texts: list[bytes]) -> bytes:
    """A document of these records in the writer's layout."""
    if kind == "et":
        body = b",\n      ".join(texts)
        return b'{\n  "schema": "1.1.1", "pid": 7,\n  "nodes": [\n      %b\n  ],\n  "finish_ts": 9\n}' % body
    body = b",\n  ".join(texts)
    return b'{\n  "schemaVersion": 1,\n  "traceEvents": [\n  %b\n  ],"traceName": "t.json" }' % body


def three(kind: str, middle: bytes) -> bytes:
    """A document with `middle` between two sound records."""
    return document(kind, [RECORD[kind](b"aten::mm", 1), middle, RECORD[kind](b"aten::relu", 9)])


def check_three(kind: str, text: bytes) -> tuple[Recovered, dict[str, Any] | None]:
    """Recover `three`: the neighbours must stand unchanged in their places; the middle record, None if it was lost."""
    result, found = recovered(text, KEY[kind])
    assert [found[0], found[-1]] == [RECORD[kind](b"aten::mm", 1), RECORD[kind](b"aten::relu", 9)]
    if kind == "kineto":
        assert len(found) == 3, "a lost event keeps its place"
    middle = orjson.loads(found[1]) if len(found) == 3 else {}
    assert result.lost_records == (not middle)
    return result, middle or None


# Sound documents and whole files


@pytest.mark.parametrize(("name", "kind"), SOUND)
def test_a_sound_file_is_returned_as_it_is(name: str, kind: str) -> None:
    text = fixture(name, kind)
    assert recover(text, KEY[kind]) == Recovered(text, ())


@pytest.mark.parametrize("dump", [
    lambda d: json.dumps(d).encode(),
    lambda d: json.dumps(d, sort_keys=True, indent=1).encode(),
    lambda d: orjson.dumps(d),
    lambda d: json.dumps(d, indent=4).replace("\n", "\r\n").encode(),
], ids=["one line", "sorted", "compact", "CRLF"])  # fmt: skip
@pytest.mark.parametrize("kind", KEY)
def test_other_layouts_are_sound_too(kind: str, dump: Any) -> None:
    text = dump(orjson.loads(fixture("pairs/one_of_n", kind)))
    assert recover(text, KEY[kind]) == Recovered(text, ())


def test_records_that_begin_with_keys_never_seen() -> None:
    text = (
        b'{"traceEvents": [{"zz": 1, "ph": "X"}, {"yy": [{"ph": "X"}, {"ph": 2}]}, {"ph": "i", "name": "a"}, {"x": 1}]}'
    )
    assert recover(text, "traceEvents") == Recovered(text, ())


@pytest.mark.parametrize("pair", ["weird_quotes", "weird_names"])
@pytest.mark.parametrize("kind", KEY)
def test_files_that_pytorch_wrote_broken(pair: str, kind: str) -> None:
    text = plain(shared_trace(f"cpu-pairs/{pair}.{kind}.json.gz"))
    result, _ = recovered(text, KEY[kind])
    assert not result.lost_records and not any(loss.loses_data for loss in result.losses)
    names = {record["name"] for record in orjson.loads(result.data)[KEY[kind]]}
    expected = {
        ("weird_quotes", "et"): {'say "hi"', "back\\slash", "new\nline", "plain"},
        ("weird_quotes", "kineto"): {'say "hi"', "back/slash", "plain"},
        ("weird_names", "et"): {"tab\tname", "unicode é中😀", "", "a<b>&c"},
        ("weird_names", "kineto"): {"", "a<b>&c"},
    }
    assert expected[pair, kind] <= names


@pytest.mark.parametrize(("name", "kind"), SOUND)
def test_all_whole_records_before_a_cut_survive(name: str, kind: str) -> None:
    text = fixture(name, kind)
    where = spans(text, KEY[kind])
    rng = random.Random(f"{name} {kind}")
    cuts = [rng.randrange(where[0][0], where[-1][1]) for _ in range(12)]
    cuts += [where[0][0], where[3][1], where[3][1] + 1, where[-1][1] - 1, where[-1][1], len(text) - 1]
    for cut in cuts:
        result, found = recovered(text[:cut], KEY[kind])
        assert found == [text[begin:end] for begin, end in where if end <= cut]
        assert "truncated" in kinds(result)
        assert result.lost_records == any(begin < cut < end for begin, end in where)


@pytest.mark.parametrize("kind", KEY)
def test_a_real_file_cut_in_the_middle(kind: str) -> None:
    text = plain(shared_trace(f"gpu-pairs/dlrm.rank0.{kind}.json.gz"))
    where = spans(text, KEY[kind])
    _, found = recovered(text[: len(text) // 2], KEY[kind])
    assert found == [text[begin:end] for begin, end in where if end <= len(text) // 2]


# Broken strings

NAMES = [
    (b'say "hi"', 'say "hi"', {"unescaped_quote"}),
    (b'"', '"', {"unescaped_quote"}),
    (b'{"a": 1, "b": 2}', '{"a": 1, "b": 2}', {"unescaped_quote"}),
    (b'f("x", "y")', 'f("x", "y")', {"unescaped_quote"}),
    (b"two\nlines\tand \x01", "two\nlines\tand \x01", {"control_character"}),
    (rb"C:\dir\file", r"C:\dir\file", {"backslash"}),
    (rb"C:\Program\new\table", r"C:\Program\new\table", {"backslash"}),
    (b"C:\\dir\\", "C:\\dir\\", {"backslash"}),
    (b'C:\\new "x"', 'C:\\new "x"', {"backslash", "unescaped_quote"}),
    (b'C:\\new\n"x"', 'C:\\new\n"x"', {"backslash", "unescaped_quote", "control_character"}),
    (b'escaped \\"quote\\"\nnew line', 'escaped "quote"\nnew line', {"control_character"}),
    (b"caf\xe9", "caf\ufffd", {"not_utf8"}),
    (b'\xff"\xfe', '\ufffd"\ufffd', {"not_utf8", "unescaped_quote"}),
    (rb"half a pair \ud83d", r"half a pair \ud83d", {"backslash"}),
]


@pytest.mark.parametrize(("written", "meant", "flaws"), NAMES)
@pytest.mark.parametrize("kind", KEY)
def test_names_written_without_escaping(kind: str, written: bytes, meant: str, flaws: set[str]) -> None:
    result, middle = check_three(kind, three(kind, RECORD[kind](written)))
    assert kinds(result) == flaws
    assert middle == {**orjson.loads(RECORD[kind](b"x")), "name": meant}


@pytest.mark.parametrize("kind", KEY)
def test_the_first_and_the_last_record_are_no_exceptions(kind: str) -> None:
    broken = RECORD[kind](b'say "hi"')
    text = document(kind, [broken] * 3)
    result, found = recovered(text, KEY[kind])
    assert [orjson.loads(record)["name"] for record in found] == ['say "hi"'] * 3
    assert result.losses == (Loss("unescaped_quote", 3, text.index(b'say "hi"') - 1, 'say "hi"'),)
    assert orjson.loads(result.data).keys() == orjson.loads(document(kind, [])).keys()


# `", "` with a key of records after it is the one thing that a name cannot be told apart from the end of a name by
_ENDS_LIKE_A_NAME = re.compile(r'"\s*(,\s*"|[}\]]|$)|\\u|\\$|"\s*:|^\s*:|\x00{4}')


@pytest.mark.parametrize("kind", KEY)
@settings(max_examples=300, deadline=None)
@given(name=st.text(st.sampled_from('ab"\\\n\t:,{}[] né/') | st.characters(codec="utf-8"), max_size=30))
def test_any_name_comes_back_or_is_counted(kind: str, name: str) -> None:
    written = name.encode()
    result, middle = check_three(kind, three(kind, RECORD[kind](written)))
    if not result.losses:
        assert middle == orjson.loads(RECORD[kind](written))
        return
    assume(not _ENDS_LIKE_A_NAME.search(name))
    assert middle is not None
    if "unescaped_quote" in kinds(result) and '\\"' not in name:
        assert middle["name"] == name


@pytest.mark.parametrize("kind", KEY)
def test_a_lost_quote_does_not_merge_fields(kind: str) -> None:
    """A string that runs over its end would take the next fields' names and values into itself."""
    whole = RECORD[kind](b"aten::add")
    expected = orjson.loads(whole)
    for found in re.finditer(b'"', whole):
        result, middle = check_three(kind, three(kind, whole[: found.start()] + whole[found.end() :]))
        assert kinds(result), "it was broken"
        if middle is not None:  # then only texts inside the inputs may differ
            inside = {"inputs", "outputs", "args"}
            assert {k: v for k, v in middle.items() if k not in inside} == {
                k: v for k, v in expected.items() if k not in inside
            }
            if kind == "kineto":
                assert {k: v for k, v in middle["args"].items() if k != "Concrete Inputs"} == {
                    k: v for k, v in expected["args"].items() if k != "Concrete Inputs"
                }


# Broken values and brackets


@pytest.mark.parametrize(
    "word", [b"inf", b"-inf", b"nan", b"-nan(ind)", b"NaN", b"Infinity", b"N/A", b"1e999", b"None"]
)
@pytest.mark.parametrize(("kind", "old", "path"), [
    ("et", b'"cpu"],1]', ("inputs", "values", 1)),
    ("kineto", b'"Ev Idx": 2', ("args", "Ev Idx")),
])  # fmt: skip
def test_numbers_that_json_does_not_have(kind: str, old: bytes, path: tuple[Any, ...], word: bytes) -> None:
    whole = RECORD[kind](b"aten::add")
    digit = old.rindex(b"1" if kind == "et" else b"2")
    result, middle = check_three(kind, three(kind, whole.replace(old, old[:digit] + word + old[digit + 1 :])))
    assert [str(loss.kind) + " " + loss.example for loss in result.losses] == ["bare_number " + word.decode()]
    value: Any = middle
    for step in path:
        value = value[step]
    assert value is None


@pytest.mark.parametrize("kind", KEY)
@pytest.mark.parametrize(("change", "flaw"), [
    (lambda text, at: text[:at] + text[at + 1 :], "missing_comma"),
    (lambda text, at: text[:at] + b"," + text[at:], "extra_comma"),
    (lambda text, at: text[:at] + b"}" + text[at:], "unbalanced_bracket"),
    (lambda text, at: text[:at] + b"]" + text[at:], "unbalanced_bracket"),
    (lambda text, at: text[: at - 1] + text[at:], "unbalanced_bracket"),
])  # fmt: skip
def test_broken_between_two_records(kind: str, change: Any, flaw: str) -> None:
    text = three(kind, RECORD[kind](b"aten::add"))
    comma = spans(text, KEY[kind])[1][1]
    assert text[comma - 1 : comma + 1] == b"},"
    result, middle = check_three(kind, change(text, comma))
    assert kinds(result) == {flaw}
    assert middle == orjson.loads(RECORD[kind](b"aten::add"))


@pytest.mark.parametrize("kind", KEY)
@pytest.mark.parametrize("change", [
    lambda text, at: text[: at - 1] + text[at:],
    lambda text, at: text[:at] + b"}" + text[at:],
    lambda text, at: text[:at] + b"," + text[at:],
], ids=["bracket lost", "bracket too many", "comma too many"])  # fmt: skip
def test_broken_at_the_last_record(kind: str, change: Any) -> None:
    text = fixture("pairs/one_of_n", kind)
    result, found = recovered(change(text, spans(text, KEY[kind])[-1][1]), KEY[kind])
    assert list(map(orjson.loads, found)) == orjson.loads(text)[KEY[kind]]
    assert orjson.loads(result.data) == orjson.loads(text), "the header's rest is there as well"
    assert len(result.losses) == 1


@pytest.mark.parametrize("kind", KEY)
def test_a_missing_value(kind: str) -> None:
    old, path = {"et": (b'"types": ["Tensor(float)","Int"]', "inputs"), "kineto": (b'"Ev Idx": 2', "args")}[kind]
    key = old.split(b":")[0]
    whole = RECORD[kind](b"aten::add")
    result, middle = check_three(kind, three(kind, whole.replace(old, key + b": ")))
    assert kinds(result) == {"missing_value"}
    assert middle is not None and middle[path][key.decode().strip('"')] is None


def test_an_array_that_is_not_closed_in_a_node() -> None:
    """Tensor lists with a lost bracket: the next key shows that the arrays are over."""
    whole = node(b"aten::add")
    result, middle = check_three("et", three("et", whole.replace(b'"cpu"],1], "shapes"', b'"cpu"],1, "shapes"')))
    assert kinds(result) == {"unbalanced_bracket"}
    assert middle == orjson.loads(whole)


@pytest.mark.parametrize("kind", KEY)
@pytest.mark.parametrize("bomb", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 50_000 + b"]" * 50_000])
def test_a_record_nested_without_end_is_dropped(kind: str, bomb: bytes) -> None:
    whole = RECORD[kind](b"aten::add")
    result, middle = check_three(kind, three(kind, whole[:-1] + b',"x":' + bomb + b"}"))
    assert middle is None and kinds(result) == {"dropped_record"}


@pytest.mark.parametrize("kind", KEY)
def test_a_hole_of_zero_bytes(kind: str) -> None:
    """A block that the disk lost: the records that it touches are gone, and only they."""
    text = fixture("pairs/one_of_n", kind)
    where = spans(text, KEY[kind])
    begin = where[10][0] + 40
    end = where[12][0] + 60
    result, found = recovered(text[:begin] + bytes(end - begin) + text[end:], KEY[kind])
    whole = [text[a:b] for a, b in where]
    assert found[:10] == whole[:10] and found[-len(whole[13:]) :] == whole[13:]
    assert result.lost_records and "truncated" not in kinds(result)


@pytest.mark.parametrize("kind", KEY)
def test_every_broken_record_costs_only_itself(kind: str) -> None:
    """Many flaws of all kinds in one real file; a file of several blocks, broken in each."""
    text = fixture("demo/train_cpu", kind)
    body = document(kind, records(text, KEY[kind]) * 8)
    where = spans(body, KEY[kind])
    rng = random.Random(1)
    chosen = sorted(rng.sample(range(len(where)), 60))
    pieces, at = [], 0
    for i in chosen:
        begin, end = where[i]
        name = re.compile(rb'"name"\s*:\s*"').search(body, begin, end)
        assert name
        pieces += [body[at : name.end()], rng.choice([b'"', b'a "b" ', b"\n", rb"\d", b"\xff"])]
        at = name.end()
    result, found = recovered(b"".join([*pieces, body[at:]]), KEY[kind])
    assert len(found) == len(where) and not result.lost_records
    same = [i for i, (begin, end) in enumerate(where) if body[begin:end] == found[i]]
    assert sorted({*range(len(where))} - {*same}) == chosen
    for i in chosen:
        before, after = orjson.loads(body[slice(*where[i])]), orjson.loads(found[i])
        assert after.pop("name").endswith(before.pop("name"))
        assert after == before


@pytest.mark.parametrize("kind", KEY)
def test_flipped_bits_cost_one_record(kind: str) -> None:
    text = fixture("pairs/one_of_n", kind)
    where = spans(text, KEY[kind])
    whole = [text[begin:end] for begin, end in where]
    rng = random.Random(kind)
    for _ in range(150):
        i = rng.randrange(len(where))
        at = rng.randrange(*where[i])
        flipped = text[:at] + bytes([text[at] ^ 1 << rng.randrange(8)]) + text[at + 1 :]
        result, found = recovered(flipped, KEY[kind])
        assert result.lost_records <= 1
        if kind == "kineto" or len(found) == len(whole):
            assert found[:i] == whole[:i] and found[i + 1 :] == whole[i + 1 :]
        else:
            assert found == whole[:i] + whole[i + 1 :]


# The header and the ends of the document


@pytest.mark.parametrize("kind", KEY)
def test_of_two_documents_the_first_counts(kind: str) -> None:
    text = fixture("pairs/one_of_n", kind)
    result, _ = recovered(text + text, KEY[kind])
    assert orjson.loads(result.data) == orjson.loads(text)
    assert kinds(result) == {"trailing_data"}


@pytest.mark.parametrize("kind", KEY)
def test_a_second_document_that_begins_inside_the_first(kind: str) -> None:
    """Two processes that wrote to one file."""
    text = fixture("pairs/one_of_n", kind)
    where = spans(text, KEY[kind])
    cut = where[20][0] + 30
    result, found = recovered(text[:cut] + text, KEY[kind])
    whole = [text[begin:end] for begin, end in where]
    assert found[:20] == whole[:20] and found[-len(whole) + 1 :] == whole[1:]
    assert result.lost_records


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


def test_quotes_in_the_header() -> None:
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


def test_text_between_records() -> None:
    text = document("kineto", [event(b"a", i) for i in range(3)]).replace(b"},\n  {", b"},\nWARNING: slow disk\n  {", 1)
    result, found = recovered(text, "traceEvents")
    assert found == [event(b"a", i) for i in range(3)]
    assert kinds(result) == {"garbage"}


def test_values_that_are_no_events_keep_their_places() -> None:
    values = [b"null", b"[1, [2]]", b'"x"', b"3.5"]
    text = document("kineto", [event(b"a"), *values, event(b"b"), values[1], event(b"c")])
    result, found = recovered(text, "traceEvents")
    assert found == [event(b"a"), *[b"{}"] * 4, event(b"b"), b"{}", event(b"c")]
    assert kinds(result) == {"dropped_record"} and result.lost_records == 5


@pytest.mark.parametrize("text", [
    b"", b"hello", b"[1, 2]", b'{"a": 1}', b'{"nodes": {}}', b'{"nodes": null}', b'{"schema": "1.0', b"\x00\xff",
    b"[" * 9999,
])  # fmt: skip
def test_without_the_array_nothing_can_be_saved(text: bytes) -> None:
    with pytest.raises(TraceFormatError, match=r'^a\.json: byte \d+: no "nodes" array'):
        recover(text, "nodes", "a.json")


@settings(max_examples=300, deadline=None)
@given(
    pieces=st.lists(
        st.sampled_from([
            b'{"ph": "X", ', b'{"id": 1, ', b'"name": ', b'"a"', b", ", b"}", b"{", b"]", b"[", b'"', b"\n", b'"ts": 1',
            b"nan", b"\\", b"\xff", b"\x00" * 5, b": ", b'"traceEvents": [', event(b"x"), b"0",
        ]),
        max_size=40,
    )
)  # fmt: skip
def test_garbage_becomes_a_valid_document(pieces: list[bytes]) -> None:
    result = recover(b'{"traceEvents": [' + b"".join(pieces), "traceEvents")
    assert isinstance(orjson.loads(result.data)["traceEvents"], list)
    assert result.data.count(event(b"x")) <= b"".join(pieces).count(event(b"x"))


def test_a_loss_reads_as_a_sentence() -> None:
    loss = recover(three("et", node(b'say "hi"')), "nodes").losses[0]
    assert str(loss).startswith("1 × unescaped_quote (") and str(loss).endswith("""'say "hi"'""")


# Gzip


def test_whole_streams_of_one_and_of_several_members() -> None:
    text = fixture("pairs/one_of_n", "et")
    members = gzip.compress(text[:1000]) + gzip.compress(b"") + gzip.compress(text[1000:])
    for packed in (gzip.compress(text), members, members + bytes(512)):
        assert decompress_tolerant(packed) == (text, None)


def test_a_cut_stream_gives_all_that_is_there() -> None:
    text = fixture("demo/train_cpu", "kineto")
    packed = gzip.compress(text)
    for share in (0.1, 0.5, 0.9):
        cut = int(len(packed) * share)
        found, broken_at = decompress_tolerant(packed[:cut])
        assert broken_at == cut
        assert text.startswith(found) and len(found) > share * len(text) / 2
    assert decompress_tolerant(packed[:-4]) == (text, len(packed) - 4)


def test_damage_costs_only_what_follows_it() -> None:
    text = random.Random(3).randbytes(100_000).hex().encode()
    packed = gzip.compress(text) + gzip.compress(text)
    half = len(packed) // 2
    at = half + half // 2
    found, broken_at = decompress_tolerant(packed[:at] + b"\xff" * 64 + packed[at + 64 :])
    assert broken_at is not None and at <= broken_at <= len(packed)
    assert found.startswith(text) and len(found) > 1.4 * len(text)


def test_a_limit_stops_a_bomb() -> None:
    packed = gzip.compress(bytes(10_000_000))
    assert len(decompress_tolerant(packed)[0]) == 10_000_000
    with pytest.raises(TraceFormatError, match=r"^b\.gz: byte \d+: expands to over 1000000 bytes"):
        decompress_tolerant(packed, 1_000_000, "b.gz")


def test_what_is_no_gzip_gives_nothing() -> None:
    found, broken_at = decompress_tolerant(b"plain text")
    assert found == b"" and broken_at is not None
