"""The plain twins of the compiled GPU schedulers, and of Themis: obvious Python, slow, for tests to compare with."""
