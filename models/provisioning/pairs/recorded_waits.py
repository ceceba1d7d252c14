"""The recorded-wait world: a successor waits as long as a recorded job of similar size and limit did at that time.

No scheduler is simulated. Each recorded job that ran is a *neighbour* of a decision. Its weight is larger, the nearer
it is in submission, number of nodes and time limit (`WIDTHS`). One user has at most MOST_OF_A_USER of the weight. The
predecessor and the user's actual next job have no weight. One neighbour is drawn with probability proportional to its
weight, and the successor waits as long as that neighbour. A pair is left out if any of its decisions has fewer than
LEAST_NEIGHBOURS effective neighbours.

Neighbours that started, or were even submitted, after the decision influence only its outcome. The observation is that
of the calibrated world at that instant, so an artifact fitted in either world can be judged in the other.

All decisions of a pair draw at the same quantile. At quantile 0.9, the wait drawn is above nine tenths of the weight,
at whichever decision the pair submits. If each decision drew anew, the oracle would find a lucky one in nearly every
pair. The expected wait at a decision is the same either way.

In this world the pair's own jobs do not affect others, their user has no limits, and waits come from jobs of other
priorities.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace

import numpy as np

from models.provisioning.pairs.recorded import Predecessors
from models.provisioning.protocol import NONE, PairTable
from simulator.recorded.record import RecordedTrace
from traces.arrays import Float64s, Int64s


@dataclass(frozen=True)
class Widths:
    """Standard deviations of the Gaussian that weighs a neighbour; it is cut at CUT standard deviations."""

    log_nodes: float
    log_limit: float
    time_s: float


WIDTHS = Widths(log_nodes=0.7, log_limit=0.7, time_s=12 * 3600.0)  # a factor of two each; docs/decisions/0023
CUT = 3.0
MOST_OF_A_USER = 0.1  # of the weight of a decision's neighbours
LEAST_NEIGHBOURS = 30.0  # effective: 1 / sum of the squared shares of the weight (Kish, Survey Sampling, 1965)


def with_recorded_waits(table: PairTable, record: RecordedTrace, predecessors: Predecessors) -> PairTable:
    """The pairs of `table` with enough neighbours, with drawn waits in place of simulated ones.

    `predecessors` are those of the table, in its order. Deterministic: a pair's quantile is drawn from the job key of
    its predecessor.
    """
    start_s, enough = table.successor_start_s.copy(), np.ones(len(table), bool)
    for pair, (row, next_row) in enumerate(zip(predecessors.row, predecessors.next_row, strict=True)):
        rows = slice(table.offset[pair], table.offset[pair + 1])
        at_s = table.decision_s[rows]
        near = neighbours(record, at_s, table.pair_nodes[pair], table.limit_s[pair], np.array([row, next_row]))
        enough[pair] = near.effective.min() >= LEAST_NEIGHBOURS
        if enough[pair]:
            start_s[rows] = at_s + near.drawn_s(np.full(len(at_s), _quantile(record.job_key[row])))
    return replace(table, successor_start_s=start_s).take(enough)


def leave_one_out(record: RecordedTrace, rows: Int64s) -> Int64s:
    """The wait that each of those recorded jobs would draw at its own submission if it were not recorded itself.

    Waits in s, int64, (rows,); NONE for a job with too few neighbours.
    """
    drawn = np.full(len(rows), NONE)
    for i, row in enumerate(rows):
        near = neighbours(record, record.submit_s[[row]], record.size[row], record.limit_s[row], np.array([row]))
        if near.effective[0] >= LEAST_NEIGHBOURS:
            drawn[i] = near.drawn_s(np.array([_quantile(record.job_key[row])]))[0]
    return drawn


def _quantile(job_key: str) -> float:
    """A number uniform in [0, 1), always the same for a job."""
    return float(np.random.default_rng(zlib.crc32(job_key.encode())).random())


@dataclass(frozen=True)
class Neighbours:
    """The k jobs with any weight in d decisions about similar successors, by rising wait."""

    wait_s: Int64s  # (k,)
    share: Float64s  # (d, k) of the weight; each row adds up to 1, or is 0 if no neighbour is left
    effective: Float64s  # (d,) number of neighbours; 0 if there are too few users

    def drawn_s(self, quantile: Float64s) -> Int64s:
        """(d,) the wait at which the cumulative share of shorter waits reaches the quantile, (d,) in [0, 1)."""
        below = (np.cumsum(self.share, axis=1) <= quantile[:, None]).sum(axis=1)
        drawn: Int64s = self.wait_s[np.minimum(below, len(self.wait_s) - 1)]
        return drawn


def neighbours(
    record: RecordedTrace, at_s: Int64s, nodes: int, limit_s: int, excluded_rows: Int64s, widths: Widths = WIDTHS
) -> Neighbours:
    """Neighbours of successors that request these nodes and seconds and are submitted at `at_s` (rising, (d,)).

    excluded_rows: rows of the record that cannot be neighbours.
    """
    reach_s = CUT * widths.time_s
    first = np.searchsorted(record.submit_s, at_s[0] - reach_s)
    after = np.searchsorted(record.submit_s, at_s[-1] + reach_s, side="right")
    rows = np.arange(first, after)
    rows = rows[record.ran[rows] & ~np.isin(rows, excluded_rows)]
    by_size = (np.log(record.size[rows]) - np.log(nodes)) / widths.log_nodes
    by_limit = (np.log(record.limit_s[rows]) - np.log(limit_s)) / widths.log_limit
    near = (np.abs(by_size) <= CUT) & (np.abs(by_limit) <= CUT)
    rows, alike = rows[near], (by_size**2 + by_limit**2)[near]
    by_user = np.argsort(record.user[rows], kind="stable")
    rows, alike = rows[by_user], alike[by_user]
    by_time = (record.submit_s[rows] - at_s[:, None]) / widths.time_s
    weight = np.where(np.abs(by_time) <= CUT, np.exp(-(alike + by_time**2) / 2), 0.0)
    share = shares(weight, record.user[rows])
    squares = (share**2).sum(axis=1)
    effective = np.divide(1.0, squares, out=np.zeros_like(squares), where=squares > 0)
    wait_s = (record.start_s - record.submit_s)[rows]
    order = np.argsort(wait_s, kind="stable")
    return Neighbours(wait_s[order], share[:, order], effective)


def shares(weight: Float64s, user: Int64s) -> Float64s:
    """(d, k) shares of the weight (d, k) of jobs of `user` (rising, (k,)), with at most MOST_OF_A_USER for each user.

    A user's excess is taken from all of its jobs in proportion. A row with too few users for that is 0.
    """
    decisions, jobs = weight.shape
    if not jobs:
        return weight
    begins = np.flatnonzero(np.r_[True, np.diff(user) != 0])
    of_user = np.add.reduceat(weight, begins, axis=1)
    falling = -np.sort(-of_user, axis=1)
    rest = np.cumsum(falling[:, ::-1], axis=1)[:, ::-1]  # weight of the users from each place on
    cap, found = np.zeros(decisions), np.zeros(decisions, bool)
    for above in range(min(round(1 / MOST_OF_A_USER), falling.shape[1])):  # number of users above the cap
        most = MOST_OF_A_USER * rest[:, above] / (1 - above * MOST_OF_A_USER)
        fits = ~found & (most > 0) & (falling[:, above] <= most * (1 + 1e-12))
        cap[fits], found[fits] = most[fits], True
    kept = np.divide(np.minimum(of_user, cap[:, None]), of_user, out=np.zeros_like(of_user), where=of_user > 0)
    counts = np.diff(np.r_[begins, jobs])
    capped = weight * np.repeat(kept, counts, axis=1)
    total = capped.sum(axis=1, keepdims=True)
    share: Float64s = np.divide(capped, total, out=np.zeros_like(capped), where=total > 0)
    return share
