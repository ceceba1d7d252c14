"""Convert a cluster's files and recorded jobs to a declared world, and that to the compiled scheduler's tables."""
