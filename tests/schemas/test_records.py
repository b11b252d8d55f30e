"""Records of a document, found without parsing: whatever the layout, they are those that a parser finds."""

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from etplus.schemas.text.records import RecordArray, locate, opening, parse_records
from hypothesis import example, given
from hypothesis import strategies as st
from support import examples

Record = dict[str, Any]

RECORDS: list[Record] = [
    {"id": 1, "name": "a", "attrs": [{"name": "x", "value": 1}, {"name": "y", "value": [{"id": 3}, {"id": 4}]}]},
    {"id": 2, "name": '}, {"id": 9', "attrs": []},
    {"id": 3, "name": "\\", "attrs": [{"id": 1}, {"id": 2}]},
    {"id": 4, "name": "]}", "attrs": [{}]},
]


def check(data: bytes, key: str, header: Record, records: list[Record], *, located: bool | None = None) -> None:
    """Hold both ways of finding records against what the document was made of; `locate` may give up if it is None."""
    found_header, found, (begin, end) = parse_records(data, key)
    assert {k: json.loads(bytes(v)) for k, v in found_header.items()} == header
    assert [json.loads(text) for text in found.texts] == records
    assert [data[a:b] for a, b in zip(found.start, found.end, strict=True)] == found.texts
    assert data[begin - 1 : begin] == b"[" and data[end : end + 1] == b"]"
    assert json.loads(data[begin - 1 : end + 1]) == records

    array = locate(data, key)
    texts = None if array is None else texts_of(array)
    if located is not None:
        assert (texts is not None) == located
    if array is not None and texts is not None:
        assert [json.loads(text) for text in texts] == records
        assert {k: json.loads(bytes(v)) for k, v in array.header.items()} == header
        assert json.loads(b"[" + data[array.body : array.end] + b"]") == records


def texts_of(array: RecordArray) -> list[bytes] | None:
    """The records' texts by block; None where a block does not decode, which sends readers to the parser."""
    try:
        spans = [(a, b, len(msgspec.json.decode(block, type=list[msgspec.Raw]))) for a, b, block in array.arrays()]
    except msgspec.DecodeError:
        return None
    texts = array.texts(spans)
    cuts = map(texts.cut, range(texts.block_count))
    unclosed = [opener + piece for opener, pieces in cuts for piece in pieces]
    whole = texts.of(np.arange(len(texts)))
    assert all(text == text.rstrip() for text in unclosed)
    assert [text[:-1].rstrip() for text in whole] == unclosed and {text[-1:] for text in whole} <= {b"}"}
    assert texts.of(np.arange(len(texts))[::-2]) == whole[::-2]
    return [text + b"}" for text in unclosed]


def pytorch_text(records: list[Record]) -> str:
    """The layout of PyTorch's own writer: one key a line at the outside, compact values."""
    nodes = ",".join(
        "\n    {\n      " + ",\n      ".join(f'"{k}": {json.dumps(v)}' for k, v in record.items()) + "\n    }"
        for record in records
    )
    return f'{{\n  "schema": "1.0.3", "pid": 7,\n  "nodes": [{nodes}\n  ],\n  "finish_ts": 5\n}}\n'


HEADER = {"schema": "1.0.3", "pid": 7, "finish_ts": 5}


def test_records_of_any_layout_are_found() -> None:
    for ending in ("\n", "\r\n", "\n\n", "\t\n"):
        check(pytorch_text(RECORDS).replace("\n", ending).encode(), "nodes", HEADER, RECORDS, located=True)
    spaced = b'{"nodes": [{"id": 1}, {"name": "b", "id": 2},{"id": 3} , {\n"id": 4}, {}, { "id": 6 }]}'
    check(spaced, "nodes", {}, json.loads(spaced)["nodes"])
    escaped = [{'a"b': 1}, {'a"b': 2}, {'a"b': 3}]
    check(json.dumps({"nodes": escaped}, indent=1).encode(), "nodes", {}, escaped, located=True)


def test_documents_without_an_array_of_records_are_refused() -> None:
    for data in (b"", b"[]", b"{}", b"null", b'{"nodes": 1}', b'{"nodes": {"nodes": 1}}'):
        assert locate(data, "nodes") is None
        with pytest.raises(msgspec.MsgspecError):
            parse_records(data, "nodes")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "nodes", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)
RECORD = st.dictionaries(st.sampled_from(["id", "name", "nodes"]), JSON, max_size=3)


@examples(60)
@given(
    st.lists(RECORD, max_size=5),
    st.dictionaries(st.sampled_from(["a", "schema"]), JSON, max_size=2),
    st.dictionaries(st.sampled_from(["z", "end"]), JSON, max_size=2),
    st.sampled_from([{}, {"indent": 0}, {"indent": 2}, {"separators": (",", ":")}, {"separators": (" ,\n ", " : ")}]),
)
@example([{"id": {"nodes": [{"id": 1}]}}], {}, {}, {})
@example([{"nodes": None}, {}, {"nodes": [{}, {"nodes": None}]}], {}, {}, {})
@example([{"id": [{}, {"id": None}]}, {}], {}, {}, {})
@example([{"id": [{}, {"id": None}]}, {}], {}, {}, {"indent": 0})
@example([{"id": [{"id": 1}, {"id": None}]}, {"x": 1}, {"id": 1}], {}, {}, {"indent": 2})
def test_any_json_text_gives_its_records(records: list[Record], front: Record, back: Record, layout: Record) -> None:
    data = json.dumps({**front, "nodes": records, **back}, **layout).encode()
    check(data, "nodes", {**front, **back}, records)


def test_lookalikes_before_and_brackets_after_the_records_do_not_mislead() -> None:
    for front in ([{"id": 1}], {"nodes": [1, 2]}, {"nodes": [{"id": 1}]}, '"nodes": ['):
        check(json.dumps({"front": front, "nodes": RECORDS}).encode(), "nodes", {"front": front}, RECORDS)
    for after in ([1], [1, 2], "]", {"x": [3]}, [[2]], "}]"):
        data = json.dumps({"nodes": RECORDS, "after": after}).encode()
        check(data, "nodes", {"after": after}, RECORDS, located=True)


def test_the_array_of_records_is_located_with_its_end() -> None:
    for records, tail in (([{"id": 1}], b""), ([{"id": 1}, {"id": 2}], b', "x": [1]'), ([], b', "x": 1')):
        text = b'{"nodes": [' + b", ".join(map(msgspec.json.encode, records)) + b"]" + tail + b"}"
        array = locate(text, "nodes")
        assert array is not None
        assert (array.body, array.end) == (11, len(text) - len(tail) - 2)
        assert array.start == (11 if records else array.end)
    assert locate(b'{"nodes": [1]}', "nodes") is None and locate(b'{"nodes": [{"id": 1}', "nodes") is None
    assert locate(b'{"other": [{"id": 1}]}', "nodes") is None


def test_the_opening_is_the_first_at_which_a_whole_object_has_the_key() -> None:
    for begin in (
        b'{"a": "\\"nodes\\": [", ',
        b'{"a": [{"nodes": [[]]}], ',
        b'{"x\\"nodes": [], "a": {"nodes": [1]}, ',
    ):
        assert opening(begin + b'"nodes": [1]}', "nodes") == len(begin) + 10
        with pytest.raises(msgspec.MsgspecError):
            opening(begin, "nodes")
