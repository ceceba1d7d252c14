"""Export of warehouse tables to files for other programs: SWF, CSV, Parquet."""
