"""What an administrator types for recommended changes, with the evidence, and their effect in a declared Slurm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from models.study.slurm.files import declared
from models.what_if.advice.conf_text import LineOfIncludedFile, applied, unified
from models.what_if.advice.declared import compare_declared
from models.what_if.advice.slurm_diff import slurm_diff
from models.what_if.recorded.changes import TOGETHER
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.store.folder import DataFolder

_NEEDS_FILES = ("conf.", "merge.partition.", "partition.")  # changes of which the recorded cluster shows nothing


def to_do(
    data: DataFolder, settings: ClusterSettings, changes: Sequence[str], evidence: str, window: tuple[int, int]
) -> dict[str, Any]:
    """Return lines for slurm.conf, `sacctmgr` commands, and `declared`: the effect under the cluster's own files.

    With a declared slurm.conf (`slurm_conf` in clusters.toml) the lines are a unified diff of it, and the jobs of the
    window (epoch s) are simulated under the files before and after it (`compare_declared`). Else they are single
    settings, and `declared` is None, as it is for changes that no setting makes and for files that contradict the log.
    """
    files, effect, failed = declared(data, settings), None, list[str]()
    if files is None:
        diff = slurm_diff(changes)
        lines = [edit.text for edit in diff.conf]
    else:
        qos = files.read_qos()
        diff = slurm_diff(changes, files.conf, None if qos is None else qos.rows)
        before = _text(Path(files.conf.path))
        try:
            lines = unified(before, applied(before, diff.conf)).splitlines()
        except LineOfIncludedFile as error:
            failed.append(str(error))
            lines = [edit.text for edit in diff.conf]
        if diff.conf or diff.accounts or diff.moves:
            try:
                effect = compare_declared(files, diff, window)
            except InputError as error:  # the files contradict the log, or are too few
                failed.append(f"not simulated under the declared files: {error}")
    comments = [f"# {line}" for line in (evidence, *diff.by_hand, *diff.remarks, *failed)]
    return {
        "slurm_conf": [*comments, *lines],
        "commands": [edit.text for edit in diff.accounts],
        "declared": effect,
    }


def declared_effects(
    data: DataFolder, settings: ClusterSettings, changes: Sequence[str], window: tuple[int, int]
) -> list[dict[str, Any]]:
    """Return for each change what to type and its effect under the declared files; empty without a slurm.conf.

    `declared` is None for a change that no setting makes. Raises InputError for files that cannot be read, and for a
    name that they cannot hold; without a slurm.conf, for a change of a setting of it.
    """
    if declared(data, settings) is None:
        for change in changes:
            if any(part.strip().startswith(_NEEDS_FILES) for part in change.split(TOGETHER)):
                raise InputError(
                    f"change {change[:80]!r} needs the cluster's slurm.conf: name it as slurm_conf in clusters.toml"
                )
        return []
    return [
        {"change": change, **to_do(data, settings, [change], f"baton whatif: {change}", window)} for change in changes
    ]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
