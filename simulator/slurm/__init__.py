"""A simulated Slurm controller: its declared inputs (`world`), a full replay (`run`), and branches (`branching`).

Defined in docs/schedulers/slurm.md. `compiled` holds the clock, and `inputs` reads a cluster's files. The plain twin
that checks the clock is `tests/twins/slurm`. Everything above `simulator` may import this package.
"""
