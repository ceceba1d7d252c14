"""Dagster assets, one module a layer; each asset reads, calls, writes and returns a MaterializeResult.

No logic lives here that a command line without Dagster would need: that goes to the package it belongs to.
"""
