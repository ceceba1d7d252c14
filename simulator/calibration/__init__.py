"""Calibration: what a recorded trace hides about its scheduler, inferred from the record, and how far the result holds.

Arrays in, starts and figures out; imported by assets, models and the command line, and importing the simulator alone.
"""
