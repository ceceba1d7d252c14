"""Twins of the GPU schedulers in plain, slow Python."""
