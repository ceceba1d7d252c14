"""Mirage (SC'23) as its authors released it: its state and its six methods, compared by name and never released."""
