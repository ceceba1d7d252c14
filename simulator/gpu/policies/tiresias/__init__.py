"""Tiresias by attained service, and with the Gittins index."""
