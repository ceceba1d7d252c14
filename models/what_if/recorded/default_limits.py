"""Another default time limit: `default_limit=4h`, `default_limit.partition.gpu=4h@24h` (from 24h now to 4h).

A log does not show whether a job asked for its limit or got the default (`DefaultTime`, else `MaxTime`: slurm.conf(5)).
A job with the present default as its limit is taken as having the default.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from models.what_if.changes import limit_of
from models.what_if.recorded.scene import RecordedScene, with_assumption
from traces.arrays import Bools
from traces.counted import counted
from traces.errors import InputError
from traces.slurm.conf import PartitionConf, SlurmConf
from traces.units import HOUR_S

MOST_S = 60 * (2**32 - 3)  # slurm.conf holds minutes in 32 bits, of which the last values have other meanings


class DefaultLimit(NamedTuple):
    """The value of the change, s: the new default, and the present one if it is written behind the @."""

    new_s: int  # whole minutes, as Slurm counts
    present_s: int | None


def default_limit_of(dimension: str, value: str, change: str) -> DefaultLimit:
    """Parse the change. Raises InputError."""
    if dimension not in ("", "partition"):
        raise InputError(f"change {change!r}: a default limit is that of a partition, not of a {dimension[:40]}")
    times = [part.strip() for part in value.split("@")]
    seconds = [limit_of(part, change) for part in times]
    if len(times) > 2 or max(seconds) > MOST_S or seconds[1:] == seconds[:1]:
        raise InputError(f"change {change!r}: write another default limit and the present one, as in 4h@24h")
    return DefaultLimit(60 * math.ceil(seconds[0] / 60), int(seconds[1]) if len(times) == 2 else None)


def partitions_with_default(conf: SlurmConf, who: str, new_s: int, change: str) -> list[PartitionConf]:
    """Return the partition `who` ("": all) if its default changes: it has another, and its MaxTime allows the new one.

    Raises InputError if there is none.
    """
    rows = [one for one in conf.partitions if who in ("", one.name)]
    if not rows:
        names = ", ".join(one.name for one in conf.partitions)
        raise InputError(f"change {change[:80]!r}: {conf.path} has no partition {who[:60]!r} (known: {names})")
    changed = [one for one in rows if one.default_time_s != new_s and new_s <= (one.max_time_s or math.inf)]
    if not changed:
        raise InputError(
            f"change {change!r}: {conf.path} has this DefaultTime already, or a shorter MaxTime, under which Slurm "
            "ignores it"
        )
    return changed


def with_default_limit(
    scene: RecordedScene, jobs: Bools, dimension: str, who: str, value: str, change: str
) -> RecordedScene:
    """The scene with another default limit of the concerned jobs.

    Jobs that ran no longer than it get it; the others would have asked for the limit that they have. Raises InputError
    if no job of the window has the present default as its limit.
    """
    limit = default_limit_of(dimension, value, change)
    presents: dict[str, int | None] = {who: limit.present_s}
    if limit.present_s is None:
        if scene.conf is None:
            raise InputError(
                f"change {change!r}: the present default is not known: declare a slurm.conf, or write it behind an @, "
                "as in 4h@24h"
            )
        rows = partitions_with_default(scene.conf, who, limit.new_s, change)
        presents = {one.name: one.default_time_s or one.max_time_s for one in rows}
    of_default = np.zeros(len(scene.record), np.bool_)
    for name, present_s in presents.items():
        inside = (scene.about["partition"] == name).fill_null(value=False).to_numpy() if name else jobs
        of_default |= inside & (scene.record.limit_s == (present_s or -1))
    if not (of_default & scene.judged).any():
        known = (
            ", ".join(f"{seconds / HOUR_S:g} h" for seconds in dict.fromkeys(presents.values()) if seconds)
            or "UNLIMITED"
        )
        raise InputError(f"change {change!r}: no job of the window has the present default, {known}, as its limit")
    short = of_default & (~scene.record.ran | (scene.run_s <= limit.new_s))
    is_lowered = scene.limit_s < scene.record.limit_s  # by a change before this one
    new_s = np.where(is_lowered, np.minimum(limit.new_s, scene.limit_s), limit.new_s)
    kept = of_default & ~short & scene.judged
    return with_assumption(
        replace(scene, limit_s=np.where(short, new_s, scene.limit_s)),
        f"{change}: {counted(int((short & scene.judged).sum()), 'job')} with the present default as limit get the new "
        f"one; {counted(int(kept.sum()), 'job')} that ran longer would ask for the present one",
    )
