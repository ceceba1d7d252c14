"""What `baton analyze` and `baton run` do: which raw logs are meant, whether anything is new, and the run itself."""
