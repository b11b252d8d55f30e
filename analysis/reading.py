"""Read a file of either kind, ET+ or Kineto, for analysis."""

from __future__ import annotations

import io
import re

from ..schemas.collector import collector_paused
from ..schemas.etplus_reader import read_etplus
from ..schemas.files import Source, load
from ..schemas.kineto import read_kineto
from ..trace.derive import from_etplus
from ..trace.tables import Trace
from .kineto_trace import from_kineto

__all__ = ["NamedBytes", "is_kineto", "read_trace"]

_EVENTS = re.compile(rb'"traceEvents"\s*:')
_NODES = re.compile(rb'"nodes"\s*:\s*\[')


class NamedBytes(io.BytesIO):
    """Bytes that have been read already, with the name that messages are to give."""

    def __init__(self, name: str, data: bytes) -> None:
        super().__init__(data)
        self.name = name


@collector_paused()
def read_trace(source: Source, *, progress: bool = False) -> Trace:
    """Read an ET+ file or a Kineto trace, gzipped or not. Of a Kineto trace that is cut off, what is there is read.

    Raises:
        TraceFormatError: neither of them, or broken beyond recovery.
    """
    blob = load(source, progress=progress)
    data = NamedBytes(blob.name, blob.data)
    if is_kineto(blob.data):
        return from_kineto(read_kineto(data, progress=progress, modules=True))
    return from_etplus(read_etplus(data))


def is_kineto(data: bytes) -> bool:
    """Whether a JSON text is a Chrome trace rather than ET+."""
    events = _EVENTS.search(data)
    return events is not None and _NODES.search(data, 0, events.start()) is None
