"""A chain of jobs: its state on disk, one cycle as pure functions, and the loop that keeps it going."""
