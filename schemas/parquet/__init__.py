"""Store traces as columns: folders of Parquet files that DuckDB, polars, pandas and Spark can read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...trace.outer import lazy_names

if TYPE_CHECKING:
    from .parquet_reader import read_parquet
    from .parquet_writer import check_place, write_parquet, write_rank
    from .stored_folder import SUFFIXES, StoredRank, is_stored, stored_ranks
    from .stored_tables import files_of, read_exchanges

__all__ = [
    "SUFFIXES", "StoredRank", "check_place", "files_of", "is_stored", "read_exchanges", "read_parquet",
    "stored_ranks", "write_parquet",
    "write_rank",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".parquet_reader": "read_parquet",
        ".stored_folder": "SUFFIXES StoredRank is_stored stored_ranks",
        ".stored_tables": "files_of read_exchanges",
        ".parquet_writer": "check_place write_parquet write_rank",
    },
    __all__,
)
