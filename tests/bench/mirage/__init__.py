"""Tests of `bench.mirage`."""
