"""Simulate ahead: play futures from the state visible at a decision, for tables of pairs and for single jobs."""
