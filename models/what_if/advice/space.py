"""The changes that an administrator may make, as choices of the search. Every choice may leave the cluster as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from models.what_if.recorded.changes import TOGETHER
from models.what_if.recorded.scene import RecordedScene
from simulator.recorded.record import NEVER
from traces.errors import InputError
from traces.units import HOUR_S

KEEP = "keep"  # no change
AGE = (0.25, 0.5, 2.0, 4.0, 8.0)  # factors on the age weight
SIZE_H = (-24, -6, 6, 24)  # hours of waiting that a job of the whole machine gains
BONUS_H = (2, 6, 12, 24)  # hours of waiting that a QOS gives
LIMIT_SHARES = (0.25, 0.5, 0.75)  # of the jobs, whose limits a QOS for short jobs includes
NODE_SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2)  # of the machine, that a user may hold
USER_JOBS = (2, 4, 8, 16, 32)
DEPTHS, USER_DEPTHS = (20, 50, 100, 200), (2, 5, 10)
WINDOWS_H = (12, 24, 48, 96)


class Choice(NamedTuple):
    """One setting: its name in the search, and the changes to choose from; the first is KEEP."""

    name: str
    changes: tuple[str, ...]


def choices(scene: RecordedScene, may: Sequence[str]) -> list[Choice]:
    """Return the choices of the named areas, for this cluster. Raises InputError for an unknown area, and for none.

    Limits that no job or user of the window reaches are left out, as are points where the log holds no priorities.
    """
    unknown = [area for area in may if area not in AREAS]
    if unknown:
        raise InputError(f"--may {unknown[0][:40]!r} is unknown: known are {', '.join(AREAS)}")
    found = [choice for area in dict.fromkeys(may) for choice in AREAS[area](scene) if len(choice.changes) > 1]
    if not found:
        raise InputError(f"--may {','.join(may)} allows no change in this cluster; allow more of {', '.join(AREAS)}")
    return found


def joined_changes(changes: Sequence[str]) -> str:
    """Write the changes as one, in the notation of `baton whatif`; empty without any."""
    return TOGETHER.join(change for change in changes if change != KEEP)


def _weights(scene: RecordedScene) -> list[Choice]:
    slopes = [stretch.points_per_hour for stretch in scene.daily if stretch.points_per_hour is not None]
    if len(slopes) < len(scene.daily):
        return []
    points = float(np.median(slopes))
    return [
        Choice("age", (KEEP, *(f"priority.age={factor:g}" for factor in AGE))),
        Choice("size", (KEEP, *(f"priority.size={hours * points:+.0f}" for hours in SIZE_H))),
    ]


def _qos(scene: RecordedScene) -> list[Choice]:
    limits_h = np.unique(np.ceil(np.quantile(scene.limit_s[scene.judged], LIMIT_SHARES) / HOUR_S)).astype(int)
    longest_h = scene.limit_s[scene.judged].max() / HOUR_S
    short = [f"priority.limit.{limit}h=+{hours}h" for limit in limits_h if limit < longest_h for hours in BONUS_H]
    is_mixed = len(np.unique(scene.record.size[scene.judged])) > 1
    small = [f"priority.nodes.1=+{hours}h" for hours in BONUS_H] if is_mixed else []
    return [Choice("short", (KEEP, *short)), Choice("small", (KEEP, *small))]


def _limits(scene: RecordedScene) -> list[Choice]:
    now = min((stretch.rules.max_jobs for stretch in scene.daily), default=NEVER)
    most = int(np.bincount(scene.record.user[scene.judged]).max())
    jobs = [f"max_jobs={count}" for count in USER_JOBS if count <= most and count != now]
    nodes = {max(round(share * scene.most_nodes), 1) for share in NODE_SHARES}
    return [
        Choice("jobs", (KEEP, *jobs)),
        Choice("nodes", (KEEP, *(f"max_nodes={count}" for count in sorted(nodes)))),
    ]


def _backfill(_scene: RecordedScene) -> list[Choice]:
    return [
        Choice("depth", (KEEP, *(f"backfill.depth={depth}" for depth in DEPTHS))),
        Choice("user", (KEEP, *(f"backfill.user={depth}" for depth in USER_DEPTHS))),
        Choice("window", (KEEP, *(f"backfill.window={hours}h" for hours in WINDOWS_H))),
    ]


AREAS = {"weights": _weights, "backfill": _backfill, "limits": _limits, "qos": _qos}
