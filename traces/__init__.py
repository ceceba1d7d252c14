"""Raw text to canonical tables: schema, readers, Slurm's text forms, the lake and the warehouse, the generator.

Knows no Dagster, no features and no learning. The only package that opens a DuckDB connection (`traces.store`).
Anyone may import it; it imports no other package of Baton.
"""
