"""Index types. Each table has its own index type, so type checkers can reject an index into the wrong table.
At run time, an index is an `int` and a column is an ordinary array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NewType, TypeVar, cast

import numpy as np
import numpy.typing as npt

from .columns import IntColumn

__all__ = ["CallIndex", "ColumnOf", "GpuIndex", "Positions", "Row", "RuntimeIndex", "as_column", "as_positions"]

Row = NewType("Row", int)  # row of `Trace.nodes`
CallIndex = NewType("CallIndex", int)  # row of `Trace.calls`
RuntimeIndex = NewType("RuntimeIndex", int)  # row of `Trace.runtime`
GpuIndex = NewType("GpuIndex", int)  # row of `Trace.gpu`

Scalar = TypeVar("Scalar", bound=np.generic)

if TYPE_CHECKING:
    from typing import overload

    Index = Row | CallIndex | RuntimeIndex | GpuIndex
    Source = TypeVar("Source")
    Target = TypeVar("Target")
    _Other = TypeVar("_Other")

    class WrongIndex:
        """The type that an expression gets if a column is indexed with the index type of another table."""

    class ColumnOf(np.ndarray[Any, np.dtype[Scalar]], Generic[Source, Scalar]):
        """A column of one table: `ColumnOf[CallIndex, np.int64]` has one entry per call."""

        @overload  # type: ignore[override]
        def __getitem__(self, at: Source) -> Any: ...
        @overload
        def __getitem__(self, at: Index) -> WrongIndex: ...
        @overload
        def __getitem__(self, at: int) -> Any: ...
        @overload
        def __getitem__(self, at: Positions[_Other, Source]) -> ColumnOf[_Other, Scalar]: ...
        @overload
        def __getitem__(self, at: Positions[Any, Any]) -> WrongIndex: ...
        @overload
        def __getitem__(self, at: slice | list[int] | npt.NDArray[Any]) -> npt.NDArray[Scalar]: ...
        def __getitem__(self, at: Any) -> Any: ...

    class Positions(ColumnOf[Source, np.int64], Generic[Source, Target]):
        """A column of positions: `Positions[GpuIndex, CallIndex]` maps each GPU event to a position in the calls."""

        @overload  # type: ignore[override]
        def __getitem__(self, at: Source) -> Target: ...
        @overload
        def __getitem__(self, at: Index) -> WrongIndex: ...
        @overload
        def __getitem__(self, at: int) -> Target: ...
        @overload
        def __getitem__(self, at: Positions[_Other, Source]) -> Positions[_Other, Target]: ...
        @overload
        def __getitem__(self, at: Positions[Any, Any]) -> WrongIndex: ...
        @overload
        def __getitem__(self, at: slice | list[int] | npt.NDArray[Any]) -> Positions[int, Target]: ...
        def __getitem__(self, at: Any) -> Any: ...
        def tolist(self) -> list[Target]: ...  # type: ignore[override]

else:
    ColumnOf = Positions = np.ndarray


def as_column(values: npt.NDArray[Scalar]) -> ColumnOf[Any, Scalar]:
    """Declare that an array is a column. Type checkers accept the result for any table."""
    return cast("ColumnOf[Any, Scalar]", values)


def as_positions(values: IntColumn) -> Positions[Any, Any]:
    """Declare that positions are a column. Type checkers accept the result for any pair of tables."""
    return cast("Positions[Any, Any]", values)
