"""The steps of a release, the same for every kind of model: register a version, make it champion or challenger.

Call them in `models.release.champion.alone`. After a kill between any two writes the next process finishes the release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from models.release.champion import give_alias
from models.release.log import DECISION_TAG, DecisionLog
from models.tracking import exported, versions
from traces.errors import WorkError
from traces.store.folder import DataFolder

CONTENT_TAG = "content_digest"  # of the released content, as a tag of the version
VERDICT_TAG, REASON_TAG = "verdict", "reason"


def registered_once(
    data: DataFolder,
    cluster: str,
    model: str,
    content: str,
    register: Callable[[], int],
    *,
    verdict: Mapping[str, str] | None = None,
    same: Callable[[versions.RegisteredVersion], bool] = lambda _: True,
) -> tuple[int, bool]:
    """The version with this content, and whether it is new: `register` makes it if there is none.

    A version left by a killed process is reused, and gets the newest verdict as tags. same: whether a version with this
    content counts.
    """
    twin = next(filter(same, versions.tagged(data, cluster, CONTENT_TAG, content, model)), None)
    if twin is None:
        return register(), True
    for key, value in (verdict or {}).items():
        if twin.tags.get(key) != value:
            versions.set_version_tag(data, cluster, twin.version, key, value, model)
    return twin.version, False


def make_champion(
    data: DataFolder, log: DecisionLog, row: Mapping[str, Any], made_from: str, opponent: int | None
) -> None:
    """Export the registered version of this decision, give it the decision as a tag, then the alias.

    opponent: the champion that the decision compares with. Raises WorkError if another version is champion now, which
    happens where hosts have no common lock.
    """
    cluster, version = str(row["cluster"]), int(row["registered_version"])
    present = versions.champion(data, cluster, log.model)
    if present is not None and present.version != opponent:
        name = versions.model_name(cluster, log.model)
        raise WorkError(
            f"version {present.version} of {name} became champion during this release; version {version} is kept "
            "and not promoted: run it again to compare with the new champion"
        )
    exported.export(data, cluster, version, log.model)
    tag = log.tag_of(dict(row), made_from)
    versions.set_version_tag(data, cluster, version, DECISION_TAG, tag, log.model)
    give_alias(data, cluster, version, log.model)


def make_challenger(data: DataFolder, cluster: str, version: int, model: str) -> None:
    """Make the version the challenger, unless it already is."""
    present = versions.aliased(data, cluster, versions.CHALLENGER, model)
    if present is None or present.version != version:
        versions.set_alias(data, cluster, versions.CHALLENGER, version, model)
