"""Which version is a cluster's champion: given by hand, by a release, or back again; one process at a time.

MLflow moves an alias, marks a version and keeps the history in single writes. Their order is such that a process killed
between two of them leaves what the next one, whatever it came for, can finish.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

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


@dataclass(frozen=True)
class Decisions:
    """How the decisions about one kind of registered model are logged; a version has its own as a tag."""

    model: str
    # Cluster, version, reason and now: the decision of a person, as a tag.
    tag_by_hand: Callable[[str, tracking.RegisteredVersion, str, datetime], str]
    # Puts the decision that made this version champion into the log, where it is not there yet.
    restore: Callable[[DataFolder, str, tracking.RegisteredVersion], None]


POLICIES = Decisions(tracking.POLICY, release_log.tag_by_hand, release_log.restore)


@contextmanager
def alone(data: DataFolder, cluster: str, of: Decisions = POLICIES) -> Iterator[None]:
    """One process at a time in here, between the look at the registry and the last word about it; may be nested.

    What a killed process left half done is finished first.
    """
    of_policies = of.model == tracking.POLICY
    lock = f"release of {cluster}" if of_policies else f"{of.model} release of {cluster}"
    with locked(data.root, lock), mlflow_store.one_line(data):
        if of_policies:
            tracking.take_over(data, cluster)
        present = tracking.champion(data, cluster, of.model)
        if present is not None:
            of.restore(data, cluster, present)
            version = present.version
            if ROLLED_BACK_TAG in present.tags:
                version = _finish_rollback(data, cluster, version, of.model)
            _follow(data, cluster, version, of.model)
        yield


def promote(data: DataFolder, cluster: str, version: int, reason: str, of: Decisions = POLICIES) -> int:
    """Makes a registered version the champion, whatever the gate said; the reason is logged and kept with the version.

    Raises InputError where it is unknown, WorkError where it cannot be loaded.
    """
    if not reason.strip() or len(reason) > MOST_REASON:
        raise InputError(f"--reason takes 1 to {MOST_REASON} characters, not {len(reason.strip())}: why by hand?")
    with alone(data, cluster, of):
        wanted = tracking.find_version(data, cluster, version, of.model) if version > 0 else None
        if wanted is None:
            known = ", ".join(map(str, tracking.versions(data, cluster, of.model))) or "none"
            raise InputError(f"{tracking.model_name(cluster, of.model)} has no version {version}; registered: {known}")
        export.export(data, cluster, version, of.model)
        tag = of.tag_by_hand(cluster, wanted, " ".join(reason.split()), datetime.now(UTC).replace(tzinfo=None))
        tracking.set_version_tag(data, cluster, version, release_log.DECISION_TAG, tag, of.model)
        give_alias(data, cluster, version, of.model)
        of.restore(data, cluster, replace(wanted, tags={**wanted.tags, release_log.DECISION_TAG: tag}))
    return version


def rollback(data: DataFolder, cluster: str, of: Decisions = POLICIES) -> int:
    """Gives the alias back to the champion before. Returns its version; raises WorkError where there was none."""
    before = _champion(data, cluster, of.model)  # outside: a folder without one is left as it is
    with alone(data, cluster, of):
        present = _champion(data, cluster, of.model)
        if ROLLED_BACK_TAG in before.tags and present.version != before.version:
            return present.version  # the rollback that was asked for once more was killed, and is finished now
        history = _history(data, cluster, present.version, of.model)
        if not history:
            raise WorkError(
                f"version {present.version} of {tracking.model_name(cluster, of.model)} is the first champion: nothing "
                "to roll back to; promote a version instead"
            )
        export.export(data, cluster, history[-1], of.model)
        tracking.set_version_tag(data, cluster, present.version, ROLLED_BACK_TAG, "true", of.model)
        version = _finish_rollback(data, cluster, present.version, of.model)
        export.point(data, cluster, version, of.model)
        return version


def give_alias(data: DataFolder, cluster: str, version: int, model: str = tracking.POLICY) -> None:
    """To be called in `alone`, of an exported version. What a killed process leaves undone here, `alone` does."""
    present = tracking.champion(data, cluster, model)
    if present is not None and present.version != version:
        history = [*_history(data, cluster, present.version, model), present.version]
        tracking.set_model_tag(data, cluster, HISTORY_TAG, json.dumps(history), model)
    tracking.delete_version_tag(data, cluster, version, ROLLED_BACK_TAG, model)
    tracking.set_alias(data, cluster, tracking.CHAMPION, version, model)
    _follow(data, cluster, version, model)


def _follow(data: DataFolder, cluster: str, version: int, model: str) -> None:
    """What follows from the champion's alias: it is no challenger, and its folder is the one that agents read."""
    challenger = tracking.aliased(data, cluster, tracking.CHALLENGER, model)
    if challenger is not None and challenger.version == version:
        tracking.delete_alias(data, cluster, tracking.CHALLENGER, model)
    try:
        export.export(data, cluster, version, model)
    except WorkError as error:  # of a champion that was damaged since: a promotion or a rollback must stay possible
        say(f"warning: {error}")
    else:
        export.point(data, cluster, version, model)


def _champion(data: DataFolder, cluster: str, model: str) -> tracking.RegisteredVersion:
    present = tracking.champion(data, cluster, model)
    if present is None:
        name = tracking.model_name(cluster, model)
        raise WorkError(f"{name} has no champion to roll back from; release a {model} model first")
    return present


def _finish_rollback(data: DataFolder, cluster: str, champion_version: int, model: str) -> int:
    """From a champion that is marked as rolled back to the one before it; returns the champion there is then."""
    history = _history(data, cluster, champion_version, model)
    if not history:
        return champion_version
    tracking.delete_version_tag(data, cluster, history[-1], ROLLED_BACK_TAG, model)
    tracking.set_alias(data, cluster, tracking.CHAMPION, history[-1], model)
    tracking.set_model_tag(data, cluster, HISTORY_TAG, json.dumps(history[:-1]), model)
    return history[-1]


def _history(data: DataFolder, cluster: str, present: int, model: str) -> list[int]:
    """Champions before the present one, the latest last.

    The present one itself at the end is what a process wrote that was killed before it moved the alias.
    """
    stored = tracking.model_tag(data, cluster, HISTORY_TAG, model)
    try:
        history = [int(version) for version in json.loads(stored)] if stored else []
    except (ValueError, TypeError):
        raise WorkError(
            f"tag {HISTORY_TAG!r} of {tracking.model_name(cluster, model)} is {stored!r}, not a list of versions such "
            "as [1, 2]; correct it in MLflow"
        ) from None
    while history and history[-1] == present:
        history.pop()
    return history
