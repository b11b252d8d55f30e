"""Read Nsight Systems exports (`nsys export --type sqlite`) as one `KinetoTrace` per process and GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...trace.outer import lazy_names
from .database import NsysRank, find_ranks, is_nsys

if TYPE_CHECKING:
    from .nsys_reader import read_nsys

__all__ = ["NsysRank", "find_ranks", "is_nsys", "read_nsys"]
__getattr__, __dir__ = lazy_names(__name__, {".nsys_reader": "read_nsys"}, __all__)
