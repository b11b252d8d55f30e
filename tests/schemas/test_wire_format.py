"""The encoding of protobuf, many messages at once: numbers, fields and packed lists, by hand."""

import numpy as np
import pytest
from etplus.schemas.wire_format import (
    byte_rows,
    fields_of,
    number_cells,
    packed_varints,
    read_varints,
    varint_bytes,
    varints,
)

NUMBERS = [0, 1, 127, 128, 300, 2**14 - 1, 2**14, 2**32, 2**62, 2**63 - 1, -1]


def spans(messages: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The messages with ten zero bytes behind them, and where each begins and ends."""
    ends = np.cumsum([len(one) for one in messages])
    return np.frombuffer(b"".join(messages) + bytes(10), np.uint8), ends - [len(one) for one in messages], ends


def test_varints_are_encoded_and_read_back() -> None:
    texts = [varint_bytes(number) for number in NUMBERS]
    assert texts[:5] == [b"\x00", b"\x01", b"\x7f", b"\x80\x01", b"\xac\x02"] and texts[-1] == b"\xff" * 9 + b"\x01"
    assert byte_rows([varints(np.array(NUMBERS))]) == texts
    data, starts, ends = spans(texts)
    values, behind = read_varints(data, starts)
    assert values.tolist() == [number % 2**64 for number in NUMBERS] and behind.tolist() == ends.tolist()


def test_numbers_behind_a_head_that_may_have_a_length() -> None:
    present = np.array([True, False, True])
    assert byte_rows([number_cells(b"\x08", np.array([5, 6, 300]), present, 0)]) == [b"\x08\x05", b"", b"\x08\xac\x02"]
    head = b"\x52\x00\x0a\x01a\x38"
    assert byte_rows([number_cells(head, np.array([5, 6, 300]), present, 1)]) == [
        b"\x52\x05\x0a\x01a\x38\x05", b"", b"\x52\x06\x0a\x01a\x38\xac\x02",
    ]  # fmt: skip
    assert byte_rows([number_cells(head, np.array([5]), np.array([False]), 1)]) == [b""]


def test_fields_of_many_messages_are_read_in_their_order() -> None:
    messages = [b"\x08\x96\x01", b"\x12\x03abc\x18\x05", b"", b"\x09" + b"x" * 8 + b"\x15" + b"y" * 4]
    data, starts, ends = spans(messages)
    kept = starts < ends
    first, second = fields_of(data, starts[kept], ends[kept])
    assert [column.tolist() for column in (first.message, first.number, first.wire)] == [
        [0, 1, 2],
        [1, 2, 1],
        [0, 2, 1],
    ]
    assert [column.tolist() for column in (second.message, second.number, second.wire)] == [[1, 2], [3, 2], [0, 5]]
    assert (int(first.value[0]), int(second.value[0])) == (150, 5)
    contents = [bytes(data[a:b]) for of in (first, second) for a, b in zip(of.begin, of.end, strict=True)]
    assert contents[1:] == [b"abc", b"x" * 8, b"\x05", b"y" * 4]


@pytest.mark.parametrize("text", [b"\x0b", b"\x0c", b"\x0e", b"\x0f", b"\x00\x01", b"\x12\x05abc", b"\x09abc", b"\x08"])
def test_bytes_that_are_no_message_are_refused(text: bytes) -> None:
    data, starts, ends = spans([text])
    with pytest.raises(ValueError, match="no message"):
        list(fields_of(data, starts, ends))


def test_packed_lists_are_read_and_truncated_numbers_refused() -> None:
    data, starts, ends = spans([b"\x01\xac\x02", b"", b"\x05"])
    values, which = packed_varints(data, starts, ends)
    assert (values.tolist(), which.tolist()) == ([1, 300, 5], [0, 0, 2])
    with pytest.raises(ValueError, match="not a list of numbers"):
        packed_varints(*spans([b"\x01", b"\x80"]))
