"""The process of a command: how it ends on a signal, and which characters may reach a terminal."""
