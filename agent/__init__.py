"""Run a released policy on a live Slurm, on a machine that has only the base install.

Of other packages it imports only `features.futures`, `features.conventions`, `features.observe`, `features.snapshot`,
`traces.counted`, `traces.slurm.text` and `traces.visible`. numpy is its only dependency.
"""
