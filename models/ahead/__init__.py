"""Simulating ahead: futures from what is visible at a decision, in bulk for tables of pairs and for single jobs."""
