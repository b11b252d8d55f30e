"""Import public names only when they are used, and import parts of etplus that may not be installed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

_PARTS = ("analysis", "report", "planning")
_NOT_INSTALLED = "etplus.{part} is required here but is not installed; install all parts of etplus"
_PRODUCT = __name__.rpartition(".trace.")[0]


def installed(part: str) -> bool:
    return find_spec(f"{_PRODUCT}.{part}") is not None


def outer(module: str) -> Any:
    """Import `etplus.MODULE`, such as "analysis.counters". Raise UsageError if this part is not installed."""
    require(module.partition(".")[0])
    return import_module(f"{_PRODUCT}.{module}")


def require(*parts: str) -> None:
    """Raise UsageError if a part of etplus is not installed. Call this before an import from one of the parts."""
    for part in parts:
        if not installed(part):
            from .errors import UsageError  # imported late because it imports msgspec

            raise UsageError(_NOT_INSTALLED.format(part=part))


def missing_part(error: BaseException) -> str:
    """Return a message if an import failed because a part of etplus is not installed. Otherwise, return ""."""
    name = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
    part = name.removeprefix(f"{_PRODUCT}.")
    return _NOT_INSTALLED.format(part=part) if part in _PARTS else ""


def lazy_names(
    package: str, modules: Mapping[str, str], public: Iterable[str], guesses: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` (PEP 562) and `__dir__` for a package. `modules` maps modules to space-separated names.
    `guesses` maps wrong names that users try to the correct names. If `guesses` is None, errors make no suggestions."""
    module_of = {name: module for module, names in modules.items() for name in names.split()}

    def get(name: str) -> Any:
        if name in module_of:
            try:
                return getattr(import_module(module_of[name], package), name)
            except ModuleNotFoundError as error:
                if missing := missing_part(error):
                    raise AttributeError(f"{package}.{name}: {missing}") from None
                raise
        if name.startswith("_") or guesses is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from .suggest import no_attribute  # imported late because only wrong names need it

        raise no_attribute(f"module {package!r}", name, public, guesses)

    return get, lambda: sorted(public)
