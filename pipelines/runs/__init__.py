"""Dagster runs in a data folder: the instance, progress lines, killed runs, and retries."""
