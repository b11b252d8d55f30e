"""Public names of a package that are imported on first use, to keep importing the package cheap."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

from .outer import missing_part


def lazy_names(
    package: str, modules: Mapping[str, str], public: Iterable[str], guesses: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's `__getattr__` (PEP 562) and `__dir__`.

    Args:
        package: `__name__` of the package.
        modules: space-separated names, by the module's relative name.
        public: `__all__` of the package.
        guesses: replacements for names that users try; None for no suggestions.
    """
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
        from .suggest import no_attribute  # for whoever guesses

        raise no_attribute(f"module {package!r}", name, public, guesses)

    return get, lambda: sorted(public)
