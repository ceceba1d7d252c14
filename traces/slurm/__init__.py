"""Parsers of Slurm's own text other than job records: value formats, slurm.conf, accounts, reservations."""
