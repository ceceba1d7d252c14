"""Which version is a cluster's champion: given by hand, by a release, or back again; one process at a time.

MLflow moves an alias, marks a version and keeps the history in single writes. Their order is such that a process killed
between two of them leaves what the next one, whatever it came for, can finish.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from features.conventions import BY_HAND
from models.release import export
from models.release import log as release_log
from models.tracking import store as mlflow_store
from models.tracking import versions as tracking
from traces.errors import InputError, WorkError
from traces.files.locks import locked
from traces.progress import say
from traces.store.folder import DataFolder

ROLLED_BACK_TAG, HISTORY_TAG = "rolled_back", "champion_history"
MOST_REASON = 500  # characters


@contextmanager
def alone(data: DataFolder, cluster: str) -> Iterator[None]:
    """One process at a time in here, between the look at the registry and the last word about it; may be nested.

    What a killed process left half done is finished first.
    """
    with locked(data.root, f"release of {cluster}"), mlflow_store.one_line(data):
        tracking.take_over(data, cluster)
        present = tracking.champion(data, cluster)
        if present is not None:
            release_log.restore(data, cluster, present)
            version = present.version
            if ROLLED_BACK_TAG in present.tags:
                version = _finish_rollback(data, cluster, version)
            _follow(data, cluster, version)
        yield


def promote(data: DataFolder, cluster: str, version: int, reason: str) -> int:
    """Makes a registered version the champion, whatever the gate said; the reason is logged and kept with the version.

    Raises InputError where it is unknown, WorkError where it cannot be loaded.
    """
    if not reason.strip() or len(reason) > MOST_REASON:
        raise InputError(f"--reason takes 1 to {MOST_REASON} characters, not {len(reason.strip())}: why by hand?")
    with alone(data, cluster):
        wanted = tracking.find_version(data, cluster, version) if version > 0 else None
        if wanted is None:
            known = ", ".join(map(str, tracking.versions(data, cluster))) or "none"
            raise InputError(f"{tracking.model_name(cluster)} has no version {version}; registered: {known}")
        export.export(data, cluster, version)
        row = {
            "cluster": cluster,
            "released_utc": datetime.now(UTC).replace(tzinfo=None),
            "registered_version": version,
            "candidate_version": version,
            "policy": wanted.tags.get("policy", "unknown"),
            "verdict": BY_HAND,
            "provisional": False,
            "reason": " ".join(reason.split()),
        }
        tracking.set_version_tag(data, cluster, version, release_log.DECISION_TAG, release_log.tag_of(row, BY_HAND))
        give_alias(data, cluster, version)
        release_log.add(data, row, BY_HAND)
    return version


def rollback(data: DataFolder, cluster: str) -> int:
    """Gives the alias back to the champion before. Returns its version; raises WorkError where there was none."""
    before = _champion(data, cluster)  # outside: a folder without one is left as it is
    with alone(data, cluster):
        present = _champion(data, cluster)
        if ROLLED_BACK_TAG in before.tags and present.version != before.version:
            return present.version  # the rollback that was asked for once more was killed, and is finished now
        history = _history(data, cluster, present.version)
        if not history:
            raise WorkError(
                f"version {present.version} of {tracking.model_name(cluster)} is the first champion: nothing to roll "
                "back to; promote a version instead"
            )
        export.export(data, cluster, history[-1])
        tracking.set_version_tag(data, cluster, present.version, ROLLED_BACK_TAG, "true")
        version = _finish_rollback(data, cluster, present.version)
        export.point(data, cluster, version)
        return version


def give_alias(data: DataFolder, cluster: str, version: int) -> None:
    """To be called in `alone`, of an exported version. What a killed process leaves undone here, `alone` does."""
    present = tracking.champion(data, cluster)
    if present is not None and present.version != version:
        history = [*_history(data, cluster, present.version), present.version]
        tracking.set_model_tag(data, cluster, HISTORY_TAG, json.dumps(history))
    tracking.delete_version_tag(data, cluster, version, ROLLED_BACK_TAG)
    tracking.set_alias(data, cluster, tracking.CHAMPION, version)
    _follow(data, cluster, version)


def _follow(data: DataFolder, cluster: str, version: int) -> None:
    """What follows from the champion's alias: it is no challenger, and its folder is the one that agents read."""
    challenger = tracking.aliased(data, cluster, tracking.CHALLENGER)
    if challenger is not None and challenger.version == version:
        tracking.delete_alias(data, cluster, tracking.CHALLENGER)
    try:
        export.export(data, cluster, version)
    except WorkError as error:  # of a champion that was damaged since: a promotion or a rollback must stay possible
        say(f"warning: {error}")
    else:
        export.point(data, cluster, version)


def _champion(data: DataFolder, cluster: str) -> tracking.RegisteredVersion:
    present = tracking.champion(data, cluster)
    if present is None:
        raise WorkError(f"{tracking.model_name(cluster)} has no champion to roll back from; release a policy first")
    return present


def _finish_rollback(data: DataFolder, cluster: str, champion_version: int) -> int:
    """From a champion that is marked as rolled back to the one before it; returns the champion there is then."""
    history = _history(data, cluster, champion_version)
    if not history:
        return champion_version
    tracking.delete_version_tag(data, cluster, history[-1], ROLLED_BACK_TAG)
    tracking.set_alias(data, cluster, tracking.CHAMPION, history[-1])
    tracking.set_model_tag(data, cluster, HISTORY_TAG, json.dumps(history[:-1]))
    return history[-1]


def _history(data: DataFolder, cluster: str, present: int) -> list[int]:
    """Champions before the present one, the latest last.

    The present one itself at the end is what a process wrote that was killed before it moved the alias.
    """
    stored = tracking.model_tag(data, cluster, HISTORY_TAG)
    try:
        history = [int(version) for version in json.loads(stored)] if stored else []
    except (ValueError, TypeError):
        raise WorkError(
            f"tag {HISTORY_TAG!r} of {tracking.model_name(cluster)} is {stored!r}, not a list of versions such as "
            "[1, 2]; correct it in MLflow"
        ) from None
    while history and history[-1] == present:
        history.pop()
    return history
