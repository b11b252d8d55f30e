"""A trace as columns on disk: a folder of Parquet files that DuckDB, polars, pandas and Spark read as they are."""

from .read_parquet import StoredRank, is_stored, read_parquet, stored_ranks
from .write_parquet import check_place, write_parquet

__all__ = ["StoredRank", "check_place", "is_stored", "read_parquet", "stored_ranks", "write_parquet"]
