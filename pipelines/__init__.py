"""Dagster assembly and the command line only: definitions, settings, resources, jobs, schedules, sensors, cli.

Nothing imports this package.
"""
