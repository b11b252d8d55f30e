"""Characters that could steer a terminal."""

import subprocess

import pytest
from etplus.trace.printable import (
    csv_cell,
    escaped,
    is_formula,
    printable,
    shell_word,
    shortened,
    stream_label,
    text_of_cell,
    thread_label,
)


def test_characters_that_could_steer_a_terminal_are_escaped() -> None:
    for text, expected in (
        ("gemm", "gemm"), ("a\nb", "a\nb"), ("\x1b[2J\n", "\\u001b[2J\n"), ("\U000e0001x", "\\udb40\\udc01x"),
        ("😀", "😀"), ("\ud800", "\\ud800"),
    ):  # fmt: skip
        assert escaped(text) == expected
    assert printable("a\x1b\nb") == "a\ufffd\ufffdb" and printable("a\x1b\nb", "?") == "a??b"
    for text, short in (("abcd", "abcd"), ("abcde", "abc…"), ("a\x1bcdefgh", "a\ufffdc…"), ("", "")):
        assert shortened(text, 4) == short
    assert shortened("ab", 1) == "…"


def test_texts_that_begin_with_a_formula_sign_are_formulas() -> None:
    for text in ("=1", " \t=1", "\x00=1", "+1", "-1", "@x", "|x", "−1", "＝1"):
        assert is_formula(text)
    for text in ("a=1", " a=1", "", " ", "1"):
        assert not is_formula(text)


@pytest.mark.parametrize(
    ("text", "cell"),
    [("=1", "'=1"), ("a;=1", "a;'=1"), ("a\t=1;-2", "a\t'=1;'-2"), ("\ta", "'\ta"), ("\ra", "'\ra"), ("\na", "'\na"),
     ("aten::mm", "aten::mm"), ("'a'", "'a'"), ("", ""), ("a=1", "a=1"), ("a\n=1", "a\n'=1")],
)  # fmt: skip
def test_csv_cells_quote_formulas_and_give_the_text_back(text: str, cell: str) -> None:
    assert csv_cell(text) == cell and text_of_cell(cell) == text
    assert all(text_of_cell(own) == own for own in ("'a", "'", "''=1 ", "x'=1")), "apostrophes of its own"


def test_the_shell_reads_a_word_back() -> None:
    odd = ["a b", "\udcff\u00e9.json", "it's\n$HOME `x` \\", "\x1b[2J\udcfa", "", "-x"]
    assert [shell_word(text) for text in ("a", "it's", "it's $x")] == ["a", '"it\'s"', "'it'\"'\"'s $x'"]
    words = " ".join(shell_word(text) for text in odd)
    assert words.isprintable()
    said = subprocess.run(["bash", "-c", f"printf '%s\\0' {words}"], capture_output=True, check=True).stdout
    assert said == b"".join(text.encode("utf-8", "surrogateescape") + b"\0" for text in odd)


def test_labels_name_other_threads_and_the_gpu_of_several() -> None:
    assert [thread_label(one) for one in (7, 0, -1, -2)] == [
        "CPU thread 7", "CPU thread 0", "other thread 1", "other thread 2",
    ]  # fmt: skip
    assert stream_label(1, 7, several=True) == "GPU 1 · stream 7" and stream_label(1, 7, several=False) == "stream 7"
