"""Plain, slow reference implementations ("twins") of the simulator's compiled code, for tests and benchmarks only.

A twin repeats an algorithm in plain Python, and tests compare its results with those of the fast version job by job.
`flat`, `recorded`, `slurm` and `gpu` follow the folders of `simulator`. Nothing in the product imports this package.
"""
