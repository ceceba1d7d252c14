"""The world of GPU schedulers: typed GPUs on nodes, gangs that are preempted, moved and resized, at published costs.

Here: the clocks, the schedulers and what jobs do on GPUs that are not here. Not here: what the results mean
(`models.what_if`), and the other worlds, whose jobs are never touched once they run. Imports `traces` alone.
"""
