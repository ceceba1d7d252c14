"""How the process of a command behaves: how it ends when it is told to, and what may reach a terminal."""
