"""What Slurm itself writes, but for job records: its text forms, slurm.conf, accounts, and the state of a cluster."""
