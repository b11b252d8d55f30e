"""Build short `__repr__` strings. Small records fit on one line. Larger records get a line for each attribute."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import fields, is_dataclass
from html import escape
from typing import Any

import msgspec
import numpy as np

from .errors import EtplusError
from .printable import shortened

_WIDTH, _LINES = 79, 24  # fits on a terminal screen together with the prompt
_SHORT = (bool, int, float, str, bytes, type(None))


def brief(self: Any) -> str:
    """Return the `__repr__` of a dataclass, struct or named tuple, in at most 24 lines of 79 columns."""
    name, values = _title(self), {key: getattr(self, key) for key in _names(self)}
    texts = {key: _text(value) for key, value in values.items()}
    line = f"{type(self).__name__}({', '.join(f'{key}={text}' for key, text in texts.items())})"
    if len(line) <= _WIDTH and line.isprintable() and all(isinstance(value, _SHORT) for value in values.values()):
        return line
    width = max(map(len, texts), default=0)
    rows = [shortened(f"  {key:{width}}  {text}", _WIDTH - 1) for key, text in texts.items()]
    if len(rows) > _LINES - 1:
        rows = [*rows[: _LINES - 2], f"  … {len(rows) - _LINES + 2} more attributes"]
    return "\n".join([f"<{name}", *rows]) + ">"


def as_text(self: Any) -> str:
    """Return the output of `to_text`, cut to 24 lines, as the `__repr__` of a result."""
    try:
        lines = self.to_text().splitlines()
    except EtplusError:  # the part of etplus that renders the result is not installed
        return brief(self)
    more = [f"… {len(lines) - _LINES + 1} more lines"] if len(lines) > _LINES else []
    return "\n".join([*lines[: _LINES - len(more)], *more])


def as_html(self: Any) -> str:
    return f"<pre>{escape(repr(self))}</pre>"


class Record:
    __repr__ = brief
    _repr_html_ = as_html


class RecordStruct(msgspec.Struct, frozen=True):
    __repr__ = brief


def _names(record: Any) -> list[str]:
    if is_dataclass(record):
        return [field.name for field in fields(record) if not field.name.startswith("_")]
    return list(getattr(record, "_fields", None) or record.__struct_fields__)


def _text(value: Any) -> str:
    """Describe a value in a few words without looking at large contents."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} × {' × '.join(f'{size:,}' for size in value.shape) or 1}"
    if isinstance(value, (str, bytes)):
        return repr(value[: 2 * _WIDTH])
    if isinstance(value, _SHORT):
        return repr(value)
    if isinstance(value, (Mapping, list, tuple, Set)) and not hasattr(value, "_fields"):
        return _collection(value)
    own: Any = type(value).__repr__
    return f"<{_title(value)}>" if own is brief or own is object.__repr__ else repr(value).partition("\n")[0]


def _title(record: Any) -> str:
    name = type(record).__name__
    if isinstance(record, tuple) or not hasattr(record, "__len__"):
        return name
    return f"{name}: {len(record):,} row{'s' * (len(record) != 1)}"


def _collection(value: Collection[Any]) -> str:
    """Show short collections of numbers and strings in full. Show only the number and types of items for others."""
    items = [*value.keys(), *value.values()] if isinstance(value, Mapping) else list(value)
    if len(items) <= 8 and all(isinstance(item, _SHORT) for item in items):
        return repr(value)
    kinds = sorted({type(item).__name__ for item in (value.values() if isinstance(value, Mapping) else value)})
    return f"{len(value):,} × {' or '.join(kinds[:3])}"
