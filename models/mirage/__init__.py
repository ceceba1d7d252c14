"""Mirage (SC'23) as its authors released it, to compare with: its state, networks and rules. Releases nothing."""
