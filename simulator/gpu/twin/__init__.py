"""The plain twins of the compiled clock of GPU schedulers: obvious Python, slow, for tests to compare with."""
