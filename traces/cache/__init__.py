"""Digests that identify a result's inputs: the import closure of its code, and its input values."""
