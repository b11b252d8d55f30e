"""Two traces side by side: device time by operator and by kernel, with what one of them lacks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from .summary import Analysis
from .tables import number, printable, render

__all__ = ["DiffRow", "Difference", "Side", "diff_text", "difference", "json_of_difference"]

_MS = 1e6
_US = 1e3
_BIGGEST = 5


@dataclass(frozen=True)
class Side:
    """What one trace has of a row: events, their total duration, and of kernels the shares of the device's peaks."""

    count: int
    total_ns: int
    flops_share: float | None = None
    bytes_share: float | None = None

    @property
    def mean_ns(self) -> float:
        """Mean duration."""
        return self.total_ns / self.count


@dataclass(frozen=True)
class DiffRow:
    """An operator or a kernel in both traces; None where one lacks it."""

    name: str
    a: Side | None
    b: Side | None

    @property
    def change_ns(self) -> int:
        """Total in B less total in A."""
        return (self.b.total_ns if self.b else 0) - (self.a.total_ns if self.a else 0)

    @property
    def ratio(self) -> float | None:
        """Total in B by total in A, None where one lacks it or A's is nothing."""
        return self.b.total_ns / self.a.total_ns if self.a and self.b and self.a.total_ns else None


@dataclass(frozen=True)
class Difference:
    """Rows in order of the change, the greatest first.

    Attributes:
        a, b: names of the files. device_a, device_b: of the devices.
        total_a, total_b: device time, ns.
        ops, kernels: by name (operators with shapes if asked for).
        damage: what is wrong with the files, in sentences.
        gains, losses: operators that take less and more time in B, those with the greatest change first.
    """

    a: str
    b: str
    device_a: str
    device_b: str
    total_a: int
    total_b: int
    ops: list[DiffRow]
    kernels: list[DiffRow]
    damage: tuple[str, ...] = ()

    @property
    def gains(self) -> list[DiffRow]:
        """Operators that take less time in B."""
        return sorted((row for row in self.ops if row.change_ns < 0), key=lambda row: row.change_ns)

    @property
    def losses(self) -> list[DiffRow]:
        """Operators that take more time in B."""
        return sorted((row for row in self.ops if row.change_ns > 0), key=lambda row: -row.change_ns)


def difference(a: Analysis, b: Analysis, *, by_shape: bool = False) -> Difference:
    """Compare two traces, of whatever devices.

    Args:
        by_shape: match operators by name and shapes.
    """
    return Difference(
        a.trace.file, b.trace.file, _devices(a), _devices(b), int(a.trace.gpu.dur.sum()), int(b.trace.gpu.dur.sum()),
        _match(_ops(a, by_shape), _ops(b, by_shape)), _match(_kernels(a), _kernels(b)),
        (*a.trace.damage, *b.trace.damage),
    )  # fmt: skip


def _match(a: dict[str, Side], b: dict[str, Side]) -> list[DiffRow]:
    rows = [DiffRow(name, a.get(name), b.get(name)) for name in {**a, **b}]
    return sorted(rows, key=lambda row: (-abs(row.change_ns), row.name))


def _ops(analysis: Analysis, by_shape: bool) -> dict[str, Side]:
    groups: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in analysis.breakdown:
        name = row.label
        groups[f"{name} {row.shapes}".rstrip() if by_shape else name].append((row.count, row.total_ns))
    return {name: Side(sum(n for n, _ in of), sum(t for _, t in of)) for name, of in groups.items()}


def _kernels(analysis: Analysis) -> dict[str, Side]:
    """By name; the shares of peaks are those of all its rows together, weighted by time."""
    groups = defaultdict(list)
    for row in analysis.kernels:
        groups[row.kernel].append(row)
    return {
        name: Side(
            sum(row.count for row in rows), sum(row.total_ns for row in rows),
            _weighted((row.flops_share, row.flops_ns) for row in rows),
            _weighted((row.bytes_share, row.bytes_ns) for row in rows),
        )
        for name, rows in groups.items()
    }  # fmt: skip


def _weighted(parts: Iterable[tuple[float | None, int]]) -> float | None:
    known = [(share, ns) for share, ns in parts if share is not None and ns]
    return sum(share * ns for share, ns in known) / sum(ns for _, ns in known) if known else None


def _devices(analysis: Analysis) -> str:
    names = {str(one.get("name", "no name")): None for one in analysis.trace.properties.values()}
    return ", ".join(names) or "no device"


def json_of_difference(found: Difference) -> dict[str, Any]:
    """All of it as plain objects."""
    plain = asdict(found)
    for key, rows in (("ops", found.ops), ("kernels", found.kernels)):
        plain[key] = [asdict(row) | {"change_ns": row.change_ns, "ratio": row.ratio} for row in rows]
    return plain | {"gains": [row.name for row in found.gains], "losses": [row.name for row in found.losses]}


def diff_text(found: Difference, width: int, top: int = 15) -> str:
    """Tables for the terminal, of at most `top` rows each."""
    change = f", {found.total_b / found.total_a:.2f} times A" if found.total_a else ""
    head = [
        f"A  {found.a}: {found.device_a}, {found.total_a / _MS:,.3f} ms of GPU events",
        f"B  {found.b}: {found.device_b}, {found.total_b / _MS:,.3f} ms of GPU events{change}",
    ]
    head += [f"warning {sentence}" for sentence in found.damage]
    parts = ["\n".join(printable(line) for line in head)]
    parts.append(_table("operators, by the change in total time", found.ops, width, top, above=False))
    parts.append(_table("kernels, by the change in total time", found.kernels, width, top, above=True))
    moved = (("biggest gains (less time in B)", found.gains), ("biggest losses (more time in B)", found.losses))
    parts += [_table(title, rows, width, _BIGGEST, above=False) for title, rows in moved if rows]
    return "\n\n".join([*parts, "\n".join(map(_lacking, ("operators", "kernels"), (found.ops, found.kernels)))])


def _lacking(what: str, rows: list[DiffRow]) -> str:
    a, b = sum(row.a is None for row in rows), sum(row.b is None for row in rows)
    return f"of {len(rows)} {what} A lacks {a} and B lacks {b}"


def _table(title: str, rows: list[DiffRow], width: int, top: int, *, above: bool) -> str:
    heads = ["" if above else "operator", "A n", "A ms", "A µs", "B n", "B ms", "B µs", "B−A ms", "B/A"]
    shown = rows[:top]
    cells = [
        [
            "" if above else row.name,
            *_cells(row.a),
            *_cells(row.b),
            f"{row.change_ns / _MS:+,.3f}",
            number(row.ratio, 2),
        ]
        for row in shown
    ]
    more = f" (the first {top} of {len(rows)})" if len(rows) > top else ""
    return render(title + more, heads, cells, width, above=[row.name for row in shown] if above else None)


def _cells(side: Side | None) -> list[str | int | None]:
    if side is None:
        return ["-", "-", "-"]
    return [side.count, number(side.total_ns / _MS, 3), number(side.mean_ns / _US, 1)]
