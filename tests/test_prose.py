"""The check of texts in `make lint`."""

import ast

import prose


def test_an_odd_turn_is_counted() -> None:
    assert len(prose.ODD.findall("The time of that of which nobody says what it is, too.")) >= 4
    source = '"""Doc."""\nx = "five words are a string"  # why\n'
    assert list(prose.python_texts(source, ast.parse(source))) == [
        ("docstring", "Doc."), ("string", "five words are a string"), ("comment", "why"),
    ]  # fmt: skip
