"""Failures: what failed, the signatures of errors, and what rules against failures save."""
