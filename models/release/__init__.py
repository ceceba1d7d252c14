"""The release of policies and queue-time models: one line for both, with the gate of each in a room of its own.

Shared: the champion, the log of decisions, the steps from a judged candidate to a champion, and the gate's interval.
"""
