"""Where tables lie: the data folder, the lake of Parquet files, the warehouse made from it. Alone opens DuckDB."""
