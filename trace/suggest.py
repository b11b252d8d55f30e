"""Errors for attributes that do not exist, which name the one that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

_PANDAS = frozenset([
    "agg", "apply", "assign", "at", "columns", "corr", "count", "cumsum", "describe", "drop", "drop_duplicates",
    "dtypes", "fillna", "filter", "groupby", "head", "hist", "iloc", "index", "info", "join", "loc", "max", "mean",
    "median", "melt", "merge", "min", "nlargest", "nsmallest", "pivot", "pivot_table", "plot", "quantile", "query",
    "rename", "reset_index", "sample", "set_index", "shape", "sort_values", "std", "sum", "tail", "to_csv", "to_dict",
    "to_html", "to_json", "to_markdown", "to_numpy", "to_records", "to_string", "transpose", "unique", "value_counts",
    "values", "where",
])  # fmt: skip
"""Attributes of a data frame that users look for on objects with `to_pandas`."""


def no_key(thing: str, key: object, remedy: str) -> TypeError:
    """Return the error for a subscript that an object does not take.

    Example:
        >>> str(no_key("Ops", 3.5, "`trace.ops[3]`"))
        'Ops has no key 3.5; use `trace.ops[3]`'
    """
    return TypeError(f"{thing} has no key {key!r}; use {remedy}")


def no_attribute(thing: str, name: str, known: Iterable[str], guesses: Mapping[str, str]) -> AttributeError:
    """Return the error for a name that an object does not have.

    Args:
        thing: name of the object. known: its attributes.
        guesses: replacements for names that users of other libraries try.

    Example:
        >>> no_attribute("Trace", "kernel", ["kernels", "ops"], {})
        AttributeError("Trace has no attribute 'kernel'; did you mean 'kernels'?")
    """
    from difflib import get_close_matches  # nobody else needs it

    if name in guesses:
        return AttributeError(f"{thing} has no attribute {name!r}; use {guesses[name]}")
    public = [other for other in known if not other.startswith("_")]
    near = get_close_matches(name, public, n=3, cutoff=0.65)
    begun = [other for other in public if name and (other.startswith(name) or other.removesuffix("_ns") == name)]
    found = list(dict.fromkeys([*begun, *near]))[:3]
    meant = f"; did you mean {' or '.join(map(repr, found))}?" if found else f"; dir() of it lists {len(public)} names"
    return AttributeError(f"{thing} has no attribute {name!r}{meant}")


class Suggests:
    """Base of public objects: the error for a missing attribute names the one that was probably meant.

    Attributes:
        guesses: replacements for names that users of pandas, PyTorch or HTA try.
    """

    guesses: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:  # a type checker knows what is there

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # a property that raised: again, for its own error
                return object.__getattribute__(self, name)
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            public = next(kind.__name__ for kind in type(self).__mro__ if not kind.__name__.startswith("_"))
            guesses = _all_guesses(type(self))
            if name in _PANDAS and hasattr(type(self), "to_pandas"):
                guesses.setdefault(name, f"`to_pandas().{name}`")
            raise no_attribute(public, name, dir(self), guesses)


def _all_guesses(kind: type) -> dict[str, str]:
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        found |= vars(base).get("guesses", {})
    return found
