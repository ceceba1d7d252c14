"""Possible futures of a cluster, drawn from what is known at an instant: run times, arrivals and simulated futures.

Imports numpy alone, so that an agent runs the code uncompiled; training compiles the same functions with numba.
"""
