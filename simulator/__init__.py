"""The trace-driven cluster: arrays in, records out.

Moves the clock and nothing else: it knows no features and no policies. Imports `traces` only.
"""
