"""Determine how much memory this process may still use, and refuse work that needs more."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

from ...trace.errors import TraceFormatError, UsageError

LIMIT = "ETPLUS_MEMORY_LIMIT"
"""Environment variable with the memory that a process may use, such as 512MB or 8 GB."""
_UNITS = {f"{unit}{i}": (1024 if i else 1000) ** k for k, unit in enumerate(("", *"kmgt")) for i in ("", "i")}
_LIMIT_TEXT = re.compile(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*(?:([kmgt]i?)?b?)\s*", re.IGNORECASE | re.ASCII)
# Gzip can expand data 1000 times, but traces expand only 10 to 40 times. A factor above this limit is suspicious.
_GROWTH = 200
_STRETCH = 1 << 16  # This many bytes of gzip are checked together; writers start deflate blocks at least this often.
_GROWN = 1 << 25  # number of suspicious bytes to tolerate, because reading them takes only seconds
_INTERVAL_S = 0.1
_SLACK = 1 << 28
_WORTH_ASKING = 1 << 26  # For fewer bytes, checking the available memory is not worth the time.
_UNLIMITED = 1 << 62
_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Return how many bytes this process can allocate without swapping, within all limits and `LIMIT`."""
    return max(min(_limits()), 0)


def require_memory(name: str, size: int, what: str, *, times: float = 1, remedy: str = "") -> None:
    """Refuse work if it needs `times` × `size` bytes and less memory is available. Errors call the work `what`."""
    if size > _WORTH_ASKING and times * size > (free := available_memory()):
        problem = f"{what}: {size_text(size)}, but only {size_text(free)} of memory is available"
        usual = f"use a machine with more memory, or record fewer steps{or_raise_limit()}"
        raise TraceFormatError(name, "", problem, remedy or usual)


class Expansion:
    """Watches how an input expands, and refuses inputs that are designed to fill the memory."""

    def __init__(self, name: str, verb: str = "unpacks to") -> None:
        self._name, self._verb = name, verb
        self._read = self._made = 0
        self._suspect_read = self._suspect = 0

    def add(self, read: int, made: int) -> None:
        """Count bytes that were read and their expanded size. Raise TraceFormatError if no trace expands that much."""
        self._read += read
        self._made += made
        if self._read < _STRETCH and self._made < _GROWTH * _STRETCH:
            return
        if self._made > _GROWTH * self._read:
            self._suspect_read += self._read
            self._suspect += self._made
        self._read = self._made = 0
        if self._suspect > _GROWN:
            sizes = f"{size_text(self._suspect)} from {size_text(self._suspect_read)}"
            problem = f"{self._verb} over {sizes}, but traces normally expand 10- to 40-fold"
            remedy = "it is damaged or was made to fill the memory; check where it comes from"
            raise TraceFormatError(self._name, "", problem, remedy)


@contextlib.contextmanager
def capped_memory() -> Iterator[None]:
    """Raise `MemoryError` if the block uses more memory than `LIMIT`. Check ten times per second of CPU time."""
    allowed = _limit()
    _refuse_beyond_machine()
    if allowed >= _UNLIMITED or not hasattr(signal, "setitimer"):
        yield
        return
    signal.signal(signal.SIGPROF, lambda *_: _check_held(allowed))
    signal.setitimer(signal.ITIMER_PROF, _INTERVAL_S, _INTERVAL_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _refuse_beyond_machine() -> None:
    try:
        import resource
    except ImportError:  # Windows has no such module.
        return
    reserved = _fields(_PROC / "self" / "status", 1024).get("VmData:")
    most = min(_totals())
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if most >= _UNLIMITED or reserved is None:
        return
    most += most // 4 + _SLACK + max(reserved - _held(), 0)  # Libraries reserve more memory than they use.
    if soft == resource.RLIM_INFINITY or most < soft:
        with contextlib.suppress(OSError, ValueError):  # The hard limit may be lower.
            resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def _check_held(allowed: int) -> None:
    if _held() > allowed:
        signal.setitimer(signal.ITIMER_PROF, 0)  # The error is raised only once, because handling it takes memory.
        raise MemoryError


def size_text(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 1000)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _limit() -> int:
    given = os.environ.get(LIMIT, "")
    if not given.strip():
        return _UNLIMITED
    found = _LIMIT_TEXT.fullmatch(given)
    size = int(float(found[1]) * _UNITS[(found[2] or "").lower()]) if found else 0
    if not size:
        raise UsageError(f"{LIMIT}={given[:40]}: not a size; set it to a size such as 512MB or 8GB, or unset it")
    return min(size, _UNLIMITED)


def or_raise_limit() -> str:
    return f", or raise {LIMIT}" if os.environ.get(LIMIT) else ""


def _totals() -> Iterator[int]:
    yield _limit()
    meminfo = _fields(_PROC / "meminfo", 1024)
    if "MemTotal:" in meminfo:
        yield meminfo["MemTotal:"] + meminfo.get("SwapTotal:", 0)
    yield from (most for most, _ in _control_groups())


def _limits() -> Iterator[int]:
    if (most := _limit()) < _UNLIMITED:
        yield most - _held()
    yield _UNLIMITED
    meminfo = _fields(_PROC / "meminfo", 1024)
    if "MemAvailable:" in meminfo:
        yield meminfo["MemAvailable:"]
    elif hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    yield from (most - now for most, now in _control_groups())
    yield from _address_space()


def _control_groups() -> Iterator[tuple[int, int]]:
    # cgroup version 2, then version 1: https://docs.kernel.org/admin-guide/cgroup-v2.html#memory
    for folder, limit, used in (
        (_CGROUPS, "memory.max", "memory.current"),
        (_CGROUPS / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        most, now = _number(folder / limit), _number(folder / used)
        if most is not None and now is not None:  # Unused page cache does not count; the kernel frees it on demand.
            yield most, now - _fields(folder / "memory.stat").get("inactive_file", 0)


def _address_space() -> Iterator[int]:
    try:
        import resource
    except ImportError:  # Windows has no such module.
        return
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    pages = _words(_PROC / "self" / "statm")
    if soft != resource.RLIM_INFINITY and pages:
        yield soft - int(pages[0]) * resource.getpagesize()


def _held() -> int:
    pages = _words(_PROC / "self" / "statm")
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if len(pages) > 1 else 0


def _fields(path: Path, unit: int = 1) -> dict[str, int]:
    words = _words(path, "\n")
    return {parts[0]: int(parts[1]) * unit for parts in map(str.split, words) if len(parts) > 1 and parts[1].isdigit()}


def _number(path: Path) -> int | None:
    words = _words(path)
    return int(words[0]) if words and words[0].isdigit() else None


def _words(path: Path, separator: str | None = None) -> list[str]:
    try:
        return path.read_text("ascii", "replace").split(separator)
    except OSError:
        return []
