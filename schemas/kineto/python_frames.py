"""Python calls of a Kineto trace that was recorded with_stack; linking and analysis leave them out but for modules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from ...trace.columns import IntColumn, exact_ns
from ...trace.conventions import PYTHON_CATEGORY
from ...trace.errors import UNREADABLE, TraceFormatError
from ..text.files import Source, load
from .kineto_decode import MODULE

_LATEST = 2**53
_REMEDY = "give a Kineto trace that was recorded with_stack=True"


@dataclass(frozen=True)
class PythonFrames:
    """Calls of Python functions but modules, in the order of the file.

    Attributes:
        name: such as "train.py(12): step".
        thread: int64, Kineto's tid, the number of the thread in a trace that is read from Kineto alone.
        ts, end: int64 ns, as in `Trace.calls`; to the µs of a double where times are since 1970.
    """

    name: list[str]
    thread: IntColumn
    ts: IntColumn
    end: IntColumn

    def __len__(self) -> int:
        return len(self.name)


class _PythonEvent(msgspec.Struct):
    name: Any = ""
    cat: Any = ""
    ts: Any = None
    dur: Any = None
    tid: Any = None


class _File(msgspec.Struct):
    traceEvents: list[_PythonEvent] = []


def read_python_frames(source: Source) -> PythonFrames:
    """Read the Python calls of a Kineto trace; those without a time or a numeric thread are left out.

    Raises:
        TraceFormatError: the file is not JSON of that form, such as a damaged trace, or has no Python calls.

    Example:
        >>> event = b'{"cat": "python_function", "name": "a.py(1): run", "ts": 5, "dur": 2.5, "tid": 1}'
        >>> frames = read_python_frames(b'{"traceEvents": [' + event + b"]}")
        >>> frames.name, frames.ts.tolist(), frames.end.tolist()
        (['a.py(1): run'], [5000], [7500])
    """
    blob = load(source)
    try:
        events = msgspec.json.decode(bytes(blob.data), type=_File).traceEvents
    except UNREADABLE as error:
        raise TraceFormatError(blob.name, "", f"Python calls cannot be read: {error}", _REMEDY) from None
    found = [
        event for event in events
        if event.cat == PYTHON_CATEGORY and isinstance(event.name, str) and not event.name.startswith(MODULE)
        and all(isinstance(value, (int, float)) and abs(value) < _LATEST for value in (event.ts, event.dur))
        and type(event.tid) is int and abs(event.tid) < _LATEST
    ]  # fmt: skip
    if not found:
        raise TraceFormatError(blob.name, "", "has no Python calls", _REMEDY)
    ts, dur = (exact_ns(np.array([getattr(call, key) for call in found], np.float64)) for key in ("ts", "dur"))
    return PythonFrames([call.name for call in found], np.array([call.tid for call in found], np.int64), ts, ts + dur)
