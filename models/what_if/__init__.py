"""Replays with one thing changed, of a whole cluster and of one job, beside the replay as it was. Stores nothing."""
