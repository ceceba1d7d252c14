"""Fit policies on pairs with known outcomes, each learner in its own process. Stores nothing on disk."""
