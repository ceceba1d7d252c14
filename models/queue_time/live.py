"""Replace the cluster's state at the end of the log by its state in a live Slurm."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from agent.eyes import Eyes
from agent.memory import holds_nodes
from agent.sight import OTHERS_HIDDEN, ClusterObservation, SlurmRequest, asked_partitions
from agent.slurm.commands import Commands, SlurmError
from agent.slurm.queue import SqueueJob
from agent.slurm_time import SlurmTime
from features.submission.index import AHEAD, FEATURES, GROUPS, TALLIED
from features.submission.numbers import PENDING, PENDING_SIZE, RUNNING, RUNNING_SIZE
from features.submission.shape import shapes
from models.queue_time.stored import SEEN, Stored
from traces import instants
from traces.errors import InputError, WorkError

NOW = TALLIED[:5]  # the numbers of a group that are about jobs now running or pending


def look_at_slurm(commands: Commands, stored: Stored, request: SlurmRequest) -> tuple[Stored, str]:
    """`stored` as if the log ended now, and the partition of the request.

    Raises WorkError if Slurm does not answer, InputError for an unknown partition or a log that counts CPUs.
    """
    if stored.manifest["unit"] != "nodes":
        cluster, unit = stored.manifest["cluster"], stored.manifest["unit"]
        raise InputError(f"--live counts nodes, but the log of cluster {cluster!r} counts {unit}; omit --live")
    eyes = Eyes(commands, request)
    try:
        queue = eyes.look(SlurmTime(commands).now_s())
        sight = eyes.newcomer()
        assert eyes.context is not None
        asked = asked_partitions(eyes.context.partitions, request.partition)
    except SlurmError as error:
        raise WorkError(f"--live: {error}") from error
    except ValueError as error:
        raise InputError(f"--live: {error}") from error
    partition = ",".join(one.name for one in asked)
    return seen_live(stored, sight, queue.jobs, request.user, partition), partition


def seen_live(
    stored: Stored, sight: ClusterObservation, jobs: Iterable[SqueueJob], user: str, partition: str
) -> Stored:
    """`stored` with the queue, the nodes and the recent waits of the sight, and each group's running and pending jobs.

    The outcomes of a group's earlier jobs stay as in the log. Hidden features keep their usual values, and the manifest
    names them.
    """
    seen, log = sight.snapshot, stored.manifest
    hidden = {name: why for name, why in sight.hidden.items() if name in FEATURES}
    if OTHERS_HIDDEN in sight.hidden.values():
        of_others = [f"{group}_{name}" for group in GROUPS if group not in ("user", "user_shape") for name in NOW]
        hidden |= dict.fromkeys((*AHEAD, *of_others), OTHERS_HIDDEN)
    behind = len(seen.pending_nodes) - seen.successor_place
    state, oldest_s = _tallied(stored, jobs)
    manifest: dict[str, Any] = {
        **log, "now_s": seen.now_s, "capacity": seen.capacity, "usable": seen.usable, "most_size": seen.capacity,
        "user_max_jobs": seen.user_max_jobs, "user_max_nodes": seen.user_max_nodes,
        "users": {user: seen.successor_user}, "origin_s": seen.now_s, "points_per_hour": None, "hidden": hidden,
        "partitions": {name: longest_s for name, longest_s in log["partitions"].items() if name == partition},
        "live_since_utc": instants.text(log["now_s"]),
    }  # fmt: skip
    return replace(
        stored,
        manifest=manifest,
        seen={name: getattr(seen, name) for name in SEEN},
        pending_key=np.repeat(np.array([0, -1], np.int64), [seen.successor_place, behind]),
        group_state=state,
        group_oldest_s=oldest_s,
    )


def _tallied(stored: Stored, jobs: Iterable[SqueueJob]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The state of the groups with their present jobs, and the submission of each one's oldest pending job."""
    state, oldest_s = stored.group_state.copy(), np.zeros_like(stored.group_oldest_s)
    state[:, [RUNNING, RUNNING_SIZE, PENDING, PENDING_SIZE]] = 0.0
    for job in jobs:
        runs, pends = holds_nodes(job), job.state == "PENDING"
        for row in _groups_of(stored, job) if runs or pends else ():
            state[row, RUNNING if runs else PENDING] += 1
            state[row, RUNNING_SIZE if runs else PENDING_SIZE] += job.nodes
            if pends:
                oldest_s[row] = min(oldest_s[row] or job.submit_s, job.submit_s)
    return state, oldest_s


def _groups_of(stored: Stored, job: SqueueJob) -> list[int]:
    """The rows of the job's groups, if the log has them."""
    shape = str(int(shapes(np.array([job.nodes]), np.array([job.limit_s]))[0]))
    names = {
        "user": job.user, "account": job.account, "partition": job.partition, "qos": job.qos, "shape": shape,
        "user_shape": f"{job.user}\n{shape}", "everybody": "",
    }  # fmt: skip
    known = stored.manifest["groups"]
    places = ((k, known[group].get(names[group])) for k, group in enumerate(GROUPS))
    return [int(stored.group_first[k]) + at for k, at in places if at is not None]
