"""Raw logs to canonical tables: readers, Slurm's text forms, the lake and the warehouse, generated logs.

`readers` parse one raw format each, `ingest` picks the reader and puts its tables into the lake; `store` is the data
folder with lake and warehouse; `slurm` parses Slurm's text and configuration; `generate` writes logs that resemble real
ones; `export` writes tables for other programs; `files` is what several processes need to share files. `schema`
declares every table, `clusters` what a log does not say about its cluster.

Knows no Dagster, no features and no learning. The only package that opens a DuckDB connection (`traces.store`).
Anyone may import it; it imports no other package of Baton.
"""
