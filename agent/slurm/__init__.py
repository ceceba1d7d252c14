"""Asks a live Slurm through its own commands and parses what they print. Decides nothing and submits nothing."""
