"""Text for a terminal: comparisons of policies as tables, and explanations of a job or a user."""
