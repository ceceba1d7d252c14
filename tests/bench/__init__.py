"""Tests of the peers and programs of `bench`."""
