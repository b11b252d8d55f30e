"""The protocol that exporters implement, and the result of a conversion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from ..trace.brief import brief
from .traces import Traces

# An exporter accepts one trace, one or several ranks of a job, or any traces.
Inputs = Literal["one", "ranks", "traces"]
# Graphviz renders images with these file extensions.
PICTURES = (".svg", ".pdf", ".png")


@dataclass(frozen=True)
class Conversion:
    """Result of a conversion.

    Attributes:
        nodes: number of nodes (for "chrome", slices) in all written files.
        counts: maps descriptions of changes and losses to how often each occurred.
        damage: descriptions of damage in the original traces.
        network: the network for which a simulator's set was written.
        base_error: the error of the replay that computed the times in a simulator's set.
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
        """The name of the format for `convert(to=...)` and `--to`."""

    @property
    def summary(self) -> str:
        """A description for --help that fills at most half a line."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Lowercase suffixes of the format's files, including ".gz" variants; empty if only --to selects the format."""

    @property
    def inputs(self) -> Inputs: ...

    @property
    def options(self) -> type[Any]:
        """A frozen dataclass with defaults for all fields; a field `as_prefix` allows a prefix or folder as `path`."""

    def write(self, traces: Traces, path: str, options: Any) -> Conversion:
        """Write the files with `open_output`; raise UsageError or ConvertError if traces or options do not fit.

        Args:
            traces: the input by rank, or a single trace if `inputs` is "one"; iterating reads the traces one by one.
            path: the output as given by the user, "-" for standard output.
        """


def with_gz(*suffixes: str) -> tuple[str, ...]:
    return tuple(suffix + ending for suffix in suffixes for ending in ("", ".gz"))
