"""A Slurm controller: the cluster that it is given (`world`), a whole replay (`run`), and its branches (`branching`).

Defined in docs/schedulers/slurm.md. The clock is in `compiled`, the plain twin in `twin`, what is made of a cluster's
files in `inputs`. May be imported by everything above `simulator`; imports nothing from there.
"""
