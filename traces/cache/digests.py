"""Digests of plain values: settings, names, other digests."""

from __future__ import annotations

import hashlib
import json


def digest(*parts: object) -> str:
    """Return the SHA-256 of the parts as JSON, with sorted keys; values that JSON cannot hold become text."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()
