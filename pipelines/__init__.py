"""Dagster assembly and the command line: definitions, settings, resources, jobs, schedules, sensors, cli.

Nothing imports this package, and nothing is computed in it.
"""
