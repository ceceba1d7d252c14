"""The release of a policy: its candidate, gate, notes and drift."""
