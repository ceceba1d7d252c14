"""Replay a whole cluster, or one job, with one thing changed, and compare with the unchanged replay."""
