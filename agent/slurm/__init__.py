"""Query a live Slurm through its own commands and parse their output. Decides nothing and submits nothing."""
