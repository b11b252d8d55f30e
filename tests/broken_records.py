"""Records as the trace writers lay them out, documents of them, and what the recovery of a broken one must keep."""

import json
import re
from typing import Any

import msgspec
import orjson
from etplus.schemas.text.recover import LOSS_KINDS, Recovered, recover
from support import fixture_pair, plain

KEY = {"et": "nodes", "kineto": "traceEvents"}
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


def lost_records(result: Recovered) -> int:
    """How many records are known to be lost; a cut file lacks an unknown number of others."""
    return sum(loss.count for loss in result.losses if loss.kind == "dropped_record")


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
    """Recover `three`: the neighbors must stand unchanged in their places; the middle record, None if it was lost."""
    result, found = recovered(text, KEY[kind])
    assert [found[0], found[-1]] == [RECORD[kind](b"aten::mm", 1), RECORD[kind](b"aten::relu", 9)]
    if kind == "kineto":
        assert len(found) == 3, "a lost event keeps its place"
    middle = orjson.loads(found[1]) if len(found) == 3 else {}
    assert lost_records(result) == (not middle)
    return result, middle or None
