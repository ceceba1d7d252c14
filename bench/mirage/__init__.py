"""Peers of `bench/mirage_peer.py` that no command of Baton can name: tree models, and learners over histories."""
