"""Descriptions of a trace (queueing, fragmentation, failures, utilization); and `observe`, what a policy may know at t.

Chooses no action and fits nothing. Imports `simulator` and `traces`; `features.observe` imports numpy alone.
"""
