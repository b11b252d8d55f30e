"""Define the protocol that all exporters implement, and the result of a conversion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from ..trace.brief import brief
from .traces import Traces

# An exporter accepts a single trace, the ranks of one job, or several unrelated traces.
Inputs = Literal["one", "ranks", "traces"]
# Graphviz renders images with these file extensions.
PICTURES = (".svg", ".pdf", ".png")


@dataclass(frozen=True)
class Conversion:
    """Result of a conversion.

    Attributes:
        nodes: number of nodes in all written files. For "chrome", `nodes` is the number of slices.
        counts: maps descriptions of changes and losses to the number of times that they occurred.
        damage: describes damage in the input traces.
        network: the network for which the traces of a simulation were written.
        base_error: the error of the replay that computed the times in the traces of a simulation.
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
    """Writes traces in one format. See the example in docs/extending.md. Put slow imports into `write`."""

    @property
    def name(self) -> str:
        """The name that selects the format in `convert(to=...)` and `--to`."""

    @property
    def summary(self) -> str:
        """A description for --help that takes up at most half a line."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Lowercase file suffixes of the format, including ".gz" variants. If empty, only --to selects the format."""

    @property
    def inputs(self) -> Inputs: ...

    @property
    def options(self) -> type[Any]:
        """A frozen dataclass with defaults for all fields. If it has a field `as_prefix`, `path` may be a prefix."""

    def write(self, traces: Traces, path: str, options: Any) -> Conversion:
        """Write the files with `open_output`. Raise UsageError or ConvertError if the traces or options are unsuitable.

        Args:
            traces: maps ranks to traces. If `inputs` is "one", there is one trace. Iteration reads one trace at a time.
            path: the output path that the user passed, or "-" for standard output.
        """


def with_gz(*suffixes: str) -> tuple[str, ...]:
    return tuple(suffix + ending for suffix in suffixes for ending in ("", ".gz"))
