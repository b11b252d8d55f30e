"""Odd turns of phrase per 1,000 words, by kind of text. Lower a limit when you improve the text."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from support import ROOT

LIMITS = {"comment": 3.8, "docs": 2.2, "docstring": 4.9, "page": 0.6, "string": 4.5}
ODD = re.compile(
    r"\b(?:of|with|from|by|in|to|than|for|on|at|about) what\b"  # name the thing
    r"|\b(?:that|those) of\b"  # repeat the noun
    r"|\bof (?:which|these|those|each|whom)\b,? "  # split the sentence
    r"|\bwhere (?:no|it|they|there|that|this|one|the|nothing|none|both|several|all)\b"  # if, when
    r"|\b(?:is|are|was|were|be) of (?:a|an|the|one|other|another|this|that|its|each|all)\b"  # belongs to, comes from
    r"|, too\b|\b(?:alike|unlike|likewise|beside|anew|hence|thereby|whose)\b|\bpric(?:e|es|ed|ing)\b"
    r"|\b(?:so|as) (?:many|often|long|far) "
    r"|\b(?:says?|said|saying|told|tells) (?:so|it|which|what|how|nothing)\b"  # report, state
    r"|\b(?:nobody|no one|by themselves|by itself|of its own|of their own|on their own)\b"  # name the actor
    r"|\b(?:taken for|takes? as|counts? as|stands? (?:for|as|in)|lies? in)\b"  # a plain verb
    r"|\b(?:but for|save for|apart from|other than that|as well as|in place of)\b"  # except, instead of
    r"|, (?:which|who|of which|from which|by which) ",  # a second sentence
    re.IGNORECASE,
)
PAGE_TEXT = re.compile(r"\"([^\"\\\n]{8,})\"|`([^`\\]{8,})`|//\s*(.+)$", re.MULTILINE)
PACKAGES = "trace schemas linker recording jobs converters timeline cli analysis report planning".split()


def test_texts_use_plain_english() -> None:
    words: Counter[str] = Counter()
    odd: Counter[str] = Counter()
    for kind, text in texts():
        words[kind] += len(text.split())
        odd[kind] += len(ODD.findall(text))
    rates = {kind: round(1000 * odd[kind] / words[kind], 1) for kind in LIMITS}
    assert all(rates[kind] <= limit for kind, limit in LIMITS.items()), rates


def texts() -> Iterator[tuple[str, str]]:
    """Kind and text of each docstring, comment, longer string, line of a page, and paragraph of the docs."""
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        if "_pb2" not in path.name:
            yield from python_texts(path.read_text("utf-8"))
    for path in sorted((ROOT / "report" / "page" / "src").rglob("*.js")):
        for match in PAGE_TEXT.finditer(path.read_text("utf-8")):
            yield "page", next(group for group in match.groups() if group)
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        yield "docs", without_code(path.read_text("utf-8"))


def python_texts(source: str) -> Iterator[tuple[str, str]]:
    docstrings = set()
    for node in ast.walk(tree := ast.parse(source)):
        for statement in getattr(node, "body", None) if isinstance(getattr(node, "body", None), list) else []:
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text)) as constant):
                    docstrings.add(constant)
                    yield "docstring", text
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if node not in docstrings and len(text.split()) > 4:
                yield "string", text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(("# type", "# noqa", "# fmt")):
            yield "comment", token.string


def without_code(page: str) -> str:
    page = re.sub(r"\A---\n.*?\n---\n", "", page, flags=re.DOTALL)
    page = re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"^ {4}.*$", "", page, flags=re.MULTILINE)


def test_the_limits_are_for_every_kind_of_text() -> None:
    assert {kind for kind, _ in texts()} == LIMITS.keys()


def test_an_odd_turn_is_counted(tmp_path: Path) -> None:
    assert len(ODD.findall("The time of that of which nobody says what it is, too.")) >= 4
    assert list(python_texts('"""Doc."""\nx = "five words are a string"  # why\n')) == [
        ("docstring", "Doc."), ("string", "five words are a string"), ("comment", "# why"),
    ]  # fmt: skip
