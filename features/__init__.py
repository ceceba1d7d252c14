"""Descriptions of a trace (queueing, fragmentation, failures, utilization), and the observation of a policy at time t.

This package chooses no action and fits nothing. It imports `simulator` and `traces`; `features.observe` imports numpy
alone.
"""
