"""Count unnatural turns of phrase per 1,000 words for `make lint`. If you improve the text, lower the limits."""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

LIMITS = {"comment": 1.0, "docs": 2.1, "docstring": 4.0, "page": 0.6, "string": 2.7}
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
COMMENT = re.compile(r"(?:^|  )# (?!type|noqa|fmt)(.+)$", re.MULTILINE)


def main() -> None:
    """Print the rate for each kind of text. Exit with status 1 if a rate exceeds its limit."""
    words: Counter[str] = Counter()
    odd: Counter[str] = Counter()
    for kind, text in texts():
        words[kind] += len(text.split())
        odd[kind] += len(ODD.findall(text))
    rates = {kind: round(1000 * odd[kind] / count, 1) for kind, count in words.items()}
    print("odd turns per 1,000 words:", ", ".join(f"{kind} {rate} of {LIMITS[kind]}" for kind, rate in rates.items()))
    if any(rates[kind] > limit for kind, limit in LIMITS.items()):
        sys.exit("the text is above a limit of docs/prose.py; write it plainer")


def texts() -> Iterator[tuple[str, str]]:
    """Yield (kind, text) for all docstrings, comments, long strings, lines of report pages, and paragraphs of the
    docs."""
    packages = [init.parent for init in ROOT.glob("*/__init__.py") if init.parent.name != "fixtures"]
    for path in (path for package in packages for path in package.rglob("*.py") if "_pb2" not in path.name):
        source = path.read_text("utf-8")
        yield from python_texts(source, ast.parse(source))
    for path in sorted((ROOT / "report" / "page" / "src").rglob("*.js")):
        for match in PAGE_TEXT.finditer(path.read_text("utf-8")):
            yield "page", next(group for group in match.groups() if group)
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        yield "docs", without_code(path.read_text("utf-8"))


def python_texts(source: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text)) as constant):
                constant.value = ""  # its own node comes later
                yield "docstring", text
            case ast.Constant(value=str(text)) if len(text.split()) > 4:
                yield "string", text
    for match in COMMENT.finditer(source):
        yield "comment", match[1]


def without_code(page: str) -> str:
    page = re.sub(r"\A---\n.*?\n---\n", "", page, flags=re.DOTALL)
    page = re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"^ {4}.*$", "", page, flags=re.MULTILINE)


if __name__ == "__main__":
    main()
