"""What a person reads at a terminal: a comparison of policies as a table, a job or a user explained in sentences."""
