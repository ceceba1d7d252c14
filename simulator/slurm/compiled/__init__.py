"""The compiled `slurm` scheduler: its clock is `kernel`, its arrays are `state`."""
