"""Device time as a tree: modules, operators, kernels; small parts of a level put together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..analysis.breakdown import BreakdownRow
from ..trace.kernel_kinds import gpu_kind

__all__ = ["Branch", "time_tree"]

_LEAST_SHARE = 0.0004
_LEVELS_SHOWN = 24


@dataclass
class Branch:
    """A module, an operator or a kernel.

    Attributes:
        name: "" for the root. level: "module", "operator", "kernel" or "other".
        kind: of a kernel, index into `GPU_KINDS`; −1 for others.
        count: number of GPU events. total_ns: sum of their durations; the children's sum up to it exactly.
    """

    name: str
    level: str = "module"
    kind: int = -1
    count: int = 0
    total_ns: int = 0
    children: dict[tuple[str, str], Branch] = field(default_factory=dict)

    def add(self, row: BreakdownRow) -> None:
        """Count a row here."""
        self.count += row.count
        self.total_ns += row.total_ns

    def child(self, name: str, level: str, kind: int = -1) -> Branch:
        """The child of a name and level, made if there is none."""
        return self.children.setdefault((level, name), Branch(name, level, kind))

    def plain(self) -> dict[str, Any]:
        """As plain objects, the longest child first."""
        kids = sorted(self.children.values(), key=lambda one: (-one.total_ns, one.name))
        values = {"name": self.name, "level": self.level, "count": self.count, "total_ns": self.total_ns}
        if self.kind >= 0:
            values["kind"] = self.kind
        return values | ({"children": [kid.plain() for kid in kids]} if kids else {})


def time_tree(rows: Iterable[BreakdownRow], comm_kernels: frozenset[str]) -> Branch:
    """The tree of all rows of `breakdown`.

    Modules that hold nothing but one module are joined with it ("outer / inner"); of a level, parts of less than
    0.04 % of all device time become one.

    Args:
        comm_kernels: names of the communication kernels.
    """
    root = Branch("")
    for row in rows:
        path = [root]
        for module in row.modules[:_LEVELS_SHOWN]:
            path.append(path[-1].child(module, "module"))
        path.append(path[-1].child(row.label, "operator"))
        kind = gpu_kind(row.kernel, row.category, row.kernel in comm_kernels)
        path.append(path[-1].child(row.kernel, "kernel", kind))
        for branch in path:
            branch.add(row)
    _tidy(root, root.total_ns * _LEAST_SHARE)
    return root


def _tidy(branch: Branch, least: float) -> None:
    small = [key for key, kid in branch.children.items() if kid.total_ns < least]
    if len(small) > 1:
        rest = Branch(f"{len(small)} smaller parts", "other")
        for key in small:
            kid = branch.children.pop(key)
            rest.count += kid.count
            rest.total_ns += kid.total_ns
        branch.children["other", rest.name] = rest
    for key, kid in list(branch.children.items()):
        while kid.level == "module" and len(kid.children) == 1:
            (only,) = kid.children.values()
            if only.level != "module":
                break
            only.name = f"{kid.name} / {only.name}"
            kid = only
        branch.children[key] = kid
        _tidy(kid, least)
