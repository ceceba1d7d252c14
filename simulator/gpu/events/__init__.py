"""The compiled clock of GPU scheduling: it calls the policy when a job arrives, ends or needs a wake-up."""
