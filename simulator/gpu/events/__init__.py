"""The compiled clock of GPU scheduling: asks when a job comes, ends or wakes the policy. `run` is the way in."""
