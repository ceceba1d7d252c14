"""`features.submission.tally` in obvious Python: of each job, everything counted again from the record."""

from __future__ import annotations

import math

import numpy as np

from features.submission.numbers import HALF_LIFE_S, SINCE_MOST_H
from features.submission.tally import REMEMBERED
from simulator.recorded.record import NEVER, RecordedTrace
from traces.arrays import Int64s


def plain_tallies(record: RecordedTrace, code: Int64s, wanted: np.ndarray) -> np.ndarray:
    """(wanted jobs, groups x numbers) by going through all jobs of each group for each wanted job."""
    rows = []
    for job in np.flatnonzero(wanted):
        row: list[float] = []
        for group in range(code.shape[1]):
            row += numbers(record, np.flatnonzero(code[:, group] == code[job, group]), int(job))
        rows.append(row)
    return np.array(rows, np.float32)


def running_mean(values: list[float]) -> float:
    mean = values[0]
    for value in values[1:]:
        mean = REMEMBERED * mean + (1 - REMEMBERED) * value
    return mean


def numbers(record: RecordedTrace, members: Int64s, job: int) -> list[float]:
    """Of one group at the submission of one job, in the order of TALLIED."""
    now = int(record.submit_s[job])

    def waits(of: list[int]) -> list[float]:
        known = sorted((j for j in of if record.start_s[j] < now), key=lambda j: (record.start_s[j], j))
        return [math.log(1 + record.start_s[j] - record.submit_s[j]) for j in known]

    def uses(of: list[int]) -> list[float]:
        ended = [j for j in of if record.start_s[j] < NEVER and record.end_s[j] <= now]
        ended.sort(key=lambda j: (record.end_s[j], j))
        return [min((record.end_s[j] - record.start_s[j]) / record.limit_s[j], 1.0) for j in ended]

    before = [int(j) for j in members if j < job]
    everybody = list(range(len(record)))
    ran = [j for j in before if record.start_s[j] < now]
    running = [j for j in ran if record.end_s[j] > now]
    pending = [j for j in before if record.start_s[j] >= now and (record.start_s[j] < NEVER or record.end_s[j] >= now)]
    own = [int(j) for j in members]
    wait = waits(own) or waits(everybody)
    use = uses(own) or uses(everybody)
    last_submit = max((record.submit_s[j] for j in before), default=-math.inf)
    last_start = max((record.start_s[j] for j in ran), default=-math.inf)
    return [
        len(running),
        sum(int(record.size[j]) for j in running),
        len(pending),
        sum(int(record.size[j]) for j in pending),
        max(((now - record.submit_s[j]) / 3600 for j in pending), default=0.0),
        min((now - last_submit) / 3600, SINCE_MOST_H),
        min((now - last_start) / 3600, SINCE_MOST_H),
        sum(0.5 ** ((now - record.submit_s[j]) / HALF_LIFE_S) for j in before),
        wait[-1] if wait else 0.0,
        running_mean(wait) if wait else 0.0,
        running_mean(use) if use else 1.0,
        math.log(1 + len(waits(own))),
    ]
