"""Store traces as columns: folders of Parquet files that DuckDB, polars, pandas and Spark can read."""
