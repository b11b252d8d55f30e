"""A trace as columns on disk: a folder of Parquet files that DuckDB, polars, pandas and Spark read as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...trace.lazy import lazy_names

if TYPE_CHECKING:
    from .parquet_reader import read_parquet
    from .parquet_writer import check_place, write_parquet
    from .stored_folder import StoredRank, is_stored, stored_ranks

__all__ = ["StoredRank", "check_place", "is_stored", "read_parquet", "stored_ranks", "write_parquet"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".parquet_reader": "read_parquet",
        ".stored_folder": "StoredRank is_stored stored_ranks",
        ".parquet_writer": "check_place write_parquet",
    },
    __all__,
)
