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
        >>> damage_of(read_kineto("cut_off.json"))  # doctest: +SKIP
        ("cut_off.json is broken: 1 × truncated (the file is cut off; an unknown number of records is missing)",)
    """
    return tuple(f"{PurePath(trace.file).name} is broken: {loss}" for trace in traces for loss in trace.losses)
