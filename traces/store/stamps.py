"""Stamps record the fingerprint of a step's current results, so that running again without new input does nothing.

A fingerprint is the `traces.cache.digests.digest` of the code that computes a result (`code_digest` of
`traces.cache.closure`) and of its inputs. Tables of the lake store theirs in a JSON file (`traces.store.derived`,
`traces.store.raw_files`), and pairs in their file name. All other stored results have a stamp.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from traces.files import whole
from traces.files.presence import at_work, nobody_at_work
from traces.files.whole import write_text
from traces.store.folder import DataFolder


def stamp_path(data: DataFolder, step: str, cluster: str) -> Path:
    """Return the file with the fingerprint of a step's current results."""
    return data.artifacts / "stamps" / cluster / f"{step}.json"


def read_stamp(data: DataFolder, step: str, cluster: str, fingerprint: str | None = None) -> dict[str, Any] | None:
    """Return what the step recorded for the next run; None unless its results have that fingerprint.

    Without a fingerprint, any results count.
    """
    try:
        stamp = json.loads(stamp_path(data, step, cluster).read_text(encoding="utf-8"))
        for_next_run: dict[str, Any] = stamp["left"]
        made_from = stamp["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return for_next_run if isinstance(for_next_run, dict) and fingerprint in (None, made_from) else None


def write_stamp(data: DataFolder, step: str, cluster: str, fingerprint: str, for_next_run: dict[str, Any]) -> None:
    """Record the fingerprint after the results are in place; `for_next_run` must be JSON-serialisable.

    Removes what a killed process has left of a stamp, unless another process is writing one.
    """
    path = stamp_path(data, step, cluster)
    path.parent.mkdir(parents=True, exist_ok=True)
    with nobody_at_work(path.parent) as may_sweep:
        if may_sweep:
            whole.sweep(path.parent)
    with at_work(path.parent):
        write_text(path, json.dumps({"fingerprint": fingerprint, "left": for_next_run}, indent=1))


def forget_stamp(data: DataFolder, step: str, cluster: str) -> None:
    """Remove the stamp before the results are replaced, so that a run killed in between leaves no wrong stamp."""
    stamp_path(data, step, cluster).unlink(missing_ok=True)
