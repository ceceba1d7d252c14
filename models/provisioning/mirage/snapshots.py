"""Mirage's view of a cluster: 34 numbers every ten minutes. Each instant is held once; histories are slices.

The state of Ding et al., "Mirage: Towards Low-interruption Services on Batch GPU Clusters with Reinforcement Learning"
(SC'23), is 144 such snapshots. To each are added eight numbers of the pair as it is at the decision: (144, 42). A table
of histories would hold each snapshot 144 times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from models.provisioning.protocol import PairTable
from traces import instants
from traces.arrays import Float32s, Int64s
from traces.errors import InputError

STEP_S = 600
HISTORY = 144  # snapshots, a day
CLUSTER_INPUTS = 34
PAIR_INPUTS = 8
INPUTS = CLUSTER_INPUTS + PAIR_INPUTS
VERSION = 1  # of the state; a checkpoint of another version is rejected
PERCENTILES = (0, 25, 50, 75, 100)


@dataclass(frozen=True)
class Snapshots:
    """Snapshots of one cluster, every STEP_S: row i is at `first_s` + i STEP_S."""

    first_s: int
    rows: Float32s  # (s, CLUSTER_INPUTS)

    def added_to(self, pairs: PairTable) -> PairTable:
        """The pairs with these snapshots. Raises InputError as `ends_at` does."""
        return replace(pairs, snapshots=self.rows, last_snapshot=self.ends_at(pairs.decision_s))

    def ends_at(self, decision_s: Int64s) -> Int64s:
        """(b,) the last snapshot at or before each decision.

        Raises InputError if a decision lacks HISTORY snapshots, or is later than the last snapshot.
        """
        place = (decision_s - self.first_s) // STEP_S
        if len(place) and (place.min() < HISTORY - 1 or place.max() >= len(self.rows)):
            short = decision_s[np.argmin(place)] if place.min() < HISTORY - 1 else decision_s[np.argmax(place)]
            last_s = self.first_s + (len(self.rows) - 1) * STEP_S
            raise InputError(
                f"mirage: a decision at {instants.text(int(short))} needs {HISTORY} snapshots before it; there are "
                f"{len(self.rows)}, from {instants.text(self.first_s)} to {instants.text(last_s)}: take later pairs"
            )
        return np.asarray(place, np.int64)


def take_snapshots(
    submit_s: Int64s, start_s: Int64s, end_s: Int64s, nodes: Int64s, limit_s: Int64s, first_s: int, last_s: int
) -> Snapshots:
    """Take snapshots from `first_s` to `last_s` (epoch s) of jobs given by arrays (j,); start -1: it never started.

    The columns are: pending jobs, their nodes, percentiles 0, 25, 50, 75, 100 of their limits (minutes), of their ages
    (s) and of their run times (all 0); running jobs, their nodes, the percentiles of their limits (minutes), of their
    waits (s) and of their elapsed run times (s). Percentiles without a job are 0.
    """
    instants_s = np.arange(first_s, last_s + 1, STEP_S, dtype=np.int64)
    rows = np.zeros((len(instants_s), CLUSTER_INPUTS), np.float32)
    until_s = np.where(start_s < 0, np.iinfo(np.int64).max, start_s)
    gone_s = np.where(start_s < 0, np.iinfo(np.int64).max, end_s)
    order = np.argsort(submit_s, kind="stable")
    alive: Int64s = np.empty(0, np.int64)
    taken = 0
    for row, now in zip(rows, instants_s.tolist(), strict=True):
        come = taken + int(np.searchsorted(submit_s[order[taken:]], now, side="right"))
        alive = np.concatenate([alive, order[taken:come]])
        taken = come
        alive = alive[gone_s[alive] > now]
        pending = alive[until_s[alive] > now]
        running = alive[until_s[alive] <= now]
        row[0:2] = len(pending), nodes[pending].sum()
        row[2:7] = percentiles(limit_s[pending] / 60.0)
        row[7:12] = percentiles(now - submit_s[pending])
        row[17:19] = len(running), nodes[running].sum()
        row[19:24] = percentiles(limit_s[running] / 60.0)
        row[24:29] = percentiles(start_s[running] - submit_s[running])
        row[29:34] = percentiles(now - start_s[running])
    return Snapshots(first_s, rows)


def percentiles(values: NDArray[np.generic]) -> NDArray[np.float64]:
    """(5,) PERCENTILES of the values; 0 without values."""
    if not len(values):
        return np.zeros(len(PERCENTILES))
    return np.asarray(np.percentile(values.astype(np.float64), PERCENTILES))


@dataclass(frozen=True)
class Histories:
    """The states of a pair table's decisions, made on demand."""

    snapshots: Snapshots
    pairs: PairTable
    last: Int64s  # (d,) the last snapshot of each decision

    @classmethod
    def of_table(cls, pairs: PairTable) -> Histories:
        """The states of a table that holds its own snapshots, of one cluster or several. Raises InputError without."""
        if len(pairs.last_snapshot) != len(pairs.decision_s):
            raise InputError(
                "mirage: these pairs have no snapshots of their cluster; make them with `baton train` or "
                "`baton evaluate`, and name the policy there"
            )
        return cls(Snapshots(0, pairs.snapshots), pairs, pairs.last_snapshot)

    def of_pairs(self, pairs: PairTable) -> Histories:
        """The states of other pairs that were taken from the same table."""
        return Histories(self.snapshots, pairs, pairs.last_snapshot)

    def at(self, rows: Int64s) -> Float32s:
        """(b, HISTORY, INPUTS) states of those decisions; every snapshot carries the pair's eight numbers."""
        windows = np.lib.stride_tricks.sliding_window_view(self.snapshots.rows, HISTORY, axis=0)  # (s', 34, HISTORY)
        states = np.empty((len(rows), HISTORY, INPUTS), np.float32)
        states[:, :, :CLUSTER_INPUTS] = windows[self.last[rows] - HISTORY + 1].transpose(0, 2, 1)
        states[:, :, CLUSTER_INPUTS:] = self.of_pair(rows)[:, None]
        return states

    def of_pair(self, rows: Int64s) -> Float32s:
        """(b, PAIR_INPUTS) limit (minutes), nodes, wait and elapsed time (s) of predecessor and successor."""
        pairs, pair = self.pairs, self.pairs.pair_of[rows]
        limit, nodes = pairs.limit_s[pair] / 60.0, pairs.pair_nodes[pair].astype(np.float64)
        waited = (pairs.predecessor_start_s - pairs.submit_s)[pair]
        elapsed = pairs.decision_s[rows] - pairs.predecessor_start_s[pair]
        none = np.zeros(len(rows))
        return np.stack([limit, nodes, waited, elapsed, limit, nodes, none, none], axis=1).astype(np.float32)
