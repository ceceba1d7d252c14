"""Plain, slow reference implementations ("twins") of the simulator's compiled code, for tests and benchmarks only.

A twin repeats an algorithm in obvious Python, and the tests compare it with the fast version job by job. `flat`,
`recorded`, `slurm` and `gpu` follow the folders of `simulator`. Nothing in the product imports this package.
"""
