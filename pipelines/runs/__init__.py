"""Runs of Dagster in a data folder: the instance, what a run tells, which were killed, when one is tried again."""
