"""Descriptions of a trace (queueing, fragmentation, failures, utilization); `observe`: what a policy may know at time t.

Chooses no action and fits nothing. Imports `simulator` and `traces`; `features.observe` imports numpy alone.
"""
