"""Read a file of either kind, ET+ or Kineto, for analysis."""

from __future__ import annotations

import re

from ..schemas.collector import collector_paused
from ..schemas.etplus_reader import parse_etplus
from ..schemas.files import Source, load
from ..schemas.kineto import parse_kineto
from .etplus_trace import from_etplus
from .kineto_trace import from_kineto
from .trace import Trace

__all__ = ["is_kineto", "read_trace"]

_EVENTS = re.compile(rb'"traceEvents"\s*:')
_NODES = re.compile(rb'"nodes"\s*:\s*\[')


@collector_paused()
def read_trace(source: Source, *, progress: bool = False) -> Trace:
    """Read an ET+ file or a Kineto trace, gzipped or not. Of a Kineto trace that is cut off, what is there is read.

    Raises:
        TraceFormatError: neither of them, or broken beyond recovery.
    """
    blob = load(source, progress=progress)
    if is_kineto(blob.data):
        return from_kineto(parse_kineto(blob, progress=progress, modules=True))
    return from_etplus(parse_etplus(blob), unattached=True)


def is_kineto(data: bytes) -> bool:
    """Whether a JSON text is a Chrome trace rather than ET+."""
    events = _EVENTS.search(data)
    return events is not None and _NODES.search(data, 0, events.start()) is None
