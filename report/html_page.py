"""Build the HTML report: one file that contains the data, the chart library and the script. It loads nothing else."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import os
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import PurePath
from typing import Any

import orjson

from .. import __version__
from ..schemas.text.memory_limit import require_memory, size_text
from ..trace.errors import EtplusError, UsageError

_PARTS = files(__package__) / "page"
_SCRIPT = "page.js"
_STYLES = ("style.css", "drawings.css", "details.css", "access.css")
_LIBRARY = "echarts.min.js.gz"
_SUFFIXES = ("", ".html", ".htm")
_PLACE = re.compile(r"\{\{(\w+)\}\}")
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
# Maximum size of the data in bytes. It is V8's String::kMaxLength: browsers do not accept longer strings.
_LARGEST = 1 << 29
# Building a page needs at most this many times the memory of its data.
_COPIES = 3


def page(report: dict[str, Any], title: str) -> bytes:
    """Return the HTML page of a report. Equal reports give identical bytes.

    Names in traces are untrusted. The content security policy therefore forbids all downloads, and only the page's own
    two scripts may run, identified by their hashes.

    Raises:
        EtplusError: the page is too large for browsers or does not fit in memory."""
    library = gzip.decompress((_PARTS / _LIBRARY).read_bytes()).decode()
    script = _joined([_SCRIPT])
    hashes = [hashlib.sha256(text.encode()).digest() for text in (library, script)]
    allowed = " ".join(f"'sha256-{base64.b64encode(found).decode()}'" for found in hashes)
    data, remedy = embedded(report), "select a part with --steps or --window, or pass fewer files"
    if len(data) > _LARGEST:
        problem = f"the page would need {size_text(len(data))}, but browsers open at most {size_text(_LARGEST)}"
        raise EtplusError(f"{title}: {problem}; {remedy}")
    require_memory(title, len(data), "etplus builds the page in memory", times=_COPIES, remedy=remedy)
    parts: dict[str, str | bytes] = {
        "policy": f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:",
        "generator": f"etplus {__version__}",
        "title": html.escape(title),
        "style": _joined(_STYLES),
        "data": data,
        "library": library,
        "script": script,
    }
    pieces: list[str | bytes] = [*_PLACE.split((_PARTS / "page.html").read_text("utf-8"))]
    pieces[1::2] = [parts[str(name)] for name in pieces[1::2]]
    return b"".join(piece if isinstance(piece, bytes) else piece.encode() for piece in pieces)


def check_page_name(path: str | os.PathLike[str]) -> None:
    """Raise an error if the name has the suffix of another format. "-" and names without a suffix are accepted.

    Raises:
        UsageError: the suffix belongs to another format.

    Example:
        >>> check_page_name("report.html.gz")
    """
    suffix = PurePath(os.fspath(path).lower().removesuffix(".gz")).suffix
    if suffix not in _SUFFIXES:
        raise UsageError(f"{os.fspath(path)}: the report is an HTML page, not {suffix}; use a name that ends in .html")


def embedded(value: Any) -> bytes:
    """Return a value as JSON. Characters are escaped so that no string in it can end or change the script element."""
    data = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    for text, escape in _UNSAFE.items():
        data = data.replace(text.encode(), escape.encode())
    return data


def _joined(names: Sequence[str]) -> str:
    return "\n".join((_PARTS / name).read_text("utf-8") for name in names)
