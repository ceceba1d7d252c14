"""Run a released policy on a live Slurm, on a machine that has only the base install.

The package imports at most `features.observe`, `features.snapshot`, `features.start_estimate`, `traces.slurm.text` and
`traces.visible`. numpy is its only dependency.
"""
