"""Comparing policies on the same pairs: what each did, its figures with intervals, its curve. Stores nothing."""
