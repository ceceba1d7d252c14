"""Declared tables of the analytics, one module per topic. Only `features` imports from here."""
