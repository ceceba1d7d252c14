"""Tests of simulator.recorded."""
