"""What an exporter is: the protocol, and what it returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from ..trace.brief import brief
from .traces import Traces

Inputs = Literal["one", "ranks", "traces"]
"""What an exporter takes: one trace, one or several ranks of a job, or any traces."""
PICTURES = (".svg", ".pdf", ".png")
"""What Graphviz draws of a graph, by the suffix of the output."""


@dataclass(frozen=True)
class Conversion:
    """What was written.

    Attributes:
        nodes: number of nodes (of "chrome" slices) of all files.
        counts: what was changed or left out, in words, and how often.
        damage: what was wrong with the traces that the inputs were made of.
        network: the network of a set for a simulator. base_error: of the replay that made a set's times.

    Example:
        >>> Conversion(("trace.0.et",), nodes=522).counts
        Counter()
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
class NoOptions:
    """Options of a format that has none."""


@runtime_checkable
class Exporter(Protocol):
    """Writes traces in one format; docs/reference/converters.md has an example.

    Listing the formats imports the modules of exporters: what takes long to import belongs in `write`.
    """

    @property
    def name(self) -> str:
        """What `convert(to=...)` and `--to` call the format."""

    @property
    def summary(self) -> str:
        """What it writes, in half a line for --help."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Endings of its files' names, in lower case, ".gz" included where it can be; () if only --to chooses it."""

    @property
    def inputs(self) -> Inputs:
        """See `Inputs`."""

    @property
    def options(self) -> type[Any]:
        """A frozen dataclass whose fields have defaults, such as `NoOptions`.

        A field `as_prefix: bool | None = None` says that `path` may be a prefix or folder for several files.
        """

    def write(self, traces: Traces, path: str, options: Any) -> Conversion:
        """Write the files, by `open_output`.

        Args:
            traces: by rank, one for `inputs` "one"; read one by one, see `Traces`.
            path: the output as the user gave it, "-" for standard output.

        Raises:
            UsageError: options that the traces cannot fulfill, or an output that cannot be written.
            ConvertError: traces that the format cannot express.
        """


def with_gz(*suffixes: str) -> tuple[str, ...]:
    """Suffixes, and each with ".gz".

    Example:
        >>> with_gz(".et")
        ('.et', '.et.gz')
    """
    return tuple(suffix + ending for suffix in suffixes for ending in ("", ".gz"))
