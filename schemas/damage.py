"""What is known to be wrong with an input: one sentence for each kind of damage, for reports and later files."""

from __future__ import annotations

from pathlib import PurePath
from typing import Protocol

from .recover import Loss

__all__ = ["damage_of"]


class _Read(Protocol):
    """What readers return."""

    @property
    def file(self) -> str: ...
    @property
    def losses(self) -> tuple[Loss, ...]: ...


def damage_of(*traces: _Read) -> tuple[str, ...]:
    """What readers had to repair or lost, in sentences that name the file (without folders); () for sound files.

    ET+ files carry them on in `etplus.damage`, so that whoever reads one knows as well.

    Example:
        >>> from etplus.schemas.kineto import read_kineto
        >>> event = b'{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2}'
        >>> damage_of(read_kineto(b'{"schemaVersion": 1, "traceEvents": [' + event))
        ('<bytes> is broken: ...the file is cut off...',)
    """
    return tuple(f"{PurePath(trace.file).name} is broken: {loss}" for trace in traces for loss in trace.losses)
