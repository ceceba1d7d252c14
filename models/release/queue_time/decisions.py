"""The log of decisions about a cluster's queue-time releases, in the form that `models.release.champion` needs.

A version that becomes champion gets its decision as a tag before the alias moves. After a kill, the next run adds it to
the log.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import polars as pl

from features.conventions import BY_HAND
from models.queue_time.tables import QUEUE_TIME_RELEASES
from models.release.champion import Decisions
from models.release.log import DECISION_TAG
from models.release.queue_time.gate import QueueTimeOffer
from models.tables import frame
from models.tracking.versions import QUEUE_TIME, RegisteredVersion, model_name
from traces import instants
from traces.cache.digests import digest
from traces.errors import InputError, WorkError
from traces.store import derived
from traces.store.folder import DataFolder


def read(data: DataFolder, cluster: str) -> pl.DataFrame:
    """The cluster's decisions, the newest last; empty without any."""
    try:
        return derived.read(data, QUEUE_TIME_RELEASES.name, cluster)
    except InputError:
        return releases_frame([])


def add(data: DataFolder, row: dict[str, Any], made_from: str) -> None:
    """Add a decision, a row of `queue_time_releases`, with the digest of its inputs."""
    cluster = str(row["cluster"])
    log = pl.concat([read(data, cluster), releases_frame([row])]).unique("decided_utc", keep="last")
    fingerprint = digest(made_from, row["registered_version"])
    derived.write(data, QUEUE_TIME_RELEASES, cluster, log.sort("decided_utc"), fingerprint)


def is_current(data: DataFolder, cluster: str, made_from: str, champion: RegisteredVersion | None) -> bool:
    """Whether the newest decision was made from these inputs, and its champion is still champion."""
    expected = digest(made_from, None if champion is None else champion.version)
    return derived.made_from(data, QUEUE_TIME_RELEASES.name, cluster) == expected


def tag_of(row: dict[str, Any], made_from: str) -> str:
    """The decision as a tag of the version that it makes champion."""
    return json.dumps({"row": {**row, "decided_utc": row["decided_utc"].isoformat()}, "made_from": made_from})


def tag_by_hand(cluster: str, version: RegisteredVersion, reason: str, now: datetime) -> str:
    """A person's decision to make this version champion, as a tag of the version."""
    method = version.tags.get("method", "unknown")
    row = {
        "cluster": cluster,
        "decided_utc": now,
        "registered_version": version.version,
        "champion_method": method,
        "candidate_version": version.version,
        "method": method,
        "verdict": BY_HAND,
        "provisional": False,
        "reason": reason,
        "opponent": "",
        "jobs": 0,
        "blocks": 0,
    }
    return tag_of(row, BY_HAND)


def restore(data: DataFolder, cluster: str, champion: RegisteredVersion) -> None:
    """Add the decision that made this version champion to the log, if it is missing."""
    if DECISION_TAG not in champion.tags:
        return
    try:
        stated = json.loads(champion.tags[DECISION_TAG])
        row = {**stated["row"], "decided_utc": instants.parse(stated["row"]["decided_utc"]), "cluster": cluster}
        made_from = str(stated["made_from"])
        releases_frame([row])
    except (ValueError, KeyError, TypeError) as error:
        raise WorkError(
            f"tag {DECISION_TAG!r} of {model_name(cluster, QUEUE_TIME)} version {champion.version} is no decision in "
            f"this program's format ({type(error).__name__}: {error}); delete the tag in MLflow"
        ) from error
    if row["decided_utc"] not in read(data, cluster)["decided_utc"]:
        add(data, row, made_from)


DECISIONS = Decisions(QUEUE_TIME, tag_by_hand, restore)


def release_row(
    cluster: str, now: datetime, offer: QueueTimeOffer, version: int, champion_method: str, candidate_version: int
) -> dict[str, Any]:
    """Make a row of `queue_time_releases`."""
    judged, reason = offer.judged, offer.judged.reason
    if offer.is_provisional:
        reason += f"; there is no champion, so the naive method {offer.released} becomes provisional champion"
    return {
        "cluster": cluster,
        "decided_utc": now,
        "registered_version": version,
        "champion_method": champion_method,
        "candidate_version": candidate_version,
        "method": offer.candidate,
        "verdict": judged.verdict,
        "provisional": offer.is_provisional,
        "reason": reason,
        "opponent": judged.opponent,
        "jobs": judged.n,
        "blocks": judged.blocks,
        "crps_difference_h": judged.difference_h,
        "crps_difference_low_h": judged.low_h,
        "crps_difference_high_h": judged.high_h,
    }


def releases_frame(rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """Make `queue_time_releases`."""
    return frame(QUEUE_TIME_RELEASES, rows)
