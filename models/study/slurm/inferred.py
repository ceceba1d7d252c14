"""A world for a cluster of which only the job log is known: Slurm with limits and priorities inferred from the log.

The inferred parameters (`simulator.recorded.parameters`) become settings of a slurm.conf and a QOS:

- running jobs per user: MaxJobsPerUser of the partition's QOS;
- nodes per user: MaxTRESPerUser=node of the QOS of each job that is no wider. The recorded rule lets a single wider
  job run, but Slurm would not, so wider jobs have a QOS without that limit and do not count in it;
- points per hour: PriorityWeightAge over a year, with the recorded Priority as the rest of each job's priority. Without
  growing priorities the order is first come, first served.

Usable nodes, holds, siblings and nodes out of service are rules of the recorded world that are not settings of Slurm.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.recorded.parameters import Parameters
from simulator.recorded.record import NEVER as NOT_YET
from simulator.recorded.record import RecordedTrace
from simulator.slurm import world as w
from simulator.slurm.inputs.cluster import YEAR_S
from simulator.slurm.inputs.jobs import Loaded
from simulator.slurm.inputs.submitted import Submitter
from traces.units import HOUR_S

USUAL_JOBS = 1000  # latest arrivals, whose median Priority a new user's jobs get
OF_THE_PARTITION, WITHIN, WIDER = 0, 1, 2  # rows of its QOS


def from_record(record: RecordedTrace, parameters: Parameters, nodes: int, pair_nodes: int) -> Loaded:
    """The record's jobs on `nodes` whole nodes, and a new user with jobs of `pair_nodes` at the usual priority.

    A job that was withdrawn from the queue waits until then; one that has not ended yet runs to its limit.
    """
    count, users = len(record), record.users
    ran, open_ = record.ran, record.end_s >= NOT_YET
    within_nodes = w.NEVER if parameters.max_nodes is None else parameters.max_nodes
    growth = parameters.points_per_hour
    jobs = w.plain_jobs(
        record.submit_s,
        np.where(open_, record.limit_s, np.where(ran, record.end_s - record.start_s, 0)),
        record.limit_s,
        record.size,
        cancel_s=np.where(ran | open_, w.NEVER, record.end_s),
        qos=np.where(record.size > within_nodes, WIDER, WITHIN),
        user=record.user,
        association=record.user + 1,
        site_factor=np.zeros(count) if growth is None else record.priority.astype(np.float64),
        pinned_s=np.where(ran, record.start_s, w.NEVER),
    )
    settings = w.SlurmSettings()
    if growth is not None:
        settings = replace(settings, weight_age=round(growth * YEAR_S / HOUR_S), max_age_s=YEAR_S)
    world = w.flat_world(jobs, nodes, settings, qos=_qos(parameters), users=users + 1)
    world = replace(world, partitions=replace(world.partitions, qos=np.array([OF_THE_PARTITION], np.int64)))
    usual = record.priority[record.submit_s < parameters.until_s][-USUAL_JOBS:]
    factor = 0.0 if growth is None or not len(usual) else float(np.median(usual))
    submitter = Submitter(0, WIDER if pair_nodes > within_nodes else WITHIN, users, users + 1, factor)
    return Loaded(world, tuple(record.job_key), np.zeros(count, np.int64), (), {}, submitter)


def inferred_limits_sentence(parameters: Parameters) -> str:
    """Describe the inferred parameters in a sentence."""
    growth = parameters.points_per_hour
    most = ((parameters.max_jobs, "running jobs"), (parameters.max_nodes, "nodes"))
    limits = [f"{number} {what} a user" for number, what in most if number is not None]
    order = "first come, first served" if growth is None else f"recorded priorities that grow by {growth:.3g} an hour"
    return f"{', '.join(limits) or 'no limit on users'}; {order}"


def _qos(parameters: Parameters) -> w.SlurmQos:
    """QOS of the partition, of the jobs within the limit on nodes, and of the jobs wider than it."""
    one = w.no_qos()
    three = {name: np.repeat(getattr(one, name), 3, axis=0) for name in one.__dataclass_fields__ if name != "names"}
    three["preempts"] = np.zeros((3, 3), bool)
    if parameters.max_jobs is not None:
        three["user_jobs"][OF_THE_PARTITION] = parameters.max_jobs
    if parameters.max_nodes is not None:
        three["user_tres"][WITHIN, w.NODE] = parameters.max_nodes
    return w.SlurmQos(names=("all", "within", "wider"), **three)
