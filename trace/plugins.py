"""Load objects that extend etplus from other packages, which register them as entry points."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

from .errors import EtplusError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_LOG = logging.getLogger("etplus")


@dataclass(frozen=True)
class Plugin:
    """An object from another package. `what` describes it in error messages, for example as a "command"."""

    what: str
    point: EntryPoint

    @property
    def package(self) -> str:
        return _package(self.point)

    def load(self) -> Any:
        """Return the object, or an instance if the object is a class. Raise EtplusError on failure."""
        try:
            found = self.point.load()
            return found() if isinstance(found, type) else found
        except Exception as error:
            problem = f"cannot be loaded ({_described(error)})"
            raise EtplusError(f"{self} {problem}; update or remove that package") from error

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the object. Errors in its package are raised as EtplusError."""
        target = self.load()
        with self.contained():
            return getattr(target, method)(*arguments)

    @contextmanager
    def contained(self) -> Iterator[None]:
        """Convert errors in the `with` block to errors that name the package. Consume generators inside the block."""
        try:
            yield
        except (EtplusError, OSError, MemoryError):
            raise
        except Exception as error:
            raise EtplusError(f"{self} failed ({_described(error)}); tell the plugin's authors") from error

    def __str__(self) -> str:
        return f"{self.what} {self.point.name} of {self.package}"


def plugins(group: str, what: str, taken: Collection[str]) -> dict[str, Plugin]:
    """Map names to the plugins in a group of entry points. A name in `taken` is ignored with a warning."""
    by_name: dict[str, Plugin] = {}
    if not _may_be_declared(group):
        return by_name
    from importlib.metadata import entry_points

    for point in sorted(entry_points(group=group), key=lambda point: (point.name, _package(point))):
        plugin = Plugin(what, point)
        if point.name in taken or point.name in by_name:
            _LOG.warning("%s is ignored: its name is already taken", plugin)
        else:
            by_name[point.name] = plugin
    return by_name


def _may_be_declared(group: str) -> bool:
    """Return True if a package may have entry points in the group. `importlib.metadata` is 30 times slower."""
    if any(hasattr(finder, "find_distributions") and finder is not PathFinder for finder in sys.meta_path):
        return True
    for place in sys.path:
        try:
            packages = [name for name in os.listdir(place or ".") if name.endswith((".dist-info", ".egg-info"))]  # noqa: PTH208
        except NotADirectoryError:
            return True
        except OSError:
            continue
        for name in packages:
            with suppress(OSError), open(f"{place or '.'}/{name}/entry_points.txt", "rb") as file:  # noqa: PTH123
                if group.encode() in file.read():
                    return True
    return False


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unknown package"


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
