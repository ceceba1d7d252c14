"""The observations of all jobs of a log at their submissions, from one compiled pass over the recorded world.

Until a job is submitted, the cluster is as the log shows it and as `simulator.recorded` interprets it: overtaken
pending jobs count as held, and the most nodes in use over three days count as usable. The rules on users and the growth
of priorities are inferred from the record before one instant and are the same for every row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from features import observe
from features.snapshot import world_snapshot
from features.submission import index
from features.submission.index import FEATURES, TALLIED_AT, SubmissionRequest
from features.submission.log import SubmissionLog
from features.submission.tally import tallies
from simulator.cluster import Visible, visible_state
from simulator.compiled import njit
from simulator.recorded.branch import (
    RecordedBranch,
    RecordedCluster,
    advance,
    new_branch,
    new_cluster,
    until_submission,
)
from simulator.recorded.calibration.judge import ALL
from simulator.recorded.parameters import Parameters, jobs_of, rules_of
from simulator.recorded.record import NONE, events
from simulator.recorded.state import PENDING, goes_ahead
from simulator.recorded.world import build as build  # importing it implements `visible_state` for the recorded cluster
from traces.arrays import Float32s, Float64s, Int64s

for _function in (world_snapshot, *observe.CALLED_BY_FILL, *index.CALLED_BY_FILL):
    register_jitable(_function)
_fill = njit(index.fill_submission)


def observe_log(log: SubmissionLog, parameters: Parameters, wanted: NDArray[np.bool_]) -> Float32s:
    """Observe each wanted job at its submission: float32, (wanted jobs, len(FEATURES)), in the order of the record.

    No row depends on what was recorded after its submission. `parameters` are inferred from the record before the
    instant of the fit.
    """
    record = log.record
    out = np.zeros((int(wanted.sum()), len(FEATURES)), np.float32)
    if not len(out):
        return out
    happened = events(record)
    jobs = jobs_of(record, parameters.points_per_hour)
    cluster = new_cluster(record, happened, jobs, rules_of(parameters, ALL))
    branch = new_branch(cluster, observe.RECENT)
    _follow(cluster, branch, np.flatnonzero(wanted), log.asked, out)
    out[:, TALLIED_AT:] = tallies(record, happened, log.group_codes, wanted)
    return out


class Present(NamedTuple):
    """The cluster at the last event of its log, for predictions of hypothetical jobs."""

    now_s: int
    seen: Visible
    pending_key: Int64s  # (pending,) place in the queue, by falling key
    origin_s: int  # a job submitted at t with priority p has the key 3600 p - points x (t - origin), or origin - t
    points_per_hour: float | None


def present_cluster(log: SubmissionLog, parameters: Parameters) -> Present:
    """Rebuild the cluster right after the submission of the last job of the log."""
    record = log.record
    jobs = jobs_of(record, parameters.points_per_hour)
    cluster = new_cluster(record, events(record), jobs, rules_of(parameters, ALL))
    branch = new_branch(cluster, observe.RECENT)
    now = int(record.submit_s[-1])
    advance(cluster, branch, now, NONE)
    seen = visible_state(cluster, branch, now + 1)
    pending = branch.state.pending[: branch.state.scalars[PENDING]]
    arrays = (field.copy() if isinstance(field, np.ndarray) else int(field) for field in seen)
    return Present(
        now + 1,
        Visible(*arrays),  # type: ignore[arg-type]
        branch.state.key[pending].copy(),
        int(record.submit_s.min()),
        parameters.points_per_hour,
    )


@njit
def _follow(cluster: RecordedCluster, branch: RecordedBranch, rows: Int64s, asked: Float64s, out: Float32s) -> None:
    """Replay the log up to the submission of each of `rows` (rising), and write the observation there."""
    state = branch.state
    for i in range(len(rows)):
        job = rows[i]
        now = cluster.jobs.submit_s[job]
        until_submission(cluster, branch, job)
        place = 0
        while place < state.scalars[PENDING] and goes_ahead(state, state.pending[place], job):
            place += 1
        of_job = (now, 0, now, cluster.jobs.size[job], cluster.jobs.limit_s[job], cluster.jobs.user[job])
        snapshot = world_snapshot(visible_state(cluster, branch, now), now, of_job, place)  # there is no predecessor
        request = SubmissionRequest(asked[job, 0], asked[job, 1], asked[job, 2], asked[job, 3], asked[job, 4])
        _fill(out[i], snapshot, request)
