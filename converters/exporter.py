"""The exporter protocol and its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from ..trace.brief import brief
from .traces import Traces

# Inputs of an exporter: one trace, one or several ranks of a job, or any traces.
Inputs = Literal["one", "ranks", "traces"]
# Outputs that Graphviz draws.
PICTURES = (".svg", ".pdf", ".png")


@dataclass(frozen=True)
class Conversion:
    """Result of a conversion.

    Attributes:
        nodes: number of nodes (for "chrome", slices) in all files.
        counts: changes and losses, by description.
        damage: damage of the traces behind the inputs.
        network: the network of a set for a simulator.
        base_error: error of the replay that computed a set's times.
    """

    files: tuple[str, ...]
    nodes: int
    counts: Counter[str] = field(default_factory=Counter)
    notes: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()
    network: Mapping[str, Any] | None = None
    base_error: Mapping[str, Any] | None = None

    __repr__ = brief


@dataclass(frozen=True)
class NoOptions: ...


@runtime_checkable
class Exporter(Protocol):
    """Writes traces in one format; docs/extending.md has an example. Put slow imports into `write`."""

    @property
    def name(self) -> str:
        """Name of the format for `convert(to=...)` and `--to`."""

    @property
    def summary(self) -> str:
        """Description for --help, at most half a line."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Lower-case suffixes of the format's files, including ".gz" variants; () if only --to selects it."""

    @property
    def inputs(self) -> Inputs: ...

    @property
    def options(self) -> type[Any]:
        """A frozen dataclass with defaults for all fields. With `as_prefix`, `path` can be a prefix or folder."""

    def write(self, traces: Traces, path: str, options: Any) -> Conversion:
        """Write the files with `open_output`; raise UsageError or ConvertError if traces or options do not fit the
        format.

        Args:
            traces: by rank, a single trace if `inputs` is "one"; read one by one, see `Traces`.
            path: the output as given by the user, "-" for standard output.
        """


def with_gz(*suffixes: str) -> tuple[str, ...]:
    """Return the suffixes, and each suffix with ".gz" appended."""
    return tuple(suffix + ending for suffix in suffixes for ending in ("", ".gz"))
