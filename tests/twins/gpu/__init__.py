"""Plain twins of the GPU schedulers: obvious Python, slow, for tests."""
