"""Readers of Slurm's node lists: `scontrol show node`, and `sinfo` as text and as JSON."""
