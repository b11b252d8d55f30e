"""How records print: one line, or one screen."""

from dataclasses import dataclass, make_dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from etplus.trace.brief import RecordStruct, as_text, brief


@dataclass
class Holder:
    value: Any

    __repr__ = brief


@dataclass
class Table:
    ts: Any
    _hidden: int = 0

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.ts)


class Pair(NamedTuple):
    a: int
    b: str


@pytest.mark.parametrize(
    ("value", "shown"),
    [(np.zeros((3, 1000), np.int8), "int8 × 3 × 1,000"), (np.zeros((), np.int64), "int64 × 1"),
     ([], "[]"), ([1, "a", None, 2.5, True, b"", 7, 8], "[1, 'a', None, 2.5, True, b'', 7, 8]"), ([1] * 9, "9 × int"),
     ({"a": 1, "b": 2, "c": 3, "d": 4}, "{'a': 1, 'b': 2, 'c': 3, 'd': 4}"), (dict.fromkeys("abcde", 1), "5 × int"),
     ([[], [1]], "2 × list"), ((1, "a", [], {}), "4 × dict or int or list"), ({"a": []}, "1 × list"),
     (list(range(2000)), "2,000 × int"), ({1, 2}, "{1, 2}"), (Pair(1, "x"), "Pair(a=1, b='x')"),
     (Table([1]), "<Table: 1 row>"), (Table([1, 2]), "<Table: 2 rows>"), (Table(range(1234)), "<Table: 1,234 rows>"),
     (object(), "<object>"), (Holder([]), "<Holder>"), (slice(1), "slice(None, 1, None)")],
)  # fmt: skip
def test_small_values_are_shown_and_large_ones_summarized(value: object, shown: str) -> None:
    assert repr(Holder(value)) == f"<Holder\n  value  {shown}>"


def test_a_small_record_is_one_line_and_long_lines_are_cut() -> None:
    assert repr(Holder(3)) == "Holder(value=3)" and repr(Holder("a\n")) == "Holder(value='a\\n')"
    assert repr(Holder("x" * 63)) == f"Holder(value='{'x' * 63}')", "79 columns"
    assert repr(Holder("x" * 64)) == f"<Holder\n  value  '{'x' * 64}'>"
    line = repr(Holder("x" * 500)).splitlines()[1]
    assert len(line) == 79 and line.endswith("x…>")
    assert repr(Table([1, []])) == "<Table: 2 rows\n  ts  2 × int or list>", "hidden attributes are not shown"


class Number(RecordStruct, frozen=True):
    value: int


class Answer:
    def __init__(self, lines: int) -> None:
        self.lines = lines

    def to_text(self) -> str:
        return "\n".join(map(str, range(self.lines)))

    __repr__ = as_text


def test_structs_print_their_fields_and_long_answers_are_cut() -> None:
    assert repr(Number(3)) == "Number(value=3)"
    assert repr(Answer(24)).splitlines() == [*map(str, range(24))]
    assert repr(Answer(30)).splitlines() == [*map(str, range(23)), "… 7 more lines"]


@pytest.mark.parametrize(("count", "lines"), [(22, 23), (23, 24), (24, 24), (100, 24)])
def test_the_text_of_a_large_record_fits_on_one_screen(count: int, lines: int) -> None:
    made = make_dataclass("Wide", [(f"a{k}", Any) for k in range(count)], namespace={"__repr__": brief}, repr=False)
    shown = repr(made(*[[k, []] for k in range(count)])).splitlines()
    assert len(shown) == lines and shown[0] == "<Wide" and shown[1].startswith("  a0 ")
    assert shown[-1] == (f"  … {count - 22} more attributes>" if count > 23 else f"  a{count - 1}  2 × int or list>")
