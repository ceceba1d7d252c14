"""The commands of `baton lake`."""
