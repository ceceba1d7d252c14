"""Calibration of the recorded cluster: simulated waits against recorded ones, month by month."""
