"""The futures of every decision of a table of recorded pairs, and what becomes of any table's.

They are played anew every half hour within NEAR_S of the predecessor's end, every hour within MIDDLE_S, and every two
hours before that. A decision between two such looks ahead with the futures of the last one: in each the successor
starts when it did there, but no earlier than it is submitted.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from features.ahead.summary import BEYOND_S, FUTURES, summary
from models.ahead.futures import Asked, Int64s, start_in_futures
from models.ahead.told import NOTHING, Told
from models.protocol import PairTable
from models.recorded_pairs import Predecessors
from simulator.recorded.record import NONE, RecordedTrace

NEAR_S, MIDDLE_S = 12 * 3600, 24 * 3600
NEAR_EVERY_S, MIDDLE_EVERY_S, FAR_EVERY_S = 1800, 3600, 7200


def asked_of(table: PairTable, record: RecordedTrace, predecessors: Predecessors) -> Asked:
    """The successors of a table's decisions. `predecessors` are those that it was made of, in its order.

    A predecessor is known to run to its limit: that is what a successor is for.
    """
    pair = table.pair_of
    row = predecessors.row[pair]
    name = record.name[row] if len(record.name) else row * 0 + NONE
    return Asked(
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
    told: Told = NOTHING,
    futures: int = FUTURES,
) -> Int64s:
    """When each decision's successor starts in each of its futures, epoch s, int64, (d, futures)."""
    asked, fresh = asked_of(table, record, predecessors), is_fresh(table)
    columns = {name: getattr(asked, name)[fresh] for name in asked.__dataclass_fields__}
    played = start_in_futures(record, Asked(**columns), futures=futures, fit_span_s=fit_span_s, told=told)
    return carried_over(table, played)


def carried_over(table: PairTable, played: Int64s) -> Int64s:
    """The starts of all decisions, (d, K), from those of the fresh ones, (fresh, K)."""
    last = np.cumsum(is_fresh(table)) - 1  # each pair's first decision is fresh
    starts: Int64s = np.maximum(played[last], table.decision_s[:, None])
    return starts


def is_fresh(table: PairTable) -> NDArray[np.bool_]:
    """(d,) whether the futures of a decision are played anew: see above. The first of each pair is."""
    fresh = is_due(table.predecessor_end_s[table.pair_of] - table.decision_s)
    fresh[table.offset[:-1]] = True
    return fresh


def is_due(left_s: Int64s) -> NDArray[np.bool_]:
    """Whether futures are played anew so long before the predecessor's end, s, whatever was played before."""
    every_s = np.where(left_s <= NEAR_S, NEAR_EVERY_S, np.where(left_s <= MIDDLE_S, MIDDLE_EVERY_S, FAR_EVERY_S))
    due: NDArray[np.bool_] = left_s % every_s == 0
    return due


def with_futures(table: PairTable, start_s: Int64s) -> PairTable:
    """The table with what `start_s`, (d, K), says of its decisions in `PairTable.ahead`."""
    ahead = summary(start_s, table.decision_s, table.predecessor_end_s[table.pair_of])
    return replace(table, ahead=ahead)
