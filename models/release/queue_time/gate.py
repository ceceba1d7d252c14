"""The gate of queue-time models: whether a candidate's forecasts are better than the champion's on the same jobs.

The gate uses the mean difference in CRPS, h a job, with its 95 % interval by blocks of 7 days drawn with replacement
(`features.bootstrap`). `better`: the interval lies below 0, over at least LEAST_BLOCKS blocks. `worse`: it lies above
0. `cannot tell`: neither. An interval over fewer blocks is too narrow (`models.release.block_interval`), so it can
reject a candidate but not accept one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from features.bootstrap import BLOCK_S, block_count, interval, start_weights
from features.conventions import BLOCK_DAYS
from models.release.verdict import Verdict
from traces.arrays import Float64s, Int64s
from traces.counted import counted

BETTER, WORSE, CANNOT_TELL = "better", "worse", "cannot tell"
LEAST_BLOCKS = 4
LEAST_JOBS = 20


@dataclass(frozen=True)
class QueueTimeVerdict(Verdict):
    """The comparison of CRPS on the gate's window: candidate minus opponent, hours a job."""

    level: ClassVar[float] = 0.95

    opponent: str = ""


@dataclass(frozen=True)
class QueueTimeOffer:
    """The candidate, its verdict, and the method to release."""

    candidate: str
    judged: QueueTimeVerdict
    released: str | None  # method; None: the champion stays
    is_provisional: bool = False


def judge(candidate_h: Float64s, opponent_h: Float64s, submit_s: Int64s, opponent: str) -> QueueTimeVerdict:
    """Judge by the CRPS (n,) of both on jobs submitted at `submit_s` (n,), rising, epoch s; `opponent` in words."""
    n = len(submit_s)
    if n < LEAST_JOBS:
        return QueueTimeVerdict(
            CANNOT_TELL,
            f"{counted(n, 'job')} that neither was fitted on: at least {LEAST_JOBS} are needed",
            n,
            opponent=opponent,
        )
    difference = candidate_h - opponent_h
    blocks = block_count(submit_s, int(submit_s[0]), BLOCK_S)
    mean = float(difference.mean())
    window = (n, blocks, int(submit_s[0]), int(submit_s[-1]), mean)
    weights = start_weights(submit_s)
    ends = None if weights is None else interval((weights @ difference) / np.maximum(weights.sum(axis=1), 1e-12))
    if ends is None:
        reason = f"no interval from {counted(n, 'job')} within one block of {BLOCK_DAYS} days, against {opponent}"
        return QueueTimeVerdict(CANNOT_TELL, reason, *window, opponent=opponent)
    low, high = ends
    summary = (
        f"CRPS {mean:+.3f} h a job against {opponent}, 95 % [{low:+.3f}, {high:+.3f}], {counted(n, 'job')} in "
        f"{counted(blocks, 'block')} of {BLOCK_DAYS} days"
    )
    verdict = WORSE if low > 0.0 else CANNOT_TELL
    if high < 0.0:
        verdict = BETTER if blocks >= LEAST_BLOCKS else CANNOT_TELL
        if verdict == CANNOT_TELL:
            summary += f"; an interval over fewer than {LEAST_BLOCKS} blocks is too narrow to accept a candidate"
    return QueueTimeVerdict(verdict, f"{verdict}: {summary}", *window, low, high, opponent)
