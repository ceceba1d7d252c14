"""Run many independent tasks: in processes of this machine, or as jobs of the cluster's own Slurm.

`work` says what is run, and each engine is one file. Results are the same bytes wherever a task runs.
"""
