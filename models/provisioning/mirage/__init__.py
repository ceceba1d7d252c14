"""Mirage (SC'23) as its authors released it, for comparison: its state, networks and rules. Releases nothing."""
