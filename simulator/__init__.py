"""Trace-driven simulation of clusters: arrays in, records out.

The package only advances the clock; it knows no features and no policies. It imports only `traces`.
"""
