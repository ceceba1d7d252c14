"""The start estimate of jobs without a predecessor in the recorded cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from features.observe import AT, FEATURES, RECENT
from models.provisioning.pairs.injected import write_observation
from models.provisioning.pairs.recorded import week_of, week_world
from simulator.cluster import NONE, advance, place_of, visible_state
from simulator.compiled import njit
from simulator.recorded.branch import RecordedBranch, RecordedCluster
from simulator.recorded.record import RecordedTrace
from simulator.recorded.world import Extra
from traces.arrays import Float32s, Int64s
from traces.units import HOUR_S


@njit
def _observe_each(
    cluster: RecordedCluster, branch: RecordedBranch, now: int, first: int, jobs: Int64s, observations: Float32s
) -> None:
    """Write what is seen before each job, rows first, first + 1, ..., is submitted. jobs: (n, 3) nodes, limit, user."""
    advance(cluster, branch, now - 1)
    for k in range(len(jobs)):
        pair = (now, 0, now, jobs[k, 0], jobs[k, 1], jobs[k, 2])
        place = place_of(cluster, branch, first + k, now)
        write_observation(observations[k], visible_state(cluster, branch, now), now, pair, place)


def start_estimates_s(
    record: RecordedTrace, now_s: int, nodes: int, limits_s: Sequence[int], user: int, fit_span_s: int | None
) -> list[float]:
    """The start estimate, s, of a job of each limit submitted at `now_s`, epoch s. As `recorded_waits` takes them."""
    jobs = np.array([(nodes, limit_s, user) for limit_s in limits_s], np.int64)
    extra = Extra(jobs[:, 0], jobs[:, 1], jobs[:, 2], np.full(len(jobs), NONE))
    world, _ = week_world(record, int(week_of(np.array([now_s]))[0]), extra, fit_span_s)
    observations = np.zeros((len(jobs), len(FEATURES)), np.float32)
    cluster: Any = world.clusters[0]
    _observe_each(cluster, world.branch(0, RECENT), now_s, world.first_extra, jobs, observations)
    return [HOUR_S * float(hours) for hours in observations[:, AT.start_estimate_h]]
