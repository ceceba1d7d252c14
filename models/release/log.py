"""The log of decisions about releases, and the tags that hold a decision until the log does.

A release changes both the registry (which version is champion) and the log, and no transaction spans the two. The
version that becomes champion therefore first gets the decision as a tag. If the process is killed before it writes the
log, the next process restores the log from the tag. All of this happens behind the lock of `models.release.champion`.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import polars as pl

from features.conventions import BY_HAND, FAILED, PASSED
from models.tables import RELEASE_LOG, release_log_frame
from models.tracking import versions as tracking
from traces import instants
from traces.cache.digests import digest
from traces.errors import InputError, WorkError
from traces.store import derived
from traces.store.folder import DataFolder

DECISION_TAG = "decision"
_KEY = ["cluster", "released_utc"]


def read(data: DataFolder, cluster: str) -> pl.DataFrame:
    """The cluster's decisions, the newest last; empty without any."""
    try:
        log = derived.read(data, RELEASE_LOG.name, cluster)
    except InputError:
        return release_log_frame([])
    if "verdict" in log.columns:
        return log
    return release_log_frame([_with_verdict(row) for row in log.iter_rows(named=True)])


def add(data: DataFolder, row: dict[str, Any], made_from: str) -> pl.DataFrame:
    """Add a decision, a row of `release_log`, with the digest of its inputs; returns the cluster's log.

    A decision that equals the newest in all but its time replaces it: a killed process had made the same decision.
    """
    cluster, added = str(row["cluster"]), release_log_frame([row])
    log = read(data, cluster)
    if len(log) and log[-1].drop("released_utc").equals(added.drop("released_utc")):
        log = log[:-1]
    log = pl.concat([log, added]).unique(_KEY, keep="last").sort("released_utc")
    derived.write(data, RELEASE_LOG, cluster, log, _fingerprint(made_from, row["registered_version"]))
    return log


def _with_verdict(row: dict[str, Any]) -> dict[str, Any]:
    """Convert a row from an older version's log, in which a candidate passed or did not."""
    return {**row, "verdict": PASSED if row["passed"] else FAILED, "provisional": False}


def is_current(data: DataFolder, cluster: str, made_from: str) -> bool:
    """Whether the newest decision was made from these inputs, and its champion is still champion.

    After a promotion by hand a new decision is due.
    """
    champion = tracking.champion(data, cluster)
    expected = _fingerprint(made_from, None if champion is None else champion.version)
    return derived.made_from(data, RELEASE_LOG.name, cluster) == expected


def tag_of(row: dict[str, Any], made_from: str) -> str:
    """The decision as a tag of the version that it makes champion."""
    return json.dumps({"row": {**row, "released_utc": row["released_utc"].isoformat()}, "made_from": made_from})


def tag_by_hand(cluster: str, version: tracking.RegisteredVersion, reason: str, now: datetime) -> str:
    """A person's decision to make this version champion, as a tag of the version."""
    row = {
        "cluster": cluster,
        "released_utc": now,
        "registered_version": version.version,
        "candidate_version": version.version,
        "policy": version.tags.get("policy", "unknown"),
        "verdict": BY_HAND,
        "provisional": False,
        "reason": reason,
    }
    return tag_of(row, BY_HAND)


def decision_of(cluster: str, champion: tracking.RegisteredVersion) -> tuple[dict[str, Any], str] | None:
    """The decision that made this version champion, a row of the log, and the digest of its inputs.

    None if it was made champion in MLflow, or by an older version of this program.
    """
    if DECISION_TAG not in champion.tags:
        return None
    try:
        decision = json.loads(champion.tags[DECISION_TAG])
        row = {**decision["row"], "released_utc": instants.parse(decision["row"]["released_utc"]), "cluster": cluster}
        row = row if "verdict" in row else _with_verdict(row)
        made_from = str(decision["made_from"])
        release_log_frame([row])
    except (ValueError, KeyError, TypeError) as error:
        raise WorkError(
            f"tag {DECISION_TAG!r} of {tracking.model_name(cluster)} version {champion.version} is not a decision in "
            f"this program's format ({type(error).__name__}: {error}); delete the tag in MLflow"
        ) from error
    return row, made_from


def restore(data: DataFolder, cluster: str, champion: tracking.RegisteredVersion) -> None:
    """Add the decision that made this version champion to the log of its cluster, if it is missing.

    A log without a fingerprint means that a process was killed while writing it; the decision is then written again.
    """
    decided = decision_of(cluster, champion)
    if decided is None:
        return
    row, made_from = decided
    log = release_log_frame([row])
    is_whole = derived.made_from(data, RELEASE_LOG.name, cluster) is not None
    if not is_whole or log["released_utc"][0] not in read(data, cluster)["released_utc"]:
        add(data, row, made_from)


def _fingerprint(made_from: str, champion_version: int | None) -> str:
    return digest(made_from, champion_version)
