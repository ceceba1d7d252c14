"""YARN's Capacity scheduler and Fair scheduler, for gangs of GPUs."""
