"""Report work that is spread over many similar modules under one module path without indices."""

from __future__ import annotations

import re
from typing import Any

from ...trace.columns import IntColumn
from ...trace.origin import origin_of_rows
from ...trace.trace import Trace
from .finding import Where
from .places import where_of

_NUMBER = re.compile(r"_\d+$|(?<=\.)\d+(?=\.|$)")


def place_of(trace: Trace, rows: IntColumn, **known: Any) -> Where:
    """Like `where_of`, but use a module path without indices if no single module has half of the time.

    Example:
        >>> place_of(trace, trace.gpu.source[:1]) == where_of(trace, trace.gpu.source[:1])
        True
    """
    found = where_of(trace, rows, **known)
    if found.module is not None or not len(rows):
        return found
    codes = set(origin_of_rows(trace).module[rows[rows >= 0]].tolist())
    if -1 in codes:
        return found
    paths = [trace.origin.modules[code] for code in sorted(codes)]
    shared = []
    for parts in zip(*paths, strict=False):
        plain = {_NUMBER.sub("", part) for part in parts}
        if len(plain) > 1:
            break
        shared.append(parts[0] if len(set(parts)) == 1 else f"{plain.pop()} × {len(set(parts))}")
    return where_of(trace, rows, **({"module": " / ".join(shared) or None} | known))
