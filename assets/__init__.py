"""Dagster assets, one module per layer. Each asset reads, calls, writes and returns a MaterializeResult.

Logic that a command line without Dagster would need belongs in other packages.
"""
