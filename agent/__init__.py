"""Runs a released policy beside a live Slurm, on a machine that has only the base install.

Imports `features.observe`, `features.snapshot`, `features.start_estimate`, `traces.slurm.text` and `traces.visible` at
most; numpy is its one dependency.
"""
