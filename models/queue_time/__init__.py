"""Queue-time prediction: what is known at a job's submission, the methods behind one protocol, and their scores."""
