"""Published queue-time methods that Baton's are compared with (`run.py`), and their registry. None can be released."""
