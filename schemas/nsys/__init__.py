"""Nsight Systems exports (`nsys export --type sqlite` or `parquetdir`): one `KinetoTrace` per process and GPU."""

from __future__ import annotations

from .database import is_nsys
from .ranks import NsysRank, choose, find_ranks, only
from .reader import read_nsys

__all__ = ["NsysRank", "choose", "find_ranks", "is_nsys", "only", "read_nsys"]
