"""Raw logs to canonical tables: readers, Slurm's text formats, the lake and the warehouse, generated logs.

- `readers` parse one raw format each; `ingest` picks the reader and writes its tables into the lake.
- `store` holds the data folder: the lake and the warehouse.
- `slurm` parses Slurm's text and configuration.
- `generate` writes logs that resemble real ones.
- `export` writes tables for other programs.
- `files` lets several processes share files safely.
- `schema` declares every table; `clusters` holds the cluster settings that a log does not record.

This package contains no Dagster, features or learning. It is the only package that opens DuckDB connections
(`traces.store`). Every package may import it; it imports no other package of Baton.
"""
