"""Tests of `models.what_if.recorded`."""
