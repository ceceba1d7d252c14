"""Shared parts of several policies: training rows and inputs, networks and trees as arrays, the manifest."""
