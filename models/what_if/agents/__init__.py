"""What happens to a cluster if agents run a share of its long jobs: their own losses, and everybody else's waits."""
