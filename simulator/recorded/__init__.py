"""The recorded cluster: what a trace hides about its scheduler, inferred from the record, and how far the result holds.

Arrays in, starts and figures out. Imports the simulator's shared files and `traces` alone; imported by assets, models
and the command line.
"""
