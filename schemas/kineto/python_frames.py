"""Python calls of a Kineto trace recorded with_stack, for the flame graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...trace.columns import IntColumn, int_column
from ...trace.errors import TraceFormatError
from ...trace.stacks import is_module
from ..text.files import Source

_REMEDY = "give a Kineto trace that was recorded with_stack=True"


@dataclass(frozen=True)
class PythonFrames:
    """Calls of Python functions except modules, in file order."""

    name: list[str]  # such as "train.py(12): step"
    thread: IntColumn  # Kineto's tid
    ts: IntColumn  # ns, as in `Trace.calls`
    end: IntColumn

    def __len__(self) -> int:
        return len(self.name)


def read_python_frames(source: Source) -> PythonFrames:
    """Read the Python calls of a Kineto trace; leave out calls without a time or a numeric thread."""
    from .read_kineto import read_kineto  # drawing frames alone needs no reader

    kineto = read_kineto(source)
    frames = kineto.frames
    numeric = [isinstance(tid, int) for _, tid in frames.threads]
    tids = int_column([tid for _, tid in frames.threads], -1)
    functions = [not is_module(name) for name in frames.names]
    kept = np.flatnonzero(np.array(functions, np.bool_)[frames.name] & np.array(numeric, np.bool_)[frames.thread])
    if not len(kept):
        raise TraceFormatError(kineto.file, "", "has no Python calls", _REMEDY)
    names = [frames.names[code] for code in frames.name[kept].tolist()]
    return PythonFrames(names, tids[frames.thread[kept]], frames.ts[kept], frames.end[kept])
