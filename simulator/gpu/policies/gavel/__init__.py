"""Gavel with each of its objectives, and the rounds in which jobs receive their fractions of time."""
