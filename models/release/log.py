"""The log of decisions about the releases of one kind of model, and the tag that holds a decision until the log does.

A release changes both the registry (which version is champion) and the log, and no transaction spans the two. The
version that becomes champion therefore first gets the decision as a tag. If the process is killed before it writes the
log, the next process restores the log from the tag. All of this happens behind the lock of `models.release.champion`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import polars as pl

from features.conventions import BY_HAND, FAILED, PASSED
from models.queue_time.tables import QUEUE_TIME_RELEASES
from models.tables import RELEASE_LOG, frame
from models.tracking import versions as tracking
from models.tracking.address import registry_key
from models.tracking.kinds import POLICY, QUEUE_TIME
from traces import instants
from traces.cache.digests import digest
from traces.errors import InputError, WorkError
from traces.schema import Table
from traces.store import derived
from traces.store.folder import DataFolder

DECISION_TAG = "decision"


@dataclass(frozen=True)
class DecisionLog:
    """The decisions about the releases of one kind of registered model, a table with one row a decision.

    Every table has the columns `cluster`, `registered_version`, `candidate_version`, `verdict`, `provisional` and
    `reason`. `time` is its column with the time of the decision. `made_by` are its columns with the policy or method of
    the version; the first is also a tag of the version. `by_hand` completes the row of a person's decision.
    """

    model: str
    table: Table
    time: str
    made_by: tuple[str, ...]
    by_hand: Mapping[str, Any] = field(default_factory=dict)

    def read(self, data: DataFolder, cluster: str) -> pl.DataFrame:
        """The cluster's decisions, the newest last; empty without any."""
        try:
            log = derived.read(data, self.table.name, cluster)
        except InputError:
            return frame(self.table, [])
        if "verdict" in log.columns:
            return log
        return frame(self.table, [_with_verdict(row) for row in log.iter_rows(named=True)])

    def add(self, data: DataFolder, row: dict[str, Any], made_from: str) -> pl.DataFrame:
        """Add a decision with the digest of its inputs; returns the cluster's log.

        A decision that equals the newest in all but its time replaces it: a killed process had made the same decision.
        """
        cluster, added = str(row["cluster"]), frame(self.table, [row])
        log = self.read(data, cluster)
        if len(log) and log[-1].drop(self.time).equals(added.drop(self.time)):
            log = log[:-1]
        log = pl.concat([log, added]).unique(["cluster", self.time], keep="last").sort(self.time)
        derived.write(data, self.table, cluster, log, _digest(data, made_from, row["registered_version"]))
        return log

    def is_current(self, data: DataFolder, cluster: str, made_from: str) -> bool:
        """Whether the newest decision was made from these inputs, and its champion is still champion.

        After a promotion by hand a new decision is due.
        """
        champion = tracking.champion(data, cluster, self.model)
        expected = _digest(data, made_from, None if champion is None else champion.version)
        return derived.made_from(data, self.table.name, cluster) == expected

    def tag_of(self, row: dict[str, Any], made_from: str) -> str:
        """The decision as a tag of the version that it makes champion."""
        return json.dumps({"row": {**row, self.time: row[self.time].isoformat()}, "made_from": made_from})

    def tag_by_hand(self, cluster: str, version: tracking.RegisteredVersion, reason: str, now: datetime) -> str:
        """A person's decision to make this version champion, as a tag of the version."""
        maker = version.tags.get(self.made_by[0], "unknown")
        row = {
            "cluster": cluster,
            self.time: now,
            "registered_version": version.version,
            "candidate_version": version.version,
            **dict.fromkeys(self.made_by, maker),
            "verdict": BY_HAND,
            "provisional": False,
            "reason": reason,
            **self.by_hand,
        }
        return self.tag_of(row, BY_HAND)

    def decision_of(self, cluster: str, champion: tracking.RegisteredVersion) -> tuple[dict[str, Any], str] | None:
        """The decision that made this version champion, a row of the log, and the digest of its inputs.

        None if it was made champion in MLflow, or by an older version of this program. Raises WorkError if the tag is
        not a decision.
        """
        if DECISION_TAG not in champion.tags:
            return None
        try:
            decision = json.loads(champion.tags[DECISION_TAG])
            row = {**decision["row"], self.time: instants.parse(decision["row"][self.time]), "cluster": cluster}
            row = row if "verdict" in row else _with_verdict(row)
            made_from = str(decision["made_from"])
            frame(self.table, [row])
        except (ValueError, KeyError, TypeError) as error:
            raise WorkError(
                f"tag {DECISION_TAG!r} of {tracking.model_name(cluster, self.model)} version {champion.version} is not "
                f"a decision in this program's format ({type(error).__name__}: {error}); delete the tag in MLflow"
            ) from error
        return row, made_from

    def restore(self, data: DataFolder, cluster: str, champion: tracking.RegisteredVersion) -> None:
        """Add the decision that made this version champion to the log of its cluster, if it is missing.

        A log without a fingerprint means that a process was killed while writing it; the decision is written again.
        """
        decided = self.decision_of(cluster, champion)
        if decided is None:
            return
        row, made_from = decided
        is_whole = derived.made_from(data, self.table.name, cluster) is not None
        if not is_whole or frame(self.table, [row])[self.time][0] not in self.read(data, cluster)[self.time]:
            self.add(data, row, made_from)


def _digest(data: DataFolder, made_from: str, version: int | None) -> str:
    """The digest of a decision's inputs and its champion, a version of the registry in use."""
    return digest(made_from, version, *registry_key(data))


def _with_verdict(row: dict[str, Any]) -> dict[str, Any]:
    """Convert a row from an older version's log, in which a candidate passed or did not."""
    return {**row, "verdict": PASSED if row["passed"] else FAILED, "provisional": False}


POLICY_DECISIONS = DecisionLog(POLICY, RELEASE_LOG, "released_utc", ("policy",))
QUEUE_TIME_DECISIONS = DecisionLog(
    QUEUE_TIME,
    QUEUE_TIME_RELEASES,
    "decided_utc",
    ("method", "champion_method"),
    {"opponent": "", "jobs": 0, "blocks": 0},
)
DECISIONS = {log.model: log for log in (POLICY_DECISIONS, QUEUE_TIME_DECISIONS)}
