"""Fitting policies on pairs whose outcomes were known, each learner in a process of its own. Keeps nothing on disk."""
