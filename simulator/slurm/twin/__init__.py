"""The slow twin of the `slurm` scheduler in obvious Python, from docs/schedulers/slurm.md; its clock is `clock`."""
