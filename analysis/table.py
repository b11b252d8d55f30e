"""Tables of an analysis: the columns of a row are declared once; JSON, CSV, text, page and data frames follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from ..trace.brief import brief
from ..trace.frames import Frame, to_arrow, to_pandas
from ..trace.printable import shortened
from ..trace.suggest import Suggests, no_key
from ..trace.text_tables import Cell, number, share

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:  # for type checkers only, and in `typing` from Python 3.11 on

    def dataclass_transform(**_: bool) -> Callable[[type], type]:
        return lambda cls: cls


class Scale(NamedTuple):
    """How a column's numbers print.

    Attributes:
        quantity: what the page calls it, by which it chooses a unit for each column itself.
        size: what a number is divided by for text. digits: decimals of the text.
    """

    quantity: str
    size: float = 1
    digits: int = 1


SCALES = {
    "ms": Scale("ns", 1e6, 3),
    "µs": Scale("ns", 1e3, 2),
    "MB": Scale("bytes", 1e6, 3),
    "GB/s": Scale("bytes/s", 1e9, 2),
    "TFLOP/s": Scale("flop/s", 1e12, 2),
    "share": Scale("share", 0.01, 1),
}


class Column(NamedTuple):
    """A column of a table's text.

    Attributes:
        heading: above it.
        value: name of the row's attribute, or what makes the cell of a row.
        unit: one of `SCALES`; without one integers have thousands set apart, and all else prints as it is.
        digits: decimals, by default the unit's.
    """

    heading: str
    value: str | Callable[[Any], Cell]
    unit: str | None = None
    digits: int | None = None

    def value_in(self, row: Row) -> Any:
        """The value of a row."""
        return getattr(row, self.value) if isinstance(self.value, str) else self.value(row)

    def cell(self, row: Row) -> Cell:
        """What the text shows of a row."""
        value: Any = self.value_in(row)
        if self.unit is None:
            return value  # type: ignore[no-any-return]
        if self.unit == "share":
            return share(value)
        scale = SCALES[self.unit]
        return number(value, scale.digits if self.digits is None else self.digits, scale.size)


@dataclass_transform(frozen_default=True)
class Row(Suggests):
    """Base of the rows of tables; a subclass is a frozen dataclass, whose fields are the columns.

    Attributes:
        title: of the table. columns: those of its text, of which the first holds names.
        above: makes the line above each row of the text, where names are too long for a column.
        derived: names of properties that are columns of JSON, CSV and data frames, too.
        left_out: names of fields that are none.
        joined: name of a field with several names, and what joins them to one text.
    """

    title: ClassVar[str] = ""
    columns: ClassVar[tuple[Column, ...]] = ()
    above: ClassVar[Callable[[Any], str] | None] = None
    derived: ClassVar[tuple[str, ...]] = ()
    left_out: ClassVar[tuple[str, ...]] = ()
    joined: ClassVar[tuple[str, str] | None] = None

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, repr=False)(cls)

    __repr__ = brief

    @classmethod
    @cache
    def names(cls) -> list[str]:
        """Names of the columns of JSON, CSV and data frames."""
        return [field.name for field in fields(cls) if field.name not in cls.left_out] + [*cls.derived]  # type: ignore[arg-type]

    def plain(self) -> dict[str, Any]:
        """The values of those columns."""
        found = {name: getattr(self, name) for name in self.names()}
        if self.joined is not None:
            name, text = self.joined
            found[name] = text.join(found[name])
        return found


SELF_TIMES = ": host and device time without (self) and with what they contain, ms"
SELF_COLUMNS = (
    Column("calls", "count"), Column("host self", "self_ns", "ms"), Column("host", "total_ns", "ms"),
    Column("GPU self", "device_self_ns", "ms"), Column("GPU", "device_total_ns", "ms"),
)  # fmt: skip
"""Of rows that are called: operators and modules."""


def repeated(row: Any) -> str:
    """The mark of a row with device time (`device_self_ns`) whose operator is known by repetition alone
    (`repeated_ns`), "" for others."""
    return f" ({share(row.repeated_ns / row.device_self_ns)} by repetition)" if row.repeated_ns else ""


R = TypeVar("R", bound=Row)


class PlainRows(Suggests):
    """Rows of plain values by column, which may differ in their columns.

    Example:
        >>> trace.analyze().tables["launches"].to_pandas()["count"].sum() > 0
        np.True_
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        self.rows: list[dict[str, Any]] = [dict(row) for row in rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`; UsageError if pandas is not installed."""
        return to_pandas(self._frame())

    def to_arrow(self) -> Any:
        """A `pyarrow.Table`; UsageError if pyarrow is not installed."""
        return to_arrow(self._frame())

    def _frame(self) -> Frame:
        names = dict.fromkeys(name for row in self.rows for name in row)
        return {name: [row.get(name) for row in self.rows] for name in names}

    def __repr__(self) -> str:
        return shortened(f"<{len(self):,} rows: {', '.join(self._frame())}>", 79)


_LINES = 24


def listed(tables: Mapping[str, Sized]) -> str:
    """Names and sizes of tables on a screen, the empty ones in one line."""
    full = [f"{name:18} {len(rows):,} rows" for name, rows in tables.items() if len(rows)]
    if len(full) > _LINES - 2:
        full = [*full[: _LINES - 3], f"… {len(full) - _LINES + 3} more"]
    empty = [name for name, rows in tables.items() if not len(rows)]
    return "\n".join([*full, *([shortened(f"no rows: {', '.join(empty)}", 79)] if empty else [])])


class NamedTables(dict[str, PlainRows]):
    """Tables by name."""

    def __repr__(self) -> str:
        return listed(self)


T = TypeVar("T")


class Records(Suggests, list[T]):
    """Objects with a row of plain values each."""

    guesses: ClassVar[dict[str, str]] = {
        "rows": "iteration, it is a list", "head": "a slice, `[:5]`", "to_df": "`to_pandas()`",
        "to_excel": '`trace.analyze().to_excel("x.xlsx")`, all tables',
    }  # fmt: skip

    if not TYPE_CHECKING:  # a list's own types are right

        def __getitem__(self, at: Any) -> Any:
            if isinstance(at, str):
                raise no_key(type(self).__name__, at, f'`to_pandas()["{at}"]`')
            return super().__getitem__(at)

    def plain(self) -> list[dict[str, Any]]:
        """The rows for JSON and CSV."""
        return [row.plain() for row in self]  # type: ignore[attr-defined]

    def _frame(self) -> Frame:
        return PlainRows(self.plain())._frame()

    def to_pandas(self) -> Any:
        """A pandas DataFrame; needs pandas (`pip install 'etplus[frames]'`)."""
        return to_pandas(self._frame())

    def to_arrow(self) -> Any:
        """A pyarrow Table; needs pyarrow (`pip install 'etplus[frames]'`)."""
        return to_arrow(self._frame())


class Table(Records[R]):
    """Rows of one kind.

    Example:
        >>> list(trace.analyze().launches.to_pandas().columns)[:3]
        ['call', 'count', 'call_ns']
    """

    def __init__(self, kind: type[R], rows: Iterable[R] = ()) -> None:
        super().__init__(rows)
        self.kind = kind

    def _frame(self) -> Frame:
        rows = self.plain()
        return {name: [row[name] for row in rows] for name in self.kind.names()}


class WithMean:
    """Of rows that sum up events.

    Attributes:
        count: number of events, above 0. total_ns: sum of their durations.
    """

    guesses: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("duration", "duration_ns", "dur", "time", "cuda_time", "self_cpu_time_total"), "`total_ns` or `mean_ns`"
    )

    count: float
    total_ns: float

    @property
    def mean_ns(self) -> float:
        """Mean duration, ns."""
        return self.total_ns / self.count


def per_second(amount: float | None, ns: float | None) -> float | None:
    """The rate of an amount over a time; None where either is unknown or there is no time.

    Example:
        >>> per_second(30, 2_000)
        15000000.0
    """
    return amount / ns * 1e9 if amount is not None and ns else None
