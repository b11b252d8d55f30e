"""Parts of outer rings, which may not be installed: the core works without `analysis/`, `report/` and `planning/`."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

_PARTS = ("analysis", "report", "planning")
_NOT_INSTALLED = "this needs etplus.{part}, which is not installed; install all parts of etplus"
_PRODUCT = __name__.rpartition(".trace.")[0]


def installed(part: str) -> bool:
    """Return whether `etplus.PART` is installed, as in "analysis"."""
    return find_spec(f"{_PRODUCT}.{part}") is not None


def outer(module: str) -> Any:
    """Return the module `etplus.MODULE`, as in "analysis.counters".

    Raises:
        UsageError: the part that the module belongs to is not installed.
    """
    require(module.partition(".")[0])
    return import_module(f"{_PRODUCT}.{module}")


def require(*parts: str) -> None:
    """Raise UsageError unless parts are installed; call it before importing a module of them."""
    for part in parts:
        if not installed(part):
            from .errors import UsageError  # imports msgspec, and `import etplus` imports this module

            raise UsageError(_NOT_INSTALLED.format(part=part))


def missing_part(error: BaseException) -> str:
    """Return the message for a failed import of a part that is not installed, else ""."""
    name = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
    part = name.removeprefix(f"{_PRODUCT}.")
    return _NOT_INSTALLED.format(part=part) if part in _PARTS else ""
