"""Tables fit the terminal, however narrow, and nothing of them but the middle of long names is lost."""

import pytest
from etplus.trace.text_tables import number, render, rewrap, share, shorten, terminal_width, titled


def test_columns_are_side_by_side_where_there_is_room() -> None:
    rows = [["gemm", 12, "3.40"], ["a_long_name", None, "1.00"]]
    assert render("t", ["name", "count", "mean µs"], rows, 80).splitlines() == [
        "t", "name         count  mean µs", "gemm            12     3.40", "a_long_name            1.00",
    ]  # fmt: skip


def test_long_names_take_the_room_that_the_columns_leave() -> None:
    text = render("t", ["name", "first", "second", "third"], [["x" * 100, 1, 2, 3]], 80)
    assert [len(line) for line in text.splitlines()] == [1, 80, 80]
    for least, lines in ((51, [80, 80]), (52, [80, 72] * 2)):  # 12 for the name, and 2 blanks before each column
        text = render("t", ["name", "first", "second", "x" * least], [["x" * 100, 1, 2, 3]], 80)
        assert [len(line) for line in text.splitlines()[1:]] == lines


def test_a_given_line_is_printed_above_each_row() -> None:
    text = render("t", ["name", "count"], [["gemm", 1], ["mm", 2]], 80, above=["first", "y" * 100])
    assert text.splitlines() == ["t", "name  count", "first", "gemm      1", shorten("y" * 100, 80), "mm        2"]


def test_a_row_too_wide_for_the_table_takes_several_lines() -> None:
    heads = ["name", "first column", "second column", "third column"]
    assert render("t", heads, [["a_name_of_a_kernel_here", 1, 22, 333], ["b", None, None, 4]], 40).splitlines() == [
        "t", "name                      first column", "                         second column",
        "                          third column", "a_name_of_a_kernel_here              1",
        "                                    22", "                                   333", "b",
        "                                     4",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "room", "short"),
    [("gemm", 4, "gemm"), ("void gemm", 4, "gemm"), ("abcdefghij", 9, "abcde…hij"), ("abcdefghij", 10, "abcdefghij"),
     ("x" * 100, 60, "x" * 43 + "…" + "x" * 16), ("a\x1bb", 3, "a?b"),
     ("autograd::engine::evaluate_function: MmBackward0", 30, "autograd: MmBackward0")],
)  # fmt: skip
def test_long_names_lose_their_middle_and_stay_printable(name: str, room: int, short: str) -> None:
    assert shorten(name, room) == short


def test_numbers_shares_and_titles_are_formatted_for_tables() -> None:
    assert number(None) is None and number(1234.56) == "1,234.6" and number(2.5e6, 2, 1e6) == "2.50"
    assert share(None) is None and share(0.1234) == "12.3%"
    assert titled("ops", 5, 5) == "ops" and titled("ops", 6, 5) == "ops (the first 5 of 6)"
    assert rewrap(["one two", "abcd efgh ijkl"], 9, "  ") == ["one two", "abcd efgh", "  ijkl"]
    assert rewrap(["x" * 9], 9, "  ") == ["x" * 9]


@pytest.mark.parametrize(("columns", "width"), [("100", 100), ("20", 40), ("40", 40), ("41", 41)])
def test_the_terminal_width_is_at_least_40_columns(columns: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert terminal_width() == width


def test_lines_are_continued_only_where_they_are_too_long() -> None:
    spaced = "ab  cd"  # wrapping would leave one blank at a new line's end
    assert rewrap([spaced, "ab  cd e"], 6, "> ") == [spaced, "ab  cd", "> e"]
    assert rewrap(["a\tb"], 3, "") == ["a\tb"], "a line that fits stays as it is"
