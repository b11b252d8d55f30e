"""Names that attributes had in earlier releases, for programs that read them."""

from __future__ import annotations

from operator import attrgetter
from typing import Any


def old_name_of(name: str) -> Any:
    """A read-only property that gives another attribute.

    Example:
        >>> class Size:
        ...     new_size = 4
        ...     to = old_name_of("new_size")
        >>> Size().to
        4
    """
    return property(attrgetter(name), doc=f"Old name of `{name}`.")
