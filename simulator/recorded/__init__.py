"""The recorded cluster: infer a scheduler's hidden parameters from a trace, and judge the simulated waits.

Arrays in, starts and figures out. Imports only `traces` and the simulator's shared files; imported by assets, models
and the command line.
"""
