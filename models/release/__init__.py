"""The release of a policy: the gate, the champion, the log of decisions, and the notes in a released version."""
