"""Where in the program rows were called: stacks of frames, and the source line that a stack stands for."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .brief import brief
from .columns import IntColumn, distinct_rows, first_seen, inverse_positions
from .index import Positions, Row, as_positions
from .printable import shortened

Codes = npt.NDArray[np.int32]
EVIDENCE_OF_STACKS = ("Python frames", "compiled code", "graph annotation", "repetition")
"""How it is known that a row was called in a stack: `Stacks.evidence`.

"Python frames": recorded, open when the row began or was launched. "compiled code": the source of what a compiled
kernel was generated from. "graph annotation": written when the kernel's graph was captured. "repetition": that of an
equal kernel of another iteration, inferred.
"""
PYTHON_FRAMES, COMPILED, GRAPH_ANNOTATION, REPETITION = range(len(EVIDENCE_OF_STACKS))

_WIDTH = 70
MODULE_FRAME = "nn.Module: "
_LOCATED = r"(?s)(.*)\((\d{1,9})\): (.*)"
_LIBRARY = (
    r"<(?!ipython-input)|(?:.*[/\\])?(?:torch|functorch|triton)[/\\]"
    r"|.*[/\\]lib(?:64)?[/\\]python\d[\w.]*[/\\](?!(?:site|dist)-packages[/\\])|.*[/\\]torchinductor_[^/\\]*[/\\]"
)
"""Files that are nobody's own code: made up or compiled ones, torch, the standard library with its folder."""
_STANDARD = frozenset(sys.stdlib_module_names) | {"asyncore", "distutils", "imp"}


class SourceLine(NamedTuple):
    """A line of a program.

    Attributes:
        file: as it was recorded: absolute, or relative to the folder of installed packages.
        line: from 1; that of the call where it was recorded, else the first line of the function.
        function: in which it is; "" if that is not known.
        exact: `line` is that of the call.
        own: it is in own code; else no frame of the stack is, and this is the innermost one.
    """

    file: str
    line: int
    function: str = ""
    exact: bool = False
    own: bool = True

    def __repr__(self) -> str:
        return f"<line {shortened(str(self), _WIDTH)}>"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f" ({self.function})" if self.function else "")


@dataclass(frozen=True)
class Stacks:
    """Stacks of frames, and in which of them the rows of a trace were called.

    An entry is a frame together with all those that called it, so that stacks are a tree. A row may have several: a
    fused kernel is called for by several lines, and all of them are given, the first one first.

    Attributes:
        names: of frames: "train.py(12): step", "nn.Module: Linear_0", "<built-in method add …>".
        above: int64, by entry that of the caller, smaller than its own; −1 for an outermost frame.
        name: int32, by entry the code of its frame in `names`.
        line: int32, by entry the line, in the file of the frame above, from which it was called; −1 if not recorded.
        row: int64, ascending, rows of the trace; one that has several stacks is there several times.
        entry: int64, by position in `row` the innermost entry of the stack.
        evidence: int8, by position in `row` an index into `EVIDENCE_OF_STACKS`.

    Example:
        >>> stacks = Stacks.none().with_stacks({7: [["train.py(3): main", "nn.Module: Net_0", "net.py(8): forward"]]})
        >>> str(stacks.source(int(stacks.first_entry(np.array([7]))[0])))
        'net.py:8 (forward)'
    """

    names: list[str]
    above: IntColumn
    name: Codes
    line: Codes
    row: Positions[int, Row]
    entry: IntColumn
    evidence: npt.NDArray[np.int8]

    __repr__ = brief

    def __len__(self) -> int:
        """Number of entries."""
        return len(self.above)

    @staticmethod
    def none() -> Stacks:
        """No stacks."""
        none, codes = np.zeros(0, np.int64), np.zeros(0, np.int32)
        return Stacks([], none, codes, codes, as_positions(none), none, np.zeros(0, np.int8))

    def first_entry(self, rows: IntColumn) -> IntColumn:
        """int64, the innermost entry of the first stack of each of some rows, −1 for none."""
        at = np.searchsorted(self.row, rows)
        within = np.minimum(at, len(self.row) - 1)
        if not len(self.row):
            return np.full(len(rows), -1, np.int64)
        return np.where(self.row[within] == rows, self.entry[within], -1)

    def first_evidence(self, rows: IntColumn) -> IntColumn:
        """int64, how the first stack of each of some rows is known, an index into `EVIDENCE_OF_STACKS`; −1 for none."""
        if not len(self.row):
            return np.full(len(rows), -1, np.int64)
        within = np.minimum(np.searchsorted(self.row, rows), len(self.row) - 1)
        return np.where(self.row[within] == rows, self.evidence[within], -1).astype(np.int64)

    def stated(self, rows: IntColumn) -> npt.NDArray[np.bool_]:
        """Which of some rows have a stack that says of what they do the work, as compilers and annotations give it, and
        not only where they were called."""
        return np.isin(self.first_evidence(rows), (COMPILED, GRAPH_ANNOTATION))

    def entries(self, row: int) -> list[int]:
        """The innermost entries of all stacks of a row."""
        begin, end = np.searchsorted(self.row, [row, row + 1])
        found: list[int] = self.entry[begin:end].tolist()
        return found

    def evidence_of(self, row: int) -> str:
        """How the stacks of a row are known, one of `EVIDENCE_OF_STACKS`; "" for a row without."""
        at = int(np.searchsorted(self.row, row))
        known = at < len(self.row) and self.row[at] == row
        return EVIDENCE_OF_STACKS[self.evidence[at]] if known else ""

    def frames(self, entry: int) -> list[str]:
        """Names of the frames of a stack, outermost first."""
        return [self.names[self.name[at]] for at in self._path(entry)]

    def lines(self, entry: int) -> list[SourceLine]:
        """The lines of a stack, outermost first; modules and built-in functions, which have no line, are left out."""
        path = self._path(entry)
        located = [self._located(at, inner) for at, inner in zip(path, [*path[1:], -1], strict=True)]
        return [line for line in located if line is not None]

    def source(self, entry: int, is_own: Callable[[str], bool] | None = None) -> SourceLine | None:
        """The innermost line of a stack in own code; if there is none the innermost at all, which is not `own`.

        Args:
            is_own: which files are own code; None for `is_own_file`.
        """
        lines = self.lines(entry)[::-1]
        own = (line for line in lines if (is_own or is_own_file)(line.file))
        return next(own, lines[0]._replace(own=False) if lines else None)

    def modules(self, entry: int) -> tuple[str, ...]:
        """The modules of a stack, outermost first: "nn.Module: Net_0"."""
        return tuple(name for name in self.frames(entry) if name.startswith(MODULE_FRAME))

    @property
    def module_names(self) -> list[str]:
        """Names of the frames that are modules."""
        return [name for name in self.names if name.startswith(MODULE_FRAME)]

    def _path(self, entry: int) -> list[int]:
        path = []
        while entry >= 0:
            path.append(entry)
            entry = int(self.above[entry])
        return path[::-1]

    def _located(self, entry: int, inner: int) -> SourceLine | None:
        place = _place(self.names[self.name[entry]])
        called = int(self.line[inner]) if inner >= 0 else -1
        if place is None or called >= 0:
            return place and place._replace(line=called, exact=True)
        return place._replace(exact=bool(self._exact[entry]))

    @cached_property
    def _exact(self) -> npt.NDArray[np.bool_]:
        """bool, by entry: its frame's name has the line that it was at, as compilers and annotations write it, and not
        the first one of the function."""
        exact = np.zeros(len(self), np.bool_)
        fresh = self.entry[np.isin(self.evidence, (COMPILED, GRAPH_ANNOTATION))]
        while len(fresh):
            exact[fresh] = True
            fresh = self.above[fresh]
            fresh = fresh[fresh >= 0]
            fresh = fresh[~exact[fresh]]
        return exact

    def table_of(self, is_own: Callable[[str], bool]) -> SourceTable:
        """The source line of every entry, in time linear in their number; the same as `source` of each."""
        places = [_place(name) for name in self.names]
        own = [place is not None and is_own(place.file) for place in places]
        lines: dict[SourceLine, int] = {}
        of_own = self._innermost([place if mine else None for place, mine in zip(places, own, strict=True)], lines)
        others = self._innermost([place and place._replace(own=False) for place in places], lines)
        return SourceTable(list(lines), np.where(of_own >= 0, of_own, others))

    def _innermost(self, places: Sequence[SourceLine | None], lines: dict[SourceLine, int]) -> IntColumn:
        """By entry the code in `lines` of the line in the innermost frame that has a place, by name."""
        found = list[int]()
        names = self.name.tolist()
        columns = names, self.above.tolist(), self.line.tolist(), self._exact.tolist()
        for name, above, line, exact in zip(*columns, strict=True):
            place = places[name]
            if place is not None and exact:
                place = place._replace(exact=True)
            if place is None and above >= 0 and line >= 0:
                caller = places[names[above]]
                place = caller and caller._replace(line=line, exact=True)
            inherited = found[above] if above >= 0 else -1
            found.append(inherited if place is None else lines.setdefault(place, len(lines)))
        return np.array(found, np.int64)

    def with_stacks(
        self, of_rows: dict[int, Sequence[Sequence[str | tuple[str, int]]]], evidence: int = PYTHON_FRAMES
    ) -> Stacks:
        """These stacks and those of further rows; rows that have some already get the given ones in their place.

        Args:
            of_rows: by row its stacks, each the names of its frames, outermost first; in place of a name a pair of it
                and the line (−1 for unknown) in the frame above from which it was called.
            evidence: index into `EVIDENCE_OF_STACKS`.
        """
        names, entries = dict(zip(self.names, range(len(self.names)), strict=True)), self._codes()
        added_row, added_entry = list[int](), list[int]()
        for row, stacks in of_rows.items():
            for stack in stacks:
                above = -1
                for frame in stack:
                    text, line = (frame, -1) if isinstance(frame, str) else frame
                    key = above, names.setdefault(text, len(names)), line
                    above = entries.setdefault(key, len(entries))
                if above >= 0:
                    added_row.append(row)
                    added_entry.append(above)
        tree = np.array(list(entries), np.int64).reshape(-1, 3)
        kept = ~np.isin(self.row, added_row)
        all_rows = np.concatenate([self.row[kept], np.array(added_row, np.int64)])
        order = np.argsort(all_rows, kind="stable")
        proof = np.full(len(added_row), evidence, np.int8)
        return Stacks(
            list(names), tree[:, 0].copy(), tree[:, 1].astype(np.int32), tree[:, 2].astype(np.int32),
            as_positions(all_rows[order]), np.concatenate([self.entry[kept], np.array(added_entry, np.int64)])[order],
            np.concatenate([self.evidence[kept], proof])[order],
        )  # fmt: skip

    def with_rows_like(self, rows: IntColumn, others: IntColumn, evidence: int) -> Stacks:
        """The stacks with those of other rows for some rows that have none.

        Args:
            rows, others: int64 of one length: a row, distinct, and one of whose stacks it takes the first.
            evidence: index into `EVIDENCE_OF_STACKS`.
        """
        entry = self.first_entry(others)
        new = (entry >= 0) & (self.first_entry(rows) < 0)
        row = np.concatenate([self.row, rows[new]])
        order = np.argsort(row, kind="stable")
        proof = np.full(int(np.count_nonzero(new)), evidence, np.int8)
        return replace(
            self, row=as_positions(row[order]), entry=np.concatenate([self.entry, entry[new]])[order],
            evidence=np.concatenate([self.evidence, proof])[order],
        )  # fmt: skip

    def _codes(self) -> dict[tuple[int, int, int], int]:
        keys = zip(self.above.tolist(), self.name.tolist(), self.line.tolist(), strict=True)
        return dict(zip(keys, range(len(self)), strict=True))


@dataclass(frozen=True)
class SourceTable:
    """Distinct source lines, and by stack entry the code of its line, int64, −1 for none."""

    lines: list[SourceLine]
    of_entry: IntColumn

    __repr__ = brief


def stacks_of_tree(
    names: list[str], parent: IntColumn, name: Codes, line: Codes, row: IntColumn, frame: IntColumn
) -> Stacks:
    """Stacks of recorded frames; equal ones become one.

    Args:
        names: of frames. parent: int64, by frame its caller's position, smaller than its own, −1 for none.
        name: codes. line: as in `Stacks`.
        row: int64, ascending. frame: int64, the innermost frame of each of these rows.

    Example:
        >>> codes = np.array([0, 1, 1], np.int32), np.array([-1, 5, 5], np.int32)
        >>> rows, frames = np.arange(2), np.array([1, 2])
        >>> made = stacks_of_tree(["a.py(1): f", "b.py(2): g"], np.array([-1, 0, 0]), *codes, rows, frames)
        >>> len(made), made.entry.tolist(), [str(line) for line in made.lines(1)]
        (2, [1, 1], ['a.py:5 (f)', 'b.py:2 (g)'])
    """
    from .call_tree import levels

    entry, known = np.zeros(len(parent), np.int64), 0
    columns: list[IntColumn] = [np.zeros((0, 3), np.int64)]
    for frames in levels(parent):
        above = np.where(parent[frames] >= 0, entry[parent[frames]], -1)
        distinct, codes = distinct_rows(above, name[frames], line[frames])
        entry[frames] = known + codes
        columns.append(distinct)
        known += len(distinct)
    above, code, called = np.concatenate(columns).T
    order, _ = first_seen(code)  # names that are used, as they come
    of_name = inverse_positions(len(names), order)
    return Stacks(
        [names[at] for at in order.tolist()], above.copy(), of_name[code].astype(np.int32), called.astype(np.int32),
        as_positions(row), entry[frame], np.full(len(row), PYTHON_FRAMES, np.int8),
    )  # fmt: skip


@lru_cache(maxsize=1 << 16)
def _place(name: str) -> SourceLine | None:
    """The line that the name of a frame gives, None for modules and built-in functions."""
    if name.startswith(("<built-in", MODULE_FRAME)):
        return None
    found = re.fullmatch(_LOCATED, name)
    return SourceLine(found[1], int(found[2]), found[3]) if found and found[1] else None


def is_module(name: str) -> bool:
    """Whether a frame or call is a module's forward."""
    return name.startswith(MODULE_FRAME)


def is_own_file(file: str) -> bool:
    """Whether a file is own code, by default: not of the standard library, torch or Triton, built in or compiled.

    Installed packages, whose paths are recorded relative to their folder, count as own; name what you mean by own code
    (`own_by`) if they should not.

    Example:
        >>> files = "train.py", "transformers/models/vit.py", "torch/nn/modules/linear.py", "threading.py", "<string>"
        >>> [is_own_file(file) for file in files]
        [True, True, False, False, False]
    """
    if re.match(_LIBRARY, file):
        return False
    first = re.split(r"[/\\]", file, maxsplit=1)[0]
    return file.startswith(("/", "\\")) or first.removesuffix(".py") not in _STANDARD


def own_by(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Which files are own code by patterns: a file is if one of them occurs in its path, "*" standing for any text.

    Example:
        >>> [own_by(["models/*.py"])(file) for file in ("/home/me/models/net.py", "train.py")]
        [True, False]
    """
    wanted = [re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL) for pattern in patterns]
    return is_own_file if not wanted else lambda file: any(one.search(file) for one in wanted)
