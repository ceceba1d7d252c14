"""Simulate the futures of every decision of a table of recorded pairs, and summarise those of any table.

Futures are played anew every half hour within NEAR_S of the predecessor's end, every hour within MIDDLE_S, and every
two hours before that. A decision in between reuses the latest futures: in each, the successor starts when it did there,
but no earlier than its submission.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from features.futures.summary import BEYOND_S, FUTURES, summary
from models.engine.local import each_here
from models.engine.work import Engine
from models.provisioning.futures.recorded import HypotheticalJobs, start_in_futures
from models.provisioning.futures.revealed import NOTHING, RevealedTruth
from models.provisioning.pairs.recorded import Predecessors
from models.provisioning.protocol import PairTable
from simulator.recorded.record import NONE, RecordedTrace
from traces.arrays import Int64s

NEAR_S, MIDDLE_S = 12 * 3600, 24 * 3600
NEAR_EVERY_S, MIDDLE_EVERY_S, FAR_EVERY_S = 1800, 3600, 7200


def successors_of(table: PairTable, record: RecordedTrace, predecessors: Predecessors) -> HypotheticalJobs:
    """The successors of a table's decisions, as submissions. `predecessors` are those of the table, in its order.

    A predecessor is known to run to its limit, because that is why it needs a successor.
    """
    pair = table.pair_of
    row = predecessors.row[pair]
    name = record.name[row] if len(record.name) else row * 0 + NONE
    return HypotheticalJobs(
        at_s=table.decision_s,
        nodes=table.pair_nodes[pair],
        limit_s=table.limit_s[pair],
        user=record.user[row],
        name=name,
        priority=record.priority[row],
        horizon_s=table.predecessor_end_s[pair] - table.decision_s + BEYOND_S,
        own_row=row,
        own_end_s=table.predecessor_end_s[pair],
        row=np.full(len(row), NONE),
    )


def starts_ahead(
    table: PairTable,
    record: RecordedTrace,
    predecessors: Predecessors,
    *,
    fit_span_s: int | None = None,
    revealed: RevealedTruth = NOTHING,
    futures: int = FUTURES,
    engine: Engine = each_here,
) -> Int64s:
    """Simulate when each decision's successor starts in each of its futures, epoch s, int64, (d, futures)."""
    successors, fresh = successors_of(table, record, predecessors), is_fresh(table)
    columns = {name: getattr(successors, name)[fresh] for name in successors.__dataclass_fields__}
    played = start_in_futures(
        record, HypotheticalJobs(**columns), futures=futures, fit_span_s=fit_span_s, revealed=revealed, engine=engine
    )
    return carried_over(table, played)


def carried_over(table: PairTable, played: Int64s) -> Int64s:
    """The starts of all decisions, (d, K), from those of the fresh ones, (fresh, K)."""
    last = np.cumsum(is_fresh(table)) - 1  # each pair's first decision is fresh
    starts: Int64s = np.maximum(played[last], table.decision_s[:, None])
    return starts


def is_fresh(table: PairTable) -> NDArray[np.bool_]:
    """(d,) whether a decision's futures are played anew (see the module). The first of each pair is always fresh."""
    fresh = is_due(table.predecessor_end_s[table.pair_of] - table.decision_s)
    fresh[table.offset[:-1]] = True
    return fresh


def is_due(left_s: Int64s) -> NDArray[np.bool_]:
    """Whether futures are played anew at this time before the predecessor's end, s, whatever was played before."""
    due: NDArray[np.bool_] = left_s % played_every_s(left_s) == 0
    return due


def played_every_s(left_s: Int64s) -> Int64s:
    """Time between two plays of futures at this time before the predecessor's end, s."""
    every_s = np.where(left_s <= NEAR_S, NEAR_EVERY_S, np.where(left_s <= MIDDLE_S, MIDDLE_EVERY_S, FAR_EVERY_S))
    return np.asarray(every_s, np.int64)


def with_futures(table: PairTable, start_s: Int64s) -> PairTable:
    """The table, with the summary of `start_s`, (d, K), as its `PairTable.ahead`."""
    ahead = summary(start_s, table.decision_s, table.predecessor_end_s[table.pair_of])
    return replace(table, ahead=ahead)
