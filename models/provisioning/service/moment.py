"""The waits of links of several limits at one instant: of the recorded cluster, or of a live Slurm.

Both are the waits W_k of `agent.chains.plan`, for a user who has no link running.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agent.chains.plan import cautious_s
from agent.futures import BUDGET_S
from features.futures.summary import FUTURES
from traces.arrays import Int64s
from traces.counted import counted
from traces.errors import WorkError
from traces.units import DAY_S, HOUR_S

if TYPE_CHECKING:
    from agent.eyes import Eyes
    from simulator.recorded.record import RecordedTrace

HORIZON_S = 4 * DAY_S  # of a future; a link that has not started by then counts as started


@dataclass(frozen=True)
class LinkWaits:
    """What the futures of an instant show. by_limit_s: the W_k of each limit, s, (futures + 1,)."""

    now_s: int
    by_limit_s: Mapping[int, Int64s]
    futures: int  # simulated for each limit; 0: the start estimate alone
    unstarted: int  # of all limits' futures, those that ended before the link started
    why: str = ""  # one line if futures are missing


def recorded_waits(
    record: RecordedTrace, now_s: int, nodes: int, limits_s: Sequence[int], user: int, fit_span_s: int | None
) -> LinkWaits:
    """Simulate from the record at `now_s`, epoch s. user: its number in the record; `record.users` for a new one."""
    from models.provisioning.futures.recorded import HypotheticalJobs, start_in_futures
    from models.provisioning.service.estimates import start_estimates_s
    from simulator.recorded.record import NONE

    count = len(limits_s)
    none = np.full(count, NONE)
    jobs = HypotheticalJobs(
        at_s=np.full(count, now_s),
        nodes=np.full(count, nodes),
        limit_s=np.array(limits_s, np.int64),
        user=np.full(count, user),
        name=none,
        priority=none,
        horizon_s=np.full(count, HORIZON_S),
        own_row=none,
        own_end_s=none,
        row=none,
    )
    starts_s = start_in_futures(record, jobs, fit_span_s=fit_span_s)
    estimates_s = start_estimates_s(record, now_s, nodes, limits_s, user, fit_span_s)
    found = {
        limit_s: cautious_s(start_s - now_s, estimate_s)
        for limit_s, start_s, estimate_s in zip(limits_s, starts_s, estimates_s, strict=True)
    }
    return LinkWaits(now_s, found, FUTURES, int((starts_s >= now_s + HORIZON_S).sum()))


def live_waits(eyes: Eyes, limits_s: Sequence[int], nodes: int | None = None, qos: str = "") -> LinkWaits:
    """Simulate from the last look of `eyes`. nodes, qos: None and "": as requested.

    Raises WorkError without an estimate.

    Limits that a link may get are compared future by future, so all have as many futures as the one with the fewest.
    """
    assert eyes.queue is not None
    now_s, found, futures, unstarted, why = eyes.queue.now_s, dict[int, Int64s](), FUTURES, 0, ""
    for limit_s in limits_s:
        seen = eyes.starts(None, None, limit_s, HORIZON_S, BUDGET_S, None, nodes, qos)
        if seen.estimate_s is None:
            raise WorkError(f"the wait cannot be estimated: {seen.why or 'this Slurm shows too little'}")
        starts_s = np.array(seen.starts_s or [now_s + round(seen.estimate_s)], np.int64)
        found[limit_s] = cautious_s(starts_s - now_s, seen.estimate_s)
        unstarted += int((starts_s >= now_s + HORIZON_S).sum()) if seen.starts_s else 0
        if len(seen.starts_s) < futures:
            futures = len(seen.starts_s)
            some = f"{counted(futures, 'future')} of {FUTURES} in {BUDGET_S:g} s for links of {limit_s / HOUR_S:g} h"
            why = some if futures else f"no futures: {seen.why}"
    fewest = min(map(len, found.values())) - 1
    alike = {limit_s: np.append(wait_s[:fewest], wait_s[-1:]) for limit_s, wait_s in found.items()}
    return LinkWaits(now_s, alike, futures, unstarted, why)
