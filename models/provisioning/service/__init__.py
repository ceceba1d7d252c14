"""Chains with a wanted service: what to ask for, how many links to queue, and when, judged in the recorded cluster.

Imported by `models.study`. Arrays and artifacts in, links and figures out; nothing here reads a file.
"""
