"""The release of a queue-time model: its candidate, gate, notes and drift."""
