"""One broken object made valid: its text, its end and its flaws, by hand."""

import json
from typing import Any

import pytest
from etplus.schemas.text.repair import EVENT, FREE, MAX_DEPTH, NODE, Flaw, RecordLayout, is_valid, repair

SOUND = b'{"ph": "X", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1, "args": {"x": [1, 2]}}'


def repaired(text: bytes, layout: RecordLayout = FREE, rest: bytes = b"") -> tuple[Any, list[tuple[str, int]]] | None:
    found = repair(text + rest, 0, len(text), layout)
    if found is None:
        return None
    assert found.end == len(text) and is_valid(found.text)
    return json.loads(found.text), [(flaw.kind, flaw.offset) for flaw in found.flaws]


@pytest.mark.parametrize(
    ("text", "value", "flaws"),
    [
        (b'{"a": 1 "b": 2}', {"a": 1, "b": 2}, [("missing_comma", 8)]),
        (b'{"a": [1 2]}', {"a": [1, 2]}, [("missing_comma", 9)]),
        (b'{"a": 1,, "b": 2}', {"a": 1, "b": 2}, [("extra_comma", 8)]),
        (b'{, "a": 1}', {"a": 1}, [("extra_comma", 1)]),
        (b'{"a": [1, 2,]}', {"a": [1, 2]}, [("extra_comma", 12)]),
        (b'{"a": 1,}', {"a": 1}, [("extra_comma", 8)]),
        (b'{"a": , "b": 2}', {"a": None, "b": 2}, [("missing_value", 6)]),
        (b'{"a": 1, "b": }', {"a": 1, "b": None}, [("missing_value", 14)]),
        (b'{"a": nan}', {"a": None}, [("bare_number", 6)]), (b'{"a": -inf}', {"a": None}, [("bare_number", 6)]),
        (b'{"a": Infinity, "b": 1e999}', {"a": None, "b": None}, [("bare_number", 6), ("bare_number", 21)]),
        (b'{"a": 1.#QNAN}', {"a": None}, [("bare_number", 6)]), (b'{"a": None}', {"a": None}, [("bare_number", 6)]),
        (b'{"a": [1, 2}', {"a": [1, 2]}, [("unbalanced_bracket", 11)]),
        (b'{"a": [[1], 2}', {"a": [[1], 2]}, [("unbalanced_bracket", 13)]),
        (b'{"a": 1], "b": 2}', {"a": 1, "b": 2}, [("unbalanced_bracket", 7)]),
        (b'{"a": [1, "b": 2}', {"a": [1], "b": 2}, [("unbalanced_bracket", 10)]),
        (b'{"a": "x\ty"}', {"a": "x\ty"}, [("control_character", 6)]),
        (b'{"a": "caf\xe9"}', {"a": "caf\ufffd"}, [("not_utf8", 6)]),
        (b'{"a": "C:\\dir"}', {"a": "C:\\dir"}, [("backslash", 6)]),
        (b'{"a": "say "hi" now"}', {"a": 'say "hi" now'}, [("unescaped_quote", 6)]),
        (b'{"a": ["say "hi" now"]}', {"a": ['say "hi" now']}, [("unescaped_quote", 7)]),
    ],
)  # fmt: skip
def test_flaws_in_json_are_repaired_and_located(text: bytes, value: Any, flaws: list[tuple[str, int]]) -> None:
    assert repaired(text) == (value, flaws)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"[1]", b"x", b'{"a": 1', b'{"a": "x', b'{"a"', b'{"a":', b'{"a": 1x}', b'{"a": 01}', b"{1: 2}",
        b'{"a": ["x "c": 1, "y"]}', b'{"a": {"b": "say", "d", "e" }}',
        b'{"a": "hole \0\0\0\0 here"}', b'{"a": %b}' % (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH),
    ],
)  # fmt: skip
def test_text_that_cannot_be_repaired_gives_none(text: bytes) -> None:
    assert repair(text, 0, len(text), FREE) is None


def test_nesting_up_to_the_maximum_depth_is_repaired() -> None:
    deep = b'{"a": %b, }' % (b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1))
    found = repair(deep, 0, len(deep), FREE)
    assert found is not None and [flaw.kind for flaw in found.flaws] == ["extra_comma"]


def test_what_is_open_closes_where_the_next_object_begins() -> None:
    begun = b'{"a": {"b": [1, 2], '
    found = repair(b" " * 40 + begun + b'{"a": 1}', 40, 40 + len(begun), FREE)
    assert found is not None and json.loads(found.text) == {"a": {"b": [1, 2]}} and found.end == 40 + len(begun)
    assert found.flaws == (Flaw("unbalanced_bracket", found.end, '{"a": {"b": [1, 2],'),)
    for cut in (b'{"a": {"b": 12', b'{"a": tru'):
        assert repair(cut + b'{"a": 1}', 0, len(cut), FREE) is None, "the last value may be half of one"
        assert repair(cut, 0, len(cut), FREE) is None


def test_a_known_key_ends_a_string_at_the_top_alone() -> None:
    value, flaws = repaired(SOUND.replace(b'"a"', b'"f("x", "y": 1)"', 1), EVENT) or (None, None)
    assert value == {**json.loads(SOUND), "name": 'f("x", "y": 1)'} and flaws == [("unescaped_quote", 20)]


@pytest.mark.parametrize(("size", "sound"), [(2**14 - 2 * 200 - 1, True), (2**14 - 2 * 200, False)])
def test_a_string_with_quotes_and_the_next_key_take_16_kib_at_most(size: int, sound: bool) -> None:
    value = b'say "hi"'.ljust(size - 1, b".")
    found = repaired(b'{"a": "%b", "b": 2%b}' % (value, b" " * 600))
    assert found == (({"a": value.decode(), "b": 2}, [("unescaped_quote", 6)]) if sound else None)


def test_a_repaired_object_without_required_fields_is_rejected() -> None:
    few = b'{"ph": "X", "name": "a", "ts": 1,, "pid": 1}'
    assert repair(few, 0, len(few), EVENT) is None and repaired(few) is not None
    instant = few.replace(b'"X"', b'"i"')
    assert (repaired(instant, EVENT) or [None])[0] == {"ph": "i", "name": "a", "ts": 1, "pid": 1}
    node = b'{"id": 3, "name": "a", "ctrl_deps": 2 "attrs": []}'
    assert repaired(node, NODE) is not None
    assert repair(node.replace(b"attrs", b"inputs"), 0, len(node) + 1, NODE) is None
    flat = b'{"id": 3, "name": "a", "parent": 2 "rf_id": 1, "tid": 4}'
    assert repaired(flat, NODE) is not None


def test_a_key_of_the_outermost_object_closes_those_inside() -> None:
    text = b'{"ph": "i", "name": "a", "x": {"y": [1, "args": {}}'
    value, flaws = repaired(text, EVENT) or (None, None)
    assert value == {"ph": "i", "name": "a", "x": {"y": [1]}, "args": {}} and flaws == [("unbalanced_bracket", 40)]
    assert (repaired(text + b"}") or [None])[0] == {"ph": "i", "name": "a", "x": {"y": [1], "args": {}}}


@pytest.mark.parametrize(
    ("text", "valid"),
    [(b"{}", True), (b'{"a": 1}, {"b": 2}', True), (b"", True), (b"1", False), (b"{", False), (b"{},", False),
     (b'{"a": "\xff"}', False), (b'{"a": nan}', False), (b"[]", False)],
)  # fmt: skip
def test_only_lists_of_strict_json_objects_are_valid(text: bytes, valid: bool) -> None:
    assert is_valid(text) is valid
