"""The digest of plain values: settings, names, other digests."""

from __future__ import annotations

import hashlib
import json


def digest(*parts: object) -> str:
    """SHA-256 of the parts as JSON (keys sorted; what JSON does not know, as text)."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()
