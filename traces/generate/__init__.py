"""Generated raw logs: the bundled sample, and dumps of any size for benchmarks. No record of a real cluster."""
