"""Generated raw logs: the bundled sample, and dumps of any size for benchmarks. They record no real cluster."""
