"""Create errors for missing attributes that suggest the attribute that the user probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from .brief import as_html

# Users try these data frame attributes on objects that only have `to_pandas`.
_PANDAS = """
agg apply assign at columns corr count cumsum describe drop drop_duplicates dtypes fillna filter groupby head
hist iloc index info join loc max mean median melt merge min nlargest nsmallest pivot pivot_table plot quantile
query rename reset_index sample set_index shape sort_values std sum tail to_csv to_dict to_html to_json
to_markdown to_numpy to_records to_string transpose unique value_counts values where
"""


def guesses_of(text: str) -> dict[str, str]:
    """Parse entries of the form `name name: replacement;`. Return a dict that maps names to replacements."""
    entries = (entry.split(": ", 1) for entry in re.split(r";\s+(?=[\w ]+: )", text.strip()))
    return {name: replacement.strip() for names, replacement in entries for name in names.split()}


OP_GUESSES = guesses_of(
    """
    duration dur cpu_time cpu_time_total: `duration_ns`; self_cpu_time self_cpu_time_total: `self_ns`;
    device_time device_time_total cuda_time cuda_time_total: `device_ns`; ts start time_range: `start_ns`;
    end_ns end: `start_ns + duration_ns`; input_shapes input_dims: `shapes`; input_types types input_dtypes: `dtypes`;
    inputs: `shapes` and `dtypes`; cpu_children: `children`; cpu_parent: `parent`; events: `kernels`; tid: `thread`;
    id: `record["id"]`; args: `record`; flops: `trace.analyze().operators`; stacktrace: `stack`; line file: `source`;
    iteration: `step`; to_pandas: `trace.ops.to_pandas()`; key: `name`; count: `len(trace.ops.named(op.name))`
    """
)
EVENT_GUESSES = guesses_of(
    """
    duration dur cuda_time device_time: `duration_ns`; ts start: `start_ns`; end_ns end: `start_ns + duration_ns`;
    shapes input_shapes shape: `op.shapes`; dtypes types: `op.dtypes`; parent operator launcher cpu_op: `op`;
    threads block_size: `block`; blocks grid_size: `grid`; collective: `comm`; args: `grid`, `block`, `comm`;
    flops: `trace.kernels.to_pandas().flops`; bytes: `trace.kernels.to_pandas().bytes`;
    bound: `trace.kernels.to_pandas().bound`; queue: `trace.kernels.to_pandas().queue`;
    launch_delay queue_delay: `delay_ns`; iteration: `step`; to_pandas: `trace.kernels.to_pandas()`;
    stack_trace: `stack`; line: `source`; kernel_name: `name`; occupancy: `grid`, `block`
    """
)
ROWS_GUESSES = guesses_of(
    """
    head: a slice, `[:5]`; total sum: `to_pandas().duration_ns.sum()`; where: `named("…")`, `matching("…")`;
    top: `to_pandas().nlargest(5, "duration_ns")`; filter query: `named("aten::mm")`, `matching("gemm")`;
    sort: `sorted(…, key=lambda row: row.duration_ns)`;
    duration_ns: `[row.duration_ns for row in …]`, or `to_pandas().duration_ns`; names: `[row.name for row in …]`;
    name: `[row.name for row in …]`, or `named("…")`; find: `matching("gemm")`; to_df df: `to_pandas()`;
    to_polars: `polars.from_arrow(rows.to_arrow())`
    """
)


def no_key(thing: str, key: object, remedy: str) -> TypeError:
    return TypeError(f"{thing} has no key {key!r}; use {remedy}")


def no_attribute(thing: str, name: str, known: Iterable[str], guesses: Mapping[str, str]) -> AttributeError:
    """Return an error for a missing attribute that suggests a replacement from `guesses` or similar `known` names."""
    from difflib import get_close_matches  # imported late because only errors need it

    if name in guesses:
        return AttributeError(f"{thing} has no attribute {name!r}; use {guesses[name]}")
    public = [other for other in known if not other.startswith("_")]
    near = get_close_matches(name, public, n=3, cutoff=0.65)
    begun = [other for other in public if name and (other.startswith(name) or other.removesuffix("_ns") == name)]
    found = list(dict.fromkeys([*begun, *near]))[:3]
    meant = f"; did you mean {' or '.join(map(repr, found))}?" if found else f"; dir() lists its {len(public)} names"
    return AttributeError(f"{thing} has no attribute {name!r}{meant}")


class Suggests:
    """Base class of public objects. The error for a missing attribute suggests similar names or `guesses`."""

    guesses: ClassVar[Mapping[str, str]] = {}
    _repr_html_ = as_html

    if not TYPE_CHECKING:  # type checkers already know the attributes

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # a property raised AttributeError, so raise it again
                return object.__getattribute__(self, name)
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            public = next(kind.__name__ for kind in type(self).__mro__ if not kind.__name__.startswith("_"))
            guesses: dict[str, str] = {}
            for base in reversed(type(self).__mro__):
                guesses |= vars(base).get("guesses", {})
            if name in _PANDAS.split() and hasattr(type(self), "to_pandas"):
                guesses.setdefault(name, f"`to_pandas().{name}`")
            raise no_attribute(public, name, dir(self), guesses)
