"""The work of `baton analyze` and `baton run`: find the raw logs, check whether anything is new, and run."""
