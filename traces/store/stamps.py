"""Stamps: what a step's present results were made from, so that a second run with nothing new does no work twice.

A fingerprint is the `traces.cache.digests.digest` of the code that computes a result (`code_digest` of
`traces.cache.closure`) and of its inputs. Tables of the lake carry theirs beside them (`traces.store.derived`,
`traces.store.raw_files`), pairs in their file's name; whatever else is kept has a stamp.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from traces.files.whole import write_text
from traces.store.folder import DataFolder


def stamp_path(data: DataFolder, step: str, cluster: str) -> Path:
    """The file that says what a step's present results were made from."""
    return data.artifacts / "stamps" / cluster / f"{step}.json"


def read_stamp(data: DataFolder, step: str, cluster: str, fingerprint: str | None = None) -> dict[str, Any] | None:
    """What the step left behind if its results were made from exactly that (None: from whatever); else None."""
    try:
        stamp = json.loads(stamp_path(data, step, cluster).read_text(encoding="utf-8"))
        for_next_run: dict[str, Any] = stamp["left"]
        made_from = stamp["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return for_next_run if isinstance(for_next_run, dict) and fingerprint in (None, made_from) else None


def write_stamp(data: DataFolder, step: str, cluster: str, fingerprint: str, for_next_run: dict[str, Any]) -> None:
    """Record, after the results are in place, what they were made from; `for_next_run` is JSON."""
    write_text(
        stamp_path(data, step, cluster), json.dumps({"fingerprint": fingerprint, "left": for_next_run}, indent=1)
    )


def forget_stamp(data: DataFolder, step: str, cluster: str) -> None:
    """Before the step's results are replaced: whoever is killed on the way leaves results of which nothing is said."""
    stamp_path(data, step, cluster).unlink(missing_ok=True)
