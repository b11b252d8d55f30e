"""Tolerant reading of records: what is broken in one comes back right or is counted, and costs no other."""

from typing import Any

import orjson
import pytest
from broken_records import KEY, RECORD, check_three, fixture, kinds, recovered, spans, three

NAMES = [
    (b'say "hi"', 'say "hi"', {"unescaped_quote"}), (b'"', '"', {"unescaped_quote"}),
    (b'{"a": 1, "b": 2}', '{"a": 1, "b": 2}', {"unescaped_quote"}),
    (b'f("x", "y")', 'f("x", "y")', {"unescaped_quote"}),
    (b"two\nlines\tand \x01", "two\nlines\tand \x01", {"control_character"}),
    (rb"C:\dir\file", r"C:\dir\file", {"backslash"}),
    (rb"C:\Program\new\table", r"C:\Program\new\table", {"backslash"}), (b"C:\\dir\\", "C:\\dir\\", {"backslash"}),
    (b'C:\\new "x"', 'C:\\new "x"', {"backslash", "unescaped_quote"}),
    (b'C:\\new\n"x"', 'C:\\new\n"x"', {"backslash", "unescaped_quote", "control_character"}),
    (b'escaped \\"quote\\"\nnew line', 'escaped "quote"\nnew line', {"control_character"}),
    (b"caf\xe9", "caf\ufffd", {"not_utf8"}), (b'\xff"\xfe', '\ufffd"\ufffd', {"not_utf8", "unescaped_quote"}),
    (rb"half a pair \ud83d", r"half a pair \ud83d", {"backslash"}),
]  # fmt: skip


@pytest.mark.parametrize(("written", "meant", "flaws"), NAMES)
@pytest.mark.parametrize("kind", KEY)
def test_names_written_without_escaping_are_recovered(kind: str, written: bytes, meant: str, flaws: set[str]) -> None:
    result, middle = check_three(kind, three(kind, RECORD[kind](written)))
    assert kinds(result) == flaws
    assert middle == {**orjson.loads(RECORD[kind](b"x")), "name": meant}


# Broken values and brackets


@pytest.mark.parametrize("kind", KEY)
@pytest.mark.parametrize(("change", "flaw"), [
    (lambda text, at: text[:at] + text[at + 1 :], "missing_comma"),
    (lambda text, at: text[:at] + b"," + text[at:], "extra_comma"),
    (lambda text, at: text[:at] + b"}" + text[at:], "unbalanced_bracket"),
    (lambda text, at: text[:at] + b"]" + text[at:], "unbalanced_bracket"),
    (lambda text, at: text[: at - 1] + text[at:], "unbalanced_bracket"),
])  # fmt: skip
def test_damage_between_two_records_leaves_all_records_intact(kind: str, change: Any, flaw: str) -> None:
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
def test_damage_at_the_end_of_the_last_record_loses_nothing(kind: str, change: Any) -> None:
    text = fixture("pairs/one_of_n", kind)
    result, found = recovered(change(text, spans(text, KEY[kind])[-1][1]), KEY[kind])
    assert list(map(orjson.loads, found)) == orjson.loads(text)[KEY[kind]]
    assert orjson.loads(result.data) == orjson.loads(text), "the header's rest is there as well"
    assert len(result.losses) == 1


@pytest.mark.parametrize("kind", KEY)
@pytest.mark.parametrize("bomb", [b'{"a":' * 100_000, b"[" * 50_000 + b"]" * 50_000])
def test_a_record_nested_without_end_is_dropped(kind: str, bomb: bytes) -> None:
    result, middle = check_three(kind, three(kind, RECORD[kind](b"aten::add")[:-1] + b',"x":' + bomb + b"}"))
    assert middle is None and kinds(result) == {"dropped_record"}
