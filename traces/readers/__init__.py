"""Readers of raw log formats, one format a module; `registry` finds the reader for a file."""
