"""Provisioning policies: when to submit a successor. Their pairs, training and comparison. Stores nothing.

`models.study` decides what is fitted on which part of a trace, and stores it.
"""
