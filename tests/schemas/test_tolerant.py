"""Strict reading, then recovery: what is asked of a reader, and what is refused, with small made readers."""

import gc
import json
from typing import Any

import msgspec
import orjson
import pytest
from etplus.schemas.text import recover as tolerant
from etplus.schemas.text.files import Blob
from etplus.schemas.text.records import locate
from etplus.schemas.text.recover import Document, Loss, read_tolerantly
from etplus.trace.errors import TraceFormatError

NODE = {"id": 1, "name": "a", "ctrl_deps": 1, "attrs": []}
SOUND = json.dumps({"schema": "1.1.1", "nodes": [NODE, {**NODE, "id": 2}]}).encode()
EVENT = {"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1}
KINETO = json.dumps({"schemaVersion": 1, "traceEvents": [EVENT]}).encode()
CUT = SOUND[: SOUND.rindex(b'"id"') + 6]


class Reader:
    def __init__(self) -> None:
        self.seen: list[Document] = []

    def __call__(self, document: Document) -> Any:
        self.seen.append(document)
        assert not gc.isenabled()
        return msgspec.json.decode(document.text[:])


def read(data: bytes, key: str = "nodes", *, broken_at: int | None = None, strict: bool = False) -> tuple[Any, Reader]:
    reader = Reader()
    return read_tolerantly(Blob("x.json", data, broken_at), key, reader, strict=strict, progress=True), reader


def problem(data: bytes, key: str = "nodes", **more: Any) -> tuple[str, str]:
    with pytest.raises(TraceFormatError) as error:
        read(data, key, **more)
    assert error.value.file == "x.json"
    return error.value.place, str(error.value).removeprefix("x.json: ").removeprefix(f"{error.value.place}: ")


def test_a_sound_file_is_read_once() -> None:
    for strict in (False, True):
        found, reader = read(SOUND, strict=strict)
        (document,) = reader.seen
        assert found == json.loads(SOUND) and document.name == "x.json" and document.text == SOUND
        assert not document.lenient and document.progress and document.losses == () == document.all_losses()


def test_a_broken_file_is_read_again_as_recovered() -> None:
    found, reader = read(CUT)
    first, second = reader.seen
    assert first.text == CUT and not first.lenient and second.lenient and not second.progress
    assert found["nodes"] == [NODE] == orjson.loads(second.text)["nodes"]
    assert [loss.kind for loss in second.losses] == ["dropped_record", "truncated"]
    place, text = problem(CUT, strict=True)
    assert place.startswith("byte ") or place == ""
    assert text.startswith("not an Execution Trace that can be read: ") and "(byte" not in text
    assert text.endswith("; drop --strict to recover what can be read")


def test_a_damaged_gzip_stream_is_a_loss() -> None:
    _, reader = read(SOUND, broken_at=77)
    assert reader.seen[0].losses == (Loss("truncated", 1, 77, "gzip stream"),)
    assert problem(SOUND, broken_at=77, strict=True) == (
        "compressed byte 77", "the gzip stream is damaged or cut off; drop --strict to recover the rest"
    )  # fmt: skip
    _, reader = read(CUT, broken_at=0)
    assert [loss.kind for loss in reader.seen[1].losses] == ["truncated", "dropped_record", "truncated"]


def test_a_document_that_its_reader_refuses_raises_a_format_error() -> None:
    def refuse(document: Document) -> Any:
        raise msgspec.DecodeError("odd (byte 12) thing")

    with pytest.raises(TraceFormatError, match="byte 12: not a Kineto trace that can be read: odd thing; record"):
        read_tolerantly(Blob("x.json", KINETO), "traceEvents", refuse, strict=False)


@pytest.mark.parametrize(
    ("data", "key", "expected"),
    [
        (KINETO + b"x", "nodes", "this is a Kineto trace, not an Execution Trace; give it as --kineto-file"),
        (SOUND + b"x", "traceEvents", "this is an Execution Trace, not a Kineto trace; give it as --et-file"),
        (b"SQLite format 3\0" + bytes(100), "traceEvents",
         "this is a SQLite database, not a Kineto trace; give the Kineto trace as --kineto-file"),
        (b"SQLite format 3\0" + bytes(100), "nodes",
         "this is a SQLite database, not an Execution Trace; give it as --kineto-file"),
        (bytes([7, 10, 5]) + b"0.0.4", "nodes",
         "this is a Chakra trace, not an Execution Trace; give the Execution Trace that PyTorch wrote as JSON"),
        (bytes([10, 4, 80, 1, 64, 0]), "nodes",
         "this is a Perfetto trace, not an Execution Trace; give it as --kineto-file"),
    ],
)  # fmt: skip
def test_files_of_another_kind_are_named_and_refused(data: bytes, key: str, expected: str) -> None:
    assert problem(data, key) == ("", expected) == problem(data, key, strict=True)


def test_a_file_with_both_arrays_is_what_it_is_given_as() -> None:
    both = b'{"schema": "1", "nodes": [%b], "traceEvents": [%b' % (orjson.dumps(NODE), orjson.dumps(EVENT))
    assert read(both)[0]["nodes"] == [NODE] and read(both, "traceEvents")[0]["traceEvents"] == [EVENT]


def test_parts_of_a_document_contain_all_records_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [{**NODE, "id": i} for i in range(100)]
    text = json.dumps({"schema": "1", "nodes": nodes}).encode()
    array = locate(text, "nodes")
    assert array is not None
    for least, expected in ((1, 8), (1 << 20, 1)):
        monkeypatch.setattr(tolerant, "_LEAST_PART", least)
        parts = [*Document("x", text).parts(array, lambda blocks: [json.loads(bytes(one)) for *_, one in blocks])]
        assert [node for part in parts for block in part for node in block] == nodes
        assert len(parts) == expected
    monkeypatch.setattr(tolerant, "_LEAST_PART", 1)
    monkeypatch.setattr(tolerant, "_PART", 200)
    assert len(list(Document("x", text).parts(array, lambda blocks: len(list(blocks))))) > 20
