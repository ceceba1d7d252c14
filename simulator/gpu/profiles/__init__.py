"""Profiles of training jobs: measured steps from files, the laws between them, and random draws of models.

A trace names no model, so a job may draw one with a seed. This package knows no policy and no clock.
"""
