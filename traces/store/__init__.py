"""Storage of tables: the data folder, the lake of Parquet files, and the warehouse. Only this package opens DuckDB."""
