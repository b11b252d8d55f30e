"""Time zones: an Execution Trace has local time, a Kineto trace has that of the world."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from ..trace.errors import UsageError

_HOUR_S = 3600
_PARTS_OF_HOURS = (-9.5, -3.5, -2.5, 3.5, 4.5, 5.5, 5.75, 6.5, 8.75, 9.5, 10.5, 12.75, 13.75)
OFFSETS_S = tuple(
    sorted((int(hours * _HOUR_S) for hours in (*range(-12, 15), *_PARTS_OF_HOURS)), key=lambda one: (abs(one), one))
)
"""How far local time can be ahead of UTC, s, the nearest first: whole hours, and the zones of the IANA database that
are 15, 30 or 45 minutes off, summer time included."""
_OFFSET = re.compile(r"(?:UTC)?([+-])(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE)


def offset_name(offset_s: int) -> str:
    """An offset as `offsets_of` takes it.

    Example:
        >>> offset_name(-12600), offset_name(0)
        ('UTC-03:30', 'UTC')
    """
    hours, rest = divmod(abs(offset_s), _HOUR_S)
    return f"UTC{'-' if offset_s < 0 else '+'}{hours:02}:{rest // 60:02}" if offset_s else "UTC"


def offsets_of(name: str, local_s: int) -> frozenset[int]:
    """How far a time zone's local time is ahead of UTC, s; two values in the hour that ends summer time.

    Args:
        name: an offset ("UTC-7", "+05:30", "UTC") or a name of the IANA database ("Europe/Berlin").
        local_s: local time, seconds since the epoch as if it were UTC.

    Raises:
        UsageError: there is no such time zone.

    Example:
        >>> offsets_of("UTC-7", 0), offsets_of("+05:45", 0)
        (frozenset({-25200}), frozenset({20700}))
    """
    if name.upper() in ("UTC", "Z"):
        return frozenset((0,))
    if found := _OFFSET.fullmatch(name):
        sign, hours, minutes = found.groups()
        offset_s = (int(hours) * _HOUR_S + int(minutes or 0) * 60) * (-1 if sign == "-" else 1)
        if offset_s not in OFFSETS_S:
            raise UsageError(f"no time zone is {name}; give an offset such as UTC-7 or UTC+05:30, or Europe/Berlin")
        return frozenset((offset_s,))
    from zoneinfo import ZoneInfo

    try:
        zone = ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UsageError(f"unknown time zone {name!r}; give an offset such as UTC-7, or Europe/Berlin") from None
    local = datetime.fromtimestamp(local_s, timezone.utc).replace(tzinfo=None)
    both = (local.replace(fold=fold, tzinfo=zone).utcoffset() for fold in (0, 1))
    return frozenset(int(offset / timedelta(seconds=1)) for offset in both if offset is not None)
