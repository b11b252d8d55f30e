"""How much memory this process can still take, and how sizes are written in messages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["available_memory", "size_text"]

_UNLIMITED = 1 << 62
_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Bytes that can be allocated without swapping: of the machine, the control group (containers) and the limits.

    Where the system does not report it, this is half of the machine's memory; without that, unlimited.

    Example:
        >>> available_memory() > 1 << 20
        True
    """
    return max(min(_limits()), 0)


def size_text(count: int) -> str:
    """A number of bytes for a message.

    Example:
        >>> size_text(6_400_000_000)
        '6.4 GB'
    """
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 1000)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _limits() -> Iterator[int]:
    yield _UNLIMITED
    meminfo = _fields(_PROC / "meminfo")
    if "MemAvailable:" in meminfo:
        yield meminfo["MemAvailable:"] * 1024
    elif hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    # version 2, then version 1: https://docs.kernel.org/admin-guide/cgroup-v2.html#memory
    for folder, limit, used in (
        (_CGROUPS, "memory.max", "memory.current"),
        (_CGROUPS / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        most, now = _number(folder / limit), _number(folder / used)
        if most is not None and now is not None:  # files in the cache give way
            yield most - now + _fields(folder / "memory.stat").get("inactive_file", 0)
    yield from _address_space()


def _address_space() -> Iterator[int]:
    try:
        import resource
    except ImportError:  # Windows
        return
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    pages = _words(_PROC / "self" / "statm")
    if soft != resource.RLIM_INFINITY and pages:
        yield soft - int(pages[0]) * resource.getpagesize()


def _fields(path: Path) -> dict[str, int]:
    """A file of lines with a name and a number; {} if it cannot be read."""
    words = _words(path, "\n")
    return {parts[0]: int(parts[1]) for parts in map(str.split, words) if len(parts) > 1 and parts[1].isdigit()}


def _number(path: Path) -> int | None:
    words = _words(path)
    return int(words[0]) if words and words[0].isdigit() else None


def _words(path: Path, separator: str | None = None) -> list[str]:
    try:
        return path.read_text("ascii", "replace").split(separator)
    except OSError:
        return []
