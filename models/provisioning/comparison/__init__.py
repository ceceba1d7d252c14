"""Compare policies on the same pairs: outcomes, figures with intervals, curves. Stores nothing."""
