"""Tables out of the warehouse into files for other programs: SWF, CSV, Parquet."""
