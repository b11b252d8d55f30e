"""Rows and tables. Each column is declared once, on its row class.

JSON, CSV, terminal text, data frames, the MCP server, the web page and docs/reference/columns.md use this declaration.

Example:
    >>> class Copy(Row):
    ...     kind: str = column("name", "Direction of the copy.")
    ...     count: int = column("count", "Number of copies.")
    ...     total_ns: int = column("ns", "Sum of the copy durations.")
    ...
    ...     mean_ns = derived("ns", "mean")(lambda row: row.total_ns / row.count)
    >>> Copy("HtoD", 2, 300).plain()
    {'kind': 'HtoD', 'count': 2, 'total_ns': 300, 'mean_ns': 150.0}
    >>> [column.heading for column in Copy.columns()]
    ['kind', 'count', 'total', 'mean']
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import MISSING, dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar, overload

from ..trace.brief import brief
from ..trace.frames import Frame, to_arrow, to_pandas
from ..trace.outer import outer
from ..trace.printable import shortened
from ..trace.suggest import Suggests, no_key
from ..trace.text_tables import Cell, number, share

if TYPE_CHECKING:
    from typing_extensions import Self, dataclass_transform
else:  # only type checkers need this import; `typing` has it since Python 3.11

    def dataclass_transform(**_: Any) -> Callable[[type], type]:
        return lambda cls: cls


# Certainty of values: recorded (or computed from recorded values), derived by a rule, or predicted by a replay.
CONFIRMED, INFERRED, PREDICTED = "confirmed", "inferred", "predicted"
_DTYPES = {"int": "int64", "float": "float64", "bool": "bool"}


class Column(NamedTuple):
    name: str
    # The unit: ns, bytes, bytes/s, flop, flop/s, flop/byte, tokens, count, yes/no, text, name, number or share.
    # A name is recorded text, a number identifies something such as a rank, and a share of 1 means 100%.
    unit: str
    dtype: str  # "int64", "float64", "bool" or "text"
    null: bool
    certainty: str
    doc: str
    heading: str  # heading without the unit, for the terminal and the page

    @classmethod
    def of(cls, name: str, declared: _Declared, annotation: Any, doc: str = "") -> Column:
        unit, text, heading, certainty = declared[:4]
        source = annotation.__name__ if isinstance(annotation, type) else str(annotation)
        kinds = [part.strip() for part in source.split("|")]
        heading = heading or name.removesuffix("_ns").replace("_", " ")
        return cls(name, unit, _DTYPES.get(kinds[0], "text"), "None" in kinds, certainty, text or doc, heading)


class _Declared(NamedTuple):
    unit: str
    doc: str
    heading: str
    certainty: str
    joined: str = ""
    row: type[Row] | None = None  # the class of the nested row; only set by `nested`


def column(
    unit: str, doc: str, heading: str = "", *, joined: str = "", default: Any = MISSING, certainty: str = CONFIRMED
) -> Any:
    """Declare a field of a row as a column. `joined` is the separator between the items of a tuple."""
    return field(default=default, metadata={"column": _Declared(unit, doc, heading, certainty, joined)})


def inferred(unit: str, doc: str, heading: str = "", *, joined: str = "", default: Any = MISSING) -> Any:
    """Declare a column with inferred values: a rule derives them from the recording."""
    return column(unit, doc, heading, joined=joined, default=default, certainty=INFERRED)


def nested(row: type[Row], heading: str) -> Any:
    """Declare a field that contains another row or None, such as one side of a comparison."""
    return field(metadata={"column": _Declared("", "", heading, CONFIRMED, row=row)})


T = TypeVar("T")


class Derived(Generic[T]):
    """A property of a row that is also a column of its table."""

    def __init__(self, declared: _Declared, make: Callable[[Any], T]) -> None:
        self.declared, self.make, self.__doc__ = declared, make, make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        doc = " ".join((self.__doc__ or "").split("\n\n")[0].split())
        self.column = Column.of(name, self.declared, self.make.__annotations__.get("return", ""), doc)

    @overload
    def __get__(self, row: None, kind: type) -> Self: ...

    @overload
    def __get__(self, row: object, kind: type) -> T: ...

    def __get__(self, row: object | None, kind: type) -> Any:
        return self if row is None else self.make(row)


def derived(unit: str, heading: str = "", certainty: str = CONFIRMED) -> Callable[[Callable[[Any], T]], Derived[T]]:
    """Declare a property as a column. The first paragraph of the docstring describes the column."""
    return lambda make: Derived(_Declared(unit, "", heading, certainty), make)


def series(unit: str, doc: str, make: Callable[[Any], T], certainty: str = CONFIRMED) -> Derived[T]:
    """Declare a column of a frame (a single object with all rows). `make` returns the values of all rows."""
    return Derived(_Declared(unit, doc, "", certainty), make)


class Scale(NamedTuple):
    """Unit symbol, divisor and number of decimals that the terminal uses for a kind of number."""

    symbol: str
    size: float
    digits: int


_SCALES = {
    "ns": Scale("ms", 1e6, 3),
    "µs": Scale("µs", 1e3, 2),
    "bytes": Scale("MB", 1e6, 3),
    "bytes/s": Scale("GB/s", 1e9, 2),
    "flop/s": Scale("TFLOP/s", 1e12, 2),
}


class TextColumn(NamedTuple):
    """A column, such as a row label, that is shown in the terminal and on the web page but is not exported."""

    title: str
    value: Callable[[Any], Any]
    unit: str = "text"

    @property
    def heading(self) -> str:
        return self.title

    def cell(self, row: Any) -> Cell:
        value = self.value(row)
        return share(value) if self.unit == "share" else value


class NumberColumn(NamedTuple):
    """A numeric column, formatted for the terminal."""

    column: Column
    scale: Scale | None
    unit_in_title: bool

    @property
    def title(self) -> str:
        return self.column.heading

    @property
    def unit(self) -> str:
        return self.column.unit

    @property
    def heading(self) -> str:
        """Title of the column, with the unit unless the title of the table already contains it."""
        if self.scale is None:
            return self.title
        if self.title.lower() == self.unit:
            return self.scale.symbol
        return self.title if self.unit_in_title or "/" in self.unit else f"{self.title} {self.scale.symbol}"

    def value(self, row: Row) -> Any:
        return getattr(row, self.column.name)

    def cell(self, row: Row) -> Cell:
        value = self.value(row)
        if self.unit == "share":
            return share(value)
        if isinstance(value, tuple):
            return ", ".join(map(str, value))
        if isinstance(value, bool):
            return "yes" if value else ""
        return value if self.scale is None else number(value, self.scale.digits, self.scale.size)


@dataclass_transform(frozen_default=True, field_specifiers=(column, inferred, nested))
class Row(Suggests):
    """Base class of table rows. A row is a frozen dataclass, and its declared fields and properties are columns."""

    title: ClassVar[str] = ""
    # Columns shown in the terminal; empty means all. The first column contains names. "mean_ns µs" prints a time in µs.
    shown: ClassVar[tuple[str | TextColumn, ...]] = ()
    above: ClassVar[Callable[[Any], str] | None] = None  # returns an extra line to print above a row, for long names

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, repr=False)(cls)

    __repr__ = brief

    @classmethod
    @cache
    def columns(cls) -> tuple[Column, ...]:
        """All columns: fields, then properties; base classes first. Columns of a nested row `a` start with "a_"."""
        made = []
        for name, (declared, kind) in cls._declared().items():
            if declared.row is None:
                made.append(Column.of(name, declared, kind))
                continue
            for inner in declared.row.columns():
                doc, heading = (f"{declared.heading}{text}" for text in (f": {inner.doc}", f" {inner.heading}"))
                made.append(inner._replace(name=f"{name}_{inner.name}", null=True, doc=doc, heading=heading))
        return (*made, *(member.column for member in cls._derived()))

    @classmethod
    @cache
    def _derived(cls) -> list[Derived[Any]]:
        members = {name: member for base in reversed(cls.__mro__) for name, member in vars(base).items()}
        return [member for member in members.values() if isinstance(member, Derived)]

    @classmethod
    @cache
    def _declared(cls) -> dict[str, tuple[_Declared, str]]:
        fields = getattr(cls, "__dataclass_fields__", {})
        declared = {name: (found.metadata.get("column"), found.type) for name, found in fields.items()}
        return {name: (column, kind) for name, (column, kind) in declared.items() if column is not None}

    @classmethod
    @cache
    def names(cls) -> list[str]:
        return [column.name for column in cls.columns()]

    @classmethod
    @cache
    def text_columns(cls) -> tuple[TextColumn | NumberColumn, ...]:
        columns = {column.name: column for column in cls.columns()}
        found = list[TextColumn | NumberColumn]()
        for shown in cls.shown or columns:
            if isinstance(shown, TextColumn):
                found.append(shown)
                continue
            name, _, unit = shown.partition(" ")
            scale = _SCALES.get(unit or columns[name].unit)
            found.append(NumberColumn(columns[name], scale, scale is not None and f", {scale.symbol}" in cls.title))
        return tuple(found)

    def plain(self) -> dict[str, Any]:
        """Return the values by column name, for JSON and CSV."""
        found = {name: _plain(getattr(self, name), declared) for name, (declared, _) in self._declared().items()}
        return found | {member.column.name: getattr(self, member.column.name) for member in self._derived()}

    def flat(self) -> dict[str, Any]:
        """Return the values by column name. Nested rows are flattened into columns."""
        found = dict[str, Any]()
        for name, value in self.plain().items():
            row = self._declared()[name][0].row if name in self._declared() else None
            found |= {name: value} if row is None else {f"{name}_{key}": value and value[key] for key in row.names()}
        return found


def _plain(value: Any, declared: _Declared) -> Any:
    if declared.row is not None:
        return None if value is None else value.plain()
    return declared.joined.join(value) if declared.joined else value


SELF_TIMES = ": CPU and GPU time excluding (self) and including nested calls, ms"
SELF_COLUMNS = ("count", "self_ns", "total_ns", "device_self_ns", "device_total_ns")


def repeated(row: Any) -> str:
    """Return a note if a share of the row's GPU time is attributed by repetition; "" otherwise."""
    return f" ({share(row.repeated_ns / row.device_self_ns)} by repetition)" if row.repeated_ns else ""


R = TypeVar("R", bound=Row)


class PlainRows(Suggests):
    """Rows of plain values. Rows may have different columns."""

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        self.rows: list[dict[str, Any]] = [dict(row) for row in rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame`. Raises UsageError if pandas is not installed."""
        return to_pandas(self._frame())

    def to_arrow(self) -> Any:
        """Return a `pyarrow.Table`. Raises UsageError if pyarrow is not installed."""
        return to_arrow(self._frame())

    def _frame(self) -> Frame:
        names = dict.fromkeys(name for row in self.rows for name in row)
        return {name: [row.get(name) for row in self.rows] for name in names}

    def __repr__(self) -> str:
        return shortened(f"<{len(self):,} rows: {', '.join(self._frame())}>", 79)


_LINES, _SHOWN, _WIDTH = 24, 20, 80  # maximum numbers of lines per screen, rows per repr, and characters per line


def listed(tables: Mapping[str, Sized]) -> str:
    """Return one line with name and size for each table. Empty tables share the last line."""
    full = [f"{name:18} {len(rows):,} rows" for name, rows in tables.items() if len(rows)]
    if len(full) > _LINES - 2:
        full = [*full[: _LINES - 3], f"… {len(full) - _LINES + 3} more"]
    empty = [name for name, rows in tables.items() if not len(rows)]
    return "\n".join([*full, *([shortened(f"no rows: {', '.join(empty)}", 79)] if empty else [])])


class NamedTables(dict[str, PlainRows]):
    def __repr__(self) -> str:
        return listed(self)


class Records(Suggests, list[T]):
    guesses: ClassVar[dict[str, str]] = {
        **{"rows": "iteration, it is a list", "head": "a slice, `[:5]`", "to_df": "`to_pandas()`"}
    }

    if not TYPE_CHECKING:  # type checkers use the types of `list`

        def __getitem__(self, index: Any) -> Any:
            if isinstance(index, str):
                raise no_key(type(self).__name__, index, f'`to_pandas()["{index}"]`')
            return super().__getitem__(index)

    def plain(self) -> list[dict[str, Any]]:
        """Return the rows as plain values, for JSON and CSV."""
        return [row.plain() for row in self]  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        lines = [shortened(" ".join(repr(row).split()), _WIDTH) for row in self[:_SHOWN]]
        more = [f"… {len(self) - _SHOWN:,} more"] if len(self) > _SHOWN else []
        return "\n".join([f"{len(self):,} row{'s' * (len(self) != 1)}", *lines, *more])

    def _frame(self) -> Frame:
        return PlainRows(self.plain())._frame()

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame; needs pandas (`pip install 'etplus[frames]'`)."""
        return to_pandas(self._frame())

    def to_arrow(self) -> Any:
        """Return a pyarrow Table; needs pyarrow (`pip install 'etplus[frames]'`)."""
        return to_arrow(self._frame())


class Table(Records[R]):
    """A list of rows of one class."""

    def __init__(self, kind: type[R], rows: Iterable[R] = ()) -> None:
        super().__init__(rows)
        self.kind = kind

    def __repr__(self) -> str:
        text: str = outer("report.report_text").table_text(self, _WIDTH, _SHOWN) if self else f"no {self.kind.__name__}"
        return text

    def _frame(self) -> Frame:
        rows = self.plain()
        return {name: [row[name] for row in rows] for name in self.kind.names()}


class WithMean:
    """Mix-in for rows in which total_ns is a sum over `count` events."""

    guesses: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("duration", "duration_ns", "dur", "time", "cuda_time", "self_cpu_time_total"), "`total_ns` or `mean_ns`"
    )

    count: float
    total_ns: float

    @derived("ns", "mean")
    def mean_ns(self) -> float:
        """Mean duration."""
        return self.total_ns / self.count


def per_second(amount: float | None, ns: float | None) -> float | None:
    """Return an amount per second; None if the amount or the time is unknown, or the time is 0."""
    return amount / ns * 1e9 if amount is not None and ns else None
