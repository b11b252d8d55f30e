"""Stacks in ET+ files: the root's `stacks`."""

from __future__ import annotations

from itertools import accumulate
from typing import Annotated

import msgspec
import numpy as np
import orjson

from ...trace.columns import IntColumn, positions
from ...trace.errors import UNREADABLE, TraceFormatError
from ...trace.index import as_positions
from ...trace.stacks import EVIDENCE_OF_STACKS, Stacks

_REMEDY = "make the file again with trace-link"
_Position = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_PositionOrNone = Annotated[int, msgspec.Meta(ge=-1, lt=2**31)]


class _StacksSection(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    names: list[str]
    above_step: list[int]
    name: list[_Position]
    line: list[_PositionOrNone]
    id_step: list[int]
    entry: list[_Position]
    evidence: dict[str, list[_Position]] = {}


def stacks_section(stacks: Stacks, ids: IntColumn) -> bytes:
    """The value of `stacks`; `ids` are those of `stacks.row`."""
    others = {
        of: np.flatnonzero(stacks.evidence == code).tolist() for code, of in enumerate(EVIDENCE_OF_STACKS) if code
    }
    columns = {key: getattr(stacks, key).tolist() for key in ("name", "line", "entry")}
    steps = {f"{key}_step": np.diff(of, prepend=0).tolist() for key, of in (("above", stacks.above), ("id", ids))}
    return orjson.dumps(
        {"names": stacks.names, **columns, **steps, "evidence": {of: at for of, at in others.items() if at}}
    )


def read_stacks(file: str, text: bytes, ids: IntColumn) -> Stacks:
    """The stacks in the JSON text of the root's `stacks`; `ids` are those of all rows.

    Raises:
        TraceFormatError: another form, an entry before its caller, a name or entry that is not there.

    Example:
        >>> text = b'{"names": ["f"], "above_step": [-1], "name": [0], "line": [-1], "id_step": [7], "entry": [0]}'
        >>> read_stacks("x.json", text, np.array([5, 7])).row.tolist()
        [1]
    """
    try:
        section = msgspec.json.decode(text, type=_StacksSection | None)
    except UNREADABLE as error:
        raise TraceFormatError(file, '"stacks"', f"cannot be read ({error})", _REMEDY) from None
    if section is None:
        return Stacks.none()
    name, line, entry = (np.array(column, np.int64) for column in (section.name, section.line, section.entry))
    try:
        above, id_ = (np.array(list(accumulate(of)), np.int64) for of in (section.above_step, section.id_step))
    except OverflowError:
        raise TraceFormatError(file, '"stacks"', "a number beyond 64 bits", _REMEDY) from None
    if not len(above) == len(name) == len(line) or len(id_) != len(entry):
        raise TraceFormatError(file, '"stacks"', "columns of different lengths", _REMEDY)
    if np.any((above < -1) | (above >= np.arange(len(above)))) or name.max(initial=-1) >= len(section.names):
        raise TraceFormatError(file, '"stacks"', "an entry before its caller, or a name that is not there", _REMEDY)
    row = positions(ids, id_)
    if row.min(initial=0) < 0 or entry.max(initial=-1) >= len(above):
        raise TraceFormatError(file, '"stacks"', "an id or an entry that is not there", _REMEDY)
    evidence = np.zeros(len(row), np.int8)
    for of, at in section.evidence.items():
        if of not in EVIDENCE_OF_STACKS or max(at, default=0) >= len(row):
            raise TraceFormatError(file, '"stacks"', f"unknown evidence {of[:40]!r}, or of no row", "update etplus")
        evidence[at] = EVIDENCE_OF_STACKS.index(of)
    order = np.argsort(row, kind="stable")
    return Stacks(
        section.names, above, name.astype(np.int32), line.astype(np.int32), as_positions(row[order]), entry[order],
        evidence[order],
    )  # fmt: skip
