"""Profiles of training jobs: a table of published measurements, stated scaling laws, and random draws.

A trace names no model, so a job gets one from a stated mix with a seed. This package knows no policy and no clock.
"""
