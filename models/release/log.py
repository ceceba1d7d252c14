"""The log of decisions about releases, and what tells of a decision before the log does.

A release changes the registry (which version is champion) and the log, and no transaction spans both. So the version
that becomes champion first gets the decision as a tag; whoever finds a champion whose decision is not in the log
(its process was killed in between) puts it there from the tag. All of it happens behind the lock of
`models.release.champion`.
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
    """The cluster's decisions, the newest last; no rows where there was none."""
    try:
        log = derived.read(data, RELEASE_LOG.name, cluster)
    except InputError:
        return release_log_frame([])
    if "verdict" in log.columns:
        return log
    return release_log_frame([_with_verdict(row) for row in log.iter_rows(named=True)])


def add(data: DataFolder, row: dict[str, Any], made_from: str) -> pl.DataFrame:
    """One more decision, a row of `release_log`, with what it was made from; returns the cluster's log.

    One that is like the newest in all but its time takes its place: a killed process had decided the same.
    """
    cluster, added = str(row["cluster"]), release_log_frame([row])
    log = read(data, cluster)
    if len(log) and log[-1].drop("released_utc").equals(added.drop("released_utc")):
        log = log[:-1]
    log = pl.concat([log, added]).unique(_KEY, keep="last").sort("released_utc")
    derived.write(data, RELEASE_LOG, cluster, log, _fingerprint(made_from, row["registered_version"]))
    return log


def _with_verdict(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a log that an older version wrote, in which a candidate passed or did not."""
    return {**row, "verdict": PASSED if row["passed"] else FAILED, "provisional": False}


def stands(data: DataFolder, cluster: str, made_from: str) -> bool:
    """Whether the newest decision was made from that, and its champion is champion still.

    A promotion by hand asks for a new decision.
    """
    champion = tracking.champion(data, cluster)
    wanted = _fingerprint(made_from, None if champion is None else champion.version)
    return derived.made_from(data, RELEASE_LOG.name, cluster) == wanted


def tag_of(row: dict[str, Any], made_from: str) -> str:
    """The decision as a tag of the version that it makes champion."""
    return json.dumps({"row": {**row, "released_utc": row["released_utc"].isoformat()}, "made_from": made_from})


def tag_by_hand(cluster: str, version: tracking.RegisteredVersion, reason: str, now: datetime) -> str:
    """The decision of a person who makes this version champion, as its tag."""
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
    """The decision that made this version champion, a row of the log, and what it was made from.

    None where it was made champion in MLflow, or by an older version of this program.
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
            f"tag {DECISION_TAG!r} of {tracking.model_name(cluster)} version {champion.version} is no decision as this "
            f"program writes them ({type(error).__name__}: {error}); delete the tag in MLflow"
        ) from error
    return row, made_from


def restore(data: DataFolder, cluster: str, champion: tracking.RegisteredVersion) -> None:
    """Puts the decision that made this version champion into the log of its cluster, where it is not there yet.

    A log without a fingerprint is one that the process was killed over: there the decision is written once more.
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
