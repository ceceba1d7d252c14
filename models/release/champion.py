"""Set a cluster's champion: by hand, by a release, or by a rollback; one process at a time.

MLflow moves an alias, marks a version and stores the history in single writes. They are ordered so that after a kill
between two of them, the next process, whatever its task, can finish.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

from models.release.log import DECISION_TAG, DECISIONS, POLICY_DECISIONS, DecisionLog
from models.tracking import exported as export
from models.tracking import registered, remote
from models.tracking import store as mlflow_store
from models.tracking import versions as tracking
from models.tracking.address import tracking_server
from models.tracking.kinds import POLICY
from traces.errors import InputError, WorkError
from traces.files.locks import locked
from traces.progress import say
from traces.store.folder import DataFolder

ROLLED_BACK_TAG, HISTORY_TAG = "rolled_back", "champion_history"
MOST_REASON = 500  # characters


@contextmanager
def alone(data: DataFolder, cluster: str, decisions: DecisionLog = POLICY_DECISIONS) -> Iterator[None]:
    """Run one process at a time, from reading the registry to the last write; may be nested.

    Hosts with data folders of their own exclude each other only if they declare a Postgres for locks
    (`models.tracking.remote`). A change that a killed process left half done is finished first, and its open runs are
    closed.
    """
    of_policies = decisions.model == POLICY
    lock = f"release of {cluster}" if of_policies else f"{decisions.model} release of {cluster}"
    across = remote.locked_across_hosts(data, lock)
    with locked(data.root, lock), across, mlflow_store.errors_on_one_line(data):
        mlflow_store.settle(data)
        if of_policies:
            tracking.take_over(data, cluster)
        present = tracking.champion(data, cluster, decisions.model)
        if present is not None:
            decisions.restore(data, cluster, present)
            version = present.version
            if ROLLED_BACK_TAG in present.tags:
                version = _finish_rollback(data, cluster, version, decisions.model)
            _follow(data, cluster, version, decisions.model)
        yield


def fetch_champions(data: DataFolder, cluster: str) -> None:
    """Fetch the cluster's champions from the server, where another host may have changed them. Nothing without one."""
    if tracking_server(data) is not None:
        for decisions in DECISIONS.values():
            with alone(data, cluster, decisions):
                pass


def promote(
    data: DataFolder, cluster: str, version: int, reason: str, decisions: DecisionLog = POLICY_DECISIONS
) -> int:
    """Make a registered version the champion, whatever the gate's verdict. The reason is logged and stored with it.

    Raises InputError for an unknown version, WorkError for one that cannot be loaded.
    """
    if not reason.strip() or len(reason) > MOST_REASON:
        raise InputError(
            f"--reason has {len(reason.strip())} characters; give 1 to {MOST_REASON} to explain the choice"
        )
    with alone(data, cluster, decisions):
        wanted = tracking.find_version(data, cluster, version, decisions.model) if version > 0 else None
        if wanted is None:
            known = ", ".join(map(str, tracking.versions(data, cluster, decisions.model))) or "none"
            name = tracking.model_name(cluster, decisions.model)
            raise InputError(f"{name} has no version {version}; registered: {known}")
        export.export(data, cluster, version, decisions.model)
        tag = decisions.tag_by_hand(cluster, wanted, " ".join(reason.split()), datetime.now(UTC).replace(tzinfo=None))
        tracking.set_version_tag(data, cluster, version, DECISION_TAG, tag, decisions.model)
        give_alias(data, cluster, version, decisions.model)
        decisions.restore(data, cluster, replace(wanted, tags={**wanted.tags, DECISION_TAG: tag}))
    return version


def rollback(data: DataFolder, cluster: str, decisions: DecisionLog = POLICY_DECISIONS) -> int:
    """Give the alias back to the previous champion; returns its version.

    Raises WorkError if there is none, or if another process changed the champion while this one waited.
    """
    before = _champion(data, cluster, decisions.model)  # before the lock: without one, change nothing
    with alone(data, cluster, decisions):
        present = _champion(data, cluster, decisions.model)
        if ROLLED_BACK_TAG in before.tags and present.version != before.version:
            return present.version  # a killed process had begun this rollback, and it is finished now
        if present.version != before.version:
            name = tracking.model_name(cluster, decisions.model)
            raise WorkError(
                f"while this rollback waited, version {present.version} of {name} became champion in place of version "
                f"{before.version}; nothing is rolled back: run it again to roll back the new champion"
            )
        history = _history(data, cluster, present.version, decisions.model)
        if not history:
            raise WorkError(
                f"version {present.version} of {tracking.model_name(cluster, decisions.model)} is the first champion; "
                "there is nothing to roll back to; promote a version instead"
            )
        export.export(data, cluster, history[-1], decisions.model)
        tracking.set_version_tag(data, cluster, present.version, ROLLED_BACK_TAG, "true", decisions.model)
        version = _finish_rollback(data, cluster, present.version, decisions.model)
        export.point(data, cluster, version, decisions.model)
        return version


def give_alias(data: DataFolder, cluster: str, version: int, model: str = POLICY) -> None:
    """Give the champion's alias to an exported version. Call it in `alone`, which finishes it after a kill."""
    remote.check_locks()
    present = tracking.champion(data, cluster, model)
    if present is not None and present.version != version:
        history = [*_history(data, cluster, present.version, model), present.version]
        tracking.set_model_tag(data, cluster, HISTORY_TAG, json.dumps(history), model)
    tracking.delete_version_tag(data, cluster, version, ROLLED_BACK_TAG, model)
    tracking.set_alias(data, cluster, registered.CHAMPION, version, model)
    _follow(data, cluster, version, model)


def _follow(data: DataFolder, cluster: str, version: int, model: str) -> None:
    """Update what depends on the alias: the champion is no challenger, and its folder is the one that agents read."""
    challenger = tracking.aliased(data, cluster, tracking.CHALLENGER, model)
    if challenger is not None and challenger.version == version:
        tracking.delete_alias(data, cluster, tracking.CHALLENGER, model)
    try:
        export.export(data, cluster, version, model)
    except WorkError as error:  # the champion is damaged; a promotion or a rollback must stay possible
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
    """Give the alias of a champion marked as rolled back to the one before it; returns the champion's version."""
    history = _history(data, cluster, champion_version, model)
    if not history:
        return champion_version
    remote.check_locks()
    tracking.delete_version_tag(data, cluster, history[-1], ROLLED_BACK_TAG, model)
    tracking.set_alias(data, cluster, registered.CHAMPION, history[-1], model)
    tracking.set_model_tag(data, cluster, HISTORY_TAG, json.dumps(history[:-1]), model)
    return history[-1]


def _history(data: DataFolder, cluster: str, present: int, model: str) -> list[int]:
    """Earlier champions, the latest last.

    The present champion is at the end if a process was killed between writing the history and moving the alias.
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
