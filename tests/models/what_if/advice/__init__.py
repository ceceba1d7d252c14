"""Tests of `models.what_if.advice`."""
