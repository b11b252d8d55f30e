"""Nsight Systems exports (`nsys export --type sqlite`): one `KinetoTrace` per process and GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .database import NsysRank, find_ranks, is_nsys

if TYPE_CHECKING:
    from .nsys_reader import read_nsys

__all__ = ["NsysRank", "find_ranks", "is_nsys", "read_nsys"]


def __getattr__(name: str) -> Any:
    if name != "read_nsys":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .nsys_reader import read_nsys

    return read_nsys
