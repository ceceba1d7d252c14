"""Mirage (SC'23) as its authors released it: its state and its four networks, compared by name and never released."""
