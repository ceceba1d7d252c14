"""Load and its drift: how much arrives, and whether a week is like those before."""
