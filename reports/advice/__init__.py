"""Findings and recommended actions in words, with how far each can be trusted."""
