"""Counterparts in ET+ files: `counterpart` of GPU nodes and unattached events launched before the recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np

from ...trace.columns import IntColumn, positions
from ...trace.counterparts import CounterpartLinks, Counterparts
from ...trace.errors import UNREADABLE, TraceFormatError
from ...trace.kinds import GPU

_REMEDY = "make the file again with trace-link"


class Counterpart(msgspec.Struct, gc=False, frozen=True):
    """`counterpart` of a device event: id of the GPU node that repeats it."""

    node: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    same_module: bool = False


class _RepeatedEvent(msgspec.Struct, gc=False):
    ts: Any = 0
    counterpart: Counterpart | None = None


_decode = msgspec.json.Decoder(list[_RepeatedEvent]).decode


def counterpart_texts(links: CounterpartLinks, ids: Sequence[int]) -> dict[int, bytes]:
    """By event, the member `counterpart` with a comma before it, to be put at the end of an object.

    Args:
        ids: of the rows of the counterparts.
    """
    same = (b"true" if known else b"false" for known in links.same_module.tolist())
    columns = zip(links.event.tolist(), ids, same, strict=True)
    return {event: b', "counterpart": {"node": %d, "same_module": %b}' % (of, known) for event, of, known in columns}


def read_counterparts(
    file: str, header: Mapping[str, msgspec.Raw], found: dict[int, Counterpart], ids: IntColumn, kind: IntColumn
) -> Counterparts:
    """The counterparts in an ET+ file.

    Args:
        found: `counterpart` by row. ids, kind: of all rows.

    Raises:
        TraceFormatError: a counterpart that is no other GPU node of the file, or has another form.
    """
    unattached: dict[int, Counterpart] = {}
    if b'"counterpart"' in bytes(header.get("unattached", b"")):
        try:
            events = _decode(header["unattached"])
        except UNREADABLE as error:
            raise TraceFormatError(file, '"unattached"', f"cannot be read ({error})", _REMEDY) from None
        events.sort(key=lambda event: event.ts)  # as `read_unattached` does
        unattached = {i: event.counterpart for i, event in enumerate(events) if event.counterpart is not None}
    if not found and not unattached:
        return Counterparts()
    return Counterparts(_links(file, found, ids, kind, rows=True), _links(file, unattached, ids, kind, rows=False))


def _links(
    file: str, found: dict[int, Counterpart], ids: IntColumn, kind: IntColumn, *, rows: bool
) -> CounterpartLinks:
    events = np.array(list(found), np.int64)
    nodes = np.array([link.node for link in found.values()], np.int64)
    at = positions(ids, nodes)
    wrong = (at < 0) | (kind[at] != GPU) | ((at == events) & rows)
    if rows and len(events):
        wrong |= kind[events] != GPU
    if wrong.any():
        problem = f"node {nodes[np.flatnonzero(wrong)[0]]} is no other GPU node, or not that of a GPU node"
        raise TraceFormatError(file, '"counterpart"', problem, _REMEDY)
    return CounterpartLinks(events, at, np.array([link.same_module for link in found.values()], np.bool_))
