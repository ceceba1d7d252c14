#!/bin/sh
#SBATCH --time=12:00:00
#SBATCH --nodes=1
# One link of a chain: baton-agent run train.sh --links 5. Slurm starts it in the folder that it was submitted from.
# `exec`, so that Slurm's signals reach Python and its exit status is the job's.
exec python3 train.py
