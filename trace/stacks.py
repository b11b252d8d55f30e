"""Python stacks of nodes, and the source line of each stack."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .brief import Record
from .call_tree import levels
from .columns import IntColumn, distinct_rows, first_seen, inverse_positions, positions
from .index import Positions, Row, as_positions
from .printable import shortened

Codes = npt.NDArray[np.int32]
# Each value describes where a stack comes from. "Python frames" were open at the start or launch of the node.
# "compiled code" is the source of a compiled kernel. "graph annotation" was recorded during graph capture.
# "repetition" is the stack of the same kernel in another iteration (inferred).
EVIDENCE_OF_STACKS = ("Python frames", "compiled code", "graph annotation", "repetition")
PYTHON_FRAMES, COMPILED, GRAPH_ANNOTATION, REPETITION = range(len(EVIDENCE_OF_STACKS))

_WIDTH = 70
MODULE_FRAME = "nn.Module: "
_LOCATED = r"(?s)(.*)\((\d{1,9})\): (.*)"
# Files that are not the user's own code, because they are generated or part of torch, Triton or the standard library.
_LIBRARY = (
    r"<(?!ipython-input)|(?:.*[/\\])?(?:torch|functorch|triton)[/\\]"
    r"|.*[/\\]lib(?:64)?[/\\]python\d[\w.]*[/\\](?!(?:site|dist)-packages[/\\])|.*[/\\]torchinductor_[^/\\]*[/\\]"
)
_STANDARD = frozenset(sys.stdlib_module_names) | {"asyncore", "distutils", "imp"}


def place_text(file: str, line: str, function: str, exact: bool) -> str:
    """Return "train.py:17 (forward)" if `line` is the line of the call, and "forward (train.py:17)" if it is the line
    of the `def`. Versions of PyTorch before 2.14 record the line of the `def`, and no line for module-level code."""
    if exact or not function:
        return f"{file}:{line}" + (f" ({function})" if function else "")
    return f"module level ({file})" if function == "<module>" else f"{function} ({file}:{line})"


class SourceLine(NamedTuple):
    file: str  # path as recorded: absolute, or relative to the folder of installed packages
    line: int  # line number of the call if it was recorded, otherwise of the `def`
    function: str = ""  # name of the function, "" if unknown
    exact: bool = False  # True if `line` is the line of the call, not of the `def`
    own: bool = True  # True for the user's own code

    @property
    def file_line(self) -> str:
        """File and line, such as "train.py:17"."""
        return f"{self.file}:{self.line}"

    def __repr__(self) -> str:
        return f"<line {shortened(str(self), _WIDTH)}>"

    def __str__(self) -> str:
        return place_text(self.file, str(self.line), self.function, self.exact)


@dataclass(frozen=True, repr=False)
class Stacks(Record):
    """A tree of stack frames, and the stacks of nodes. Each tree entry is a frame with all its callers. A node may have
    several stacks, because a fused kernel does the work of several lines. The first stack is the main stack."""

    names: list[str]  # frame names such as "train.py(12): step", "nn.Module: Linear_0" or "<built-in method add …>"
    above: IntColumn  # position of the entry's caller, −1 for outermost frames; callers precede callees
    name: Codes  # index in `names` of the entry's frame
    line: Codes  # line in the caller's file at which each entry's frame was called, −1 if not recorded
    row: Positions[int, Row]  # row of the stack's node, in ascending order; a node may have several stacks
    entry: IntColumn  # innermost entry of every stack, in the same order as `row`
    evidence: npt.NDArray[np.int8]  # index into `EVIDENCE_OF_STACKS` for each stack, in the same order as `row`

    def __len__(self) -> int:
        return len(self.above)

    @staticmethod
    def none() -> Stacks:
        none, codes = np.zeros(0, np.int64), np.zeros(0, np.int32)
        return Stacks([], none, codes, codes, as_positions(none), none, np.zeros(0, np.int8))

    def first_entry(self, rows: IntColumn) -> IntColumn:
        """Return the innermost entry of each node's first stack, or −1 for nodes without a stack."""
        return np.append(self.entry, -1)[positions(self.row, rows)]

    def first_evidence(self, rows: IntColumn) -> IntColumn:
        """Return an index into `EVIDENCE_OF_STACKS` for each node's first stack, or −1 for nodes without a stack."""
        return np.append(self.evidence, -1)[positions(self.row, rows)]

    def stated(self, rows: IntColumn) -> npt.NDArray[np.bool_]:
        """Return a mask of the nodes with a first stack that comes from a compiler or a graph annotation."""
        return np.isin(self.first_evidence(rows), (COMPILED, GRAPH_ANNOTATION))

    def entries(self, row: int) -> list[int]:
        """Return the innermost entries of all stacks of a node."""
        begin, end = np.searchsorted(self.row, [row, row + 1])
        found: list[int] = self.entry[begin:end].tolist()
        return found

    def evidence_of(self, row: int) -> str:
        """Return a value of `EVIDENCE_OF_STACKS` for a node's stacks, or "" if it has no stack."""
        code = int(self.first_evidence(np.array([row]))[0])
        return EVIDENCE_OF_STACKS[code] if code >= 0 else ""

    def frames(self, entry: int) -> list[str]:
        return [self.names[self.name[at]] for at in self._path(entry)]

    def lines(self, entry: int) -> list[SourceLine]:
        """Return the source lines of a stack, outermost first. Modules and built-in functions are omitted."""
        path = self._path(entry)
        located = [self._located(at, inner) for at, inner in zip(path, [*path[1:], -1], strict=True)]
        return [line for line in located if line is not None]

    def source(self, entry: int, is_own: Callable[[str], bool] | None = None) -> SourceLine | None:
        """Return the innermost line of a stack in own code or, if there is no own code, its innermost line."""
        lines = self.lines(entry)[::-1]
        own = (line for line in lines if (is_own or is_own_file)(line.file))
        return next(own, lines[0]._replace(own=False) if lines else None)

    def modules(self, entry: int) -> tuple[str, ...]:
        """Return the modules of a stack, such as "nn.Module: Net_0", outermost first."""
        return tuple(name for name in self.frames(entry) if name.startswith(MODULE_FRAME))

    @property
    def module_names(self) -> list[str]:
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
        exact = np.zeros(len(self), np.bool_)
        fresh = self.entry[np.isin(self.evidence, (COMPILED, GRAPH_ANNOTATION))]
        while len(fresh):
            exact[fresh] = True
            fresh = self.above[fresh]
            fresh = fresh[fresh >= 0]
            fresh = fresh[~exact[fresh]]
        return exact

    def table_of(self, is_own: Callable[[str], bool]) -> SourceTable:
        """Return the result of `source` for every entry in linear time."""
        places = [_place(name) for name in self.names]
        own = [place is not None and is_own(place.file) for place in places]
        lines: dict[SourceLine, int] = {}
        of_own = self._innermost([place if mine else None for place, mine in zip(places, own, strict=True)], lines)
        others = self._innermost([place and place._replace(own=False) for place in places], lines)
        return SourceTable(list(lines), np.where(of_own >= 0, of_own, others))

    def _innermost(self, places: Sequence[SourceLine | None], lines: dict[SourceLine, int]) -> IntColumn:
        codes = list[int]()
        names = self.name.tolist()
        columns = names, self.above.tolist(), self.line.tolist(), self._exact.tolist()
        for name, above, line, exact in zip(*columns, strict=True):
            place = places[name]
            if place is not None and exact:
                place = place._replace(exact=True)
            if place is None and above >= 0 and line >= 0:
                caller = places[names[above]]
                place = caller and caller._replace(line=line, exact=True)
            inherited = codes[above] if above >= 0 else -1
            codes.append(inherited if place is None else lines.setdefault(place, len(lines)))
        return np.array(codes, np.int64)

    def with_stacks(
        self, of_rows: dict[int, Sequence[Sequence[str | tuple[str, int]]]], evidence: int = PYTHON_FRAMES
    ) -> Stacks:
        """Return a copy with new stacks for the given nodes. Their old stacks are removed. Frames are listed outermost
        first. Each frame is a name, or a tuple of a name and the line that called it (−1 if unknown)."""
        names = {name: code for code, name in enumerate(self.names)}
        keys = zip(self.above.tolist(), self.name.tolist(), self.line.tolist(), strict=True)
        entries = {key: entry for entry, key in enumerate(keys)}
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
        columns = tree[:, 0].copy(), tree[:, 1].astype(np.int32), tree[:, 2].astype(np.int32)
        entry = np.concatenate([self.entry[kept], np.array(added_entry, np.int64)])[order]
        proofs = np.concatenate([self.evidence[kept], proof])[order]
        return Stacks(list(names), *columns, as_positions(all_rows[order]), entry, proofs)


@dataclass(frozen=True, repr=False)
class SourceTable(Record):
    """Distinct source lines, and the index in `lines` of each stack entry's line (−1 if it has none)."""

    lines: list[SourceLine]
    of_entry: IntColumn


def stacks_of_tree(
    names: list[str], parent: IntColumn, name: Codes, line: Codes, row: IntColumn, frame: IntColumn
) -> Stacks:
    """Return the stacks of recorded frames. Identical stacks are merged. `parent` has the caller of each frame, and
    callers precede callees. `row` has the nodes in ascending order, and `frame` has each node's innermost frame."""
    entry, known = np.zeros(len(parent), np.int64), 0
    columns: list[IntColumn] = [np.zeros((0, 3), np.int64)]
    for frames in levels(parent):
        above = np.where(parent[frames] >= 0, entry[parent[frames]], -1)
        distinct, codes = distinct_rows(above, name[frames], line[frames])
        entry[frames] = known + codes
        columns.append(distinct)
        known += len(distinct)
    above, code, called = np.concatenate(columns).T
    order, _ = first_seen(code)  # only the names that are used, in order of first appearance
    of_name = inverse_positions(len(names), order)
    used, evidence = [names[at] for at in order.tolist()], np.full(len(row), PYTHON_FRAMES, np.int8)
    tree = above.copy(), of_name[code].astype(np.int32), called.astype(np.int32)
    return Stacks(used, *tree, as_positions(row), entry[frame], evidence)


@lru_cache(maxsize=1 << 16)
def _place(name: str) -> SourceLine | None:
    if name.startswith(("<built-in", MODULE_FRAME)):
        return None
    found = re.fullmatch(_LOCATED, name)
    return SourceLine(found[1], int(found[2]), found[3]) if found and found[1] else None


def is_module(name: str) -> bool:
    return name.startswith(MODULE_FRAME)


def is_own_file(file: str) -> bool:
    """Return True unless a file is compiled, built in, or part of the standard library, torch or Triton."""
    if re.match(_LIBRARY, file):
        return False
    first = re.split(r"[/\\]", file, maxsplit=1)[0]
    return file.startswith(("/", "\\")) or first.removesuffix(".py") not in _STANDARD


def own_by(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Return a function that tests if a path contains one of the patterns. "*" matches any string."""
    wanted = [re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL) for pattern in patterns]
    return is_own_file if not wanted else lambda file: any(one.search(file) for one in wanted)
