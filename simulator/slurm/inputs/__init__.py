"""From a cluster's files and recorded jobs to a declared world, and from that to the compiled scheduler's tables."""
