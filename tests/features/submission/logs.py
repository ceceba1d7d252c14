"""A generated log: jobs of a few users on ten nodes, some cancelled in the queue, several in one second."""

from __future__ import annotations

import numpy as np

from features.submission.log import NODES, SubmissionLog
from simulator.recorded.free import free_starts
from simulator.recorded.record import NEVER, RecordedTrace
from simulator.recorded.state import RecordedRules
from tests.simulator.recorded.cases import jobs_of
from traces.units import DAY_S

ORIGIN_S = 1_700_000_000


def generated_log(seed: int = 0, jobs: int = 300, days: int = 12) -> SubmissionLog:
    """First come, first served on ten nodes, so that waits follow from the queue; one in 15 is withdrawn from it."""
    rng = np.random.default_rng(seed)
    submit = ORIGIN_S + np.sort(rng.integers(0, days * DAY_S, jobs) // 30 * 30)
    run = np.minimum(rng.lognormal(8.5, 1.3, jobs).astype(np.int64) + 1, 86_000)
    limit = np.maximum(run, rng.choice([3600, 6 * 3600, DAY_S], jobs))
    size, user = rng.choice([1, 1, 2, 4], jobs), rng.integers(0, 7, jobs)
    none = np.zeros(jobs, np.int64)
    keys = [str(k) for k in range(jobs)]
    record = RecordedTrace(submit, submit, submit + run, size, limit, user, none, keys)
    start = free_starts(record, jobs_of(record), RecordedRules(10, 0, 0, NEVER, NEVER, 0, 0), np.array([10], np.int64))
    withdrawn = (rng.random(jobs) < 1 / 15) & (start > submit)
    end = np.where(withdrawn, (submit + start) // 2, start + run)
    record = RecordedTrace(submit, np.where(withdrawn, NEVER, start), end, size, limit, user, none, keys)
    return of_record(record, rng)


def of_record(record: RecordedTrace, rng: np.random.Generator) -> SubmissionLog:
    """The record with accounts, two partitions and a QOS each."""
    jobs = len(record)
    names = {
        "user": [f"u{one}" for one in record.user],
        "account": [f"a{one % 3}" for one in record.user],
        "partition": [f"p{one}" for one in rng.integers(0, 2, jobs)],
        "qos": ["normal"] * jobs,
    }
    asked = np.stack([record.size * 8.0, record.size * 4.0, np.ones(jobs), np.zeros(jobs), np.zeros(jobs)], axis=1)
    return SubmissionLog(record, NODES, names, asked)
