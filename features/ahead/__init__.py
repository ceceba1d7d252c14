"""What may happen next, from what may be known at an instant: run times, arrivals, and futures played out.

Imports numpy alone, so that an agent plays futures as they are; training hands the same functions to numba.
"""
