"""What-ifs in the cluster as the log recorded it: the base, its changes, the replays and the comparison with the base.

The scheduler is the one that calibration infers from the log (`simulator.recorded`). Published schedulers on GPUs or
whole nodes are in `models.what_if`.
"""
