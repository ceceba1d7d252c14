"""Loads a released artifact and decides with it, on a machine that has only the base install.

Imports `features.observe` and `traces.slurm.text` at most; numpy is its one dependency.
"""
