"""Fingerprints: what a stored result was made from, so that a second run with nothing new does no work twice."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from traces.files.whole import write_text
from traces.store.folder import DataFolder

ROOT = Path(__file__).resolve().parents[1]


def digest(*parts: object) -> str:
    """SHA-256 of the parts as JSON (keys sorted; what JSON does not know, as text)."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


@cache
def code_digest(*paths: str) -> str:
    """SHA-256 over the names and bytes of Python sources: files, or packages with all that is in them."""
    sources: set[Path] = set()
    for path in paths:
        target = ROOT / path
        sources.update(target.rglob("*.py") if target.is_dir() else [target])
    state = hashlib.sha256()
    for source in sorted(sources):
        state.update(str(source.relative_to(ROOT)).encode() + b"\0" + source.read_bytes() + b"\0")
    return state.hexdigest()


def stamp_path(data: DataFolder, step: str, cluster: str) -> Path:
    """The file that says what a step's present results were made from."""
    return data.artifacts / "stamps" / cluster / f"{step}.json"


def read_stamp(data: DataFolder, step: str, cluster: str, fingerprint: str | None = None) -> dict[str, Any] | None:
    """What the step left behind if its results were made from exactly that (None: from whatever); else None."""
    try:
        stamp = json.loads(stamp_path(data, step, cluster).read_text(encoding="utf-8"))
        left: dict[str, Any] = stamp["left"]
        made_from = stamp["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return left if isinstance(left, dict) and fingerprint in (None, made_from) else None


def write_stamp(data: DataFolder, step: str, cluster: str, fingerprint: str, left: dict[str, Any]) -> None:
    """Record, after the results are in place, what they were made from; `left` is JSON that the next run needs."""
    write_text(stamp_path(data, step, cluster), json.dumps({"fingerprint": fingerprint, "left": left}, indent=1))


def forget_stamp(data: DataFolder, step: str, cluster: str) -> None:
    """Before the step's results are replaced: whoever is killed on the way leaves results of which nothing is said."""
    stamp_path(data, step, cluster).unlink(missing_ok=True)
