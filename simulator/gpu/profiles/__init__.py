"""What training jobs do on GPUs that are not here: a table of published measurements, laws that are stated, draws.

A trace names no model, so a job gets one from a stated mix, with a seed. Nothing here knows a policy or a clock.
"""
