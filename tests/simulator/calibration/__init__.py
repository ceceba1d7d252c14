"""Tests of simulator.calibration."""
