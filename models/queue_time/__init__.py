"""Queue-time prediction: the information known at a job's submission, the prediction methods, and their scores."""
