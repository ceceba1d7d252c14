"""Declared tables of the analytics, a module a topic, as `traces.schema` does it. Only `features` imports from here."""
