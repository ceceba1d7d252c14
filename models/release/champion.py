"""Which version is champion: given by hand, by a release, or back again; one process at a time.

MLflow moves the alias, marks versions and keeps the history in single writes. Their order is such that a process killed
between two of them leaves what the next one, whatever it came for, can finish.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from models.release import log as release_log
from models.tracking import store as mlflow_store
from models.tracking import versions as tracking
from traces.errors import InputError, WorkError
from traces.files.locks import locked
from traces.store.folder import DataFolder

ROLLED_BACK_TAG, HISTORY_TAG = "rolled_back", "champion_history"


@contextmanager
def alone(data: DataFolder) -> Iterator[None]:
    """One process at a time in here, between the look at the registry and the last word about it; may be nested.

    What a killed process left half done is finished first.
    """
    with locked(data.root, "release"), mlflow_store.one_line(data):
        present = tracking.champion(data)
        if present is not None:
            release_log.restore(data, present)
            if ROLLED_BACK_TAG in present.tags:
                _finish_rollback(data, present.version)
        yield


def promote(data: DataFolder, version: int) -> int:
    """Gives the champion alias to a registered version, whatever the gate said. Raises InputError where unknown."""
    wanted = tracking.find_version(data, version) if version > 0 else None
    if wanted is None:
        known = ", ".join(map(str, tracking.versions(data))) or "none"
        raise InputError(f"{tracking.MODEL_NAME} has no version {version}; registered: {known}")
    with alone(data):
        present = tracking.champion(data)
        if present is None or present.version != version:  # by hand, and not by the decision that it may carry
            tracking.delete_version_tag(data, version, release_log.DECISION_TAG)
        give_alias(data, version)
    return version


def rollback(data: DataFolder) -> int:
    """Gives the alias back to the champion before. Returns its version; raises WorkError where there was none."""
    before = _champion(data)  # outside: a folder without one is left as it is
    with alone(data):
        present = _champion(data)
        if ROLLED_BACK_TAG in before.tags and present.version != before.version:
            return present.version  # the rollback that was asked for once more was killed, and is finished now
        if not _history(data, present.version):
            raise WorkError(
                f"version {present.version} of {tracking.MODEL_NAME} is the first champion: nothing to roll back to; "
                "promote a version instead"
            )
        tracking.set_version_tag(data, present.version, ROLLED_BACK_TAG, "true")
        return _finish_rollback(data, present.version)


def give_alias(data: DataFolder, version: int) -> None:
    """To be called in `alone`. A process killed before the last write has changed nothing that counts."""
    present = tracking.champion(data)
    if present is not None and present.version != version:
        history = [*_history(data, present.version), present.version]
        tracking.set_model_tag(data, HISTORY_TAG, json.dumps(history))
    tracking.delete_version_tag(data, version, ROLLED_BACK_TAG)
    tracking.set_champion(data, version)


def _champion(data: DataFolder) -> tracking.RegisteredVersion:
    present = tracking.champion(data)
    if present is None:
        raise WorkError(f"{tracking.MODEL_NAME} has no champion to roll back from; release a policy first")
    return present


def _finish_rollback(data: DataFolder, champion_version: int) -> int:
    """From a champion that is marked as rolled back to the one before it; returns the champion there is then."""
    history = _history(data, champion_version)
    if not history:
        return champion_version
    tracking.delete_version_tag(data, history[-1], ROLLED_BACK_TAG)
    tracking.set_champion(data, history[-1])
    tracking.set_model_tag(data, HISTORY_TAG, json.dumps(history[:-1]))
    return history[-1]


def _history(data: DataFolder, present: int) -> list[int]:
    """Champions before the present one, the latest last.

    The present one itself at the end is what a process wrote that was killed before it moved the alias.
    """
    stored = tracking.model_tag(data, HISTORY_TAG)
    try:
        history = [int(version) for version in json.loads(stored)] if stored else []
    except (ValueError, TypeError):
        raise WorkError(
            f"tag {HISTORY_TAG!r} of {tracking.MODEL_NAME} is {stored!r}, not a list of versions such as [1, 2]; "
            "correct it in MLflow"
        ) from None
    while history and history[-1] == present:
        history.pop()
    return history
