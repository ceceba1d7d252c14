"""The release of a policy: the gate, the champion, the log of decisions, and what a released version carries."""
