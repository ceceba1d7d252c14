"""Periods in which a queue was closed although waiting jobs would have fitted: a reservation or maintenance. No table.

A period counts as closed only if it lasts at least SPELL_S and at least JOBS jobs of USERS users waited that would have
fitted for half of it (JOBS jobs of any user where the log names no users), and fewer jobs than these started. In
addition, one of two signs is required:

- nothing started in the queue, and the period ended in a burst of starts or the pool was open during it;
- the pool was open, that is, at least half of it was free, and the period did not end with the start of a wide job, for
  which the scheduler would have collected nodes.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from features.causes.fits import SHAPE, Rooms, between
from features.causes.pools import OPEN_SHARE
from features.resources.usage import Steps
from traces.arrays import Int64s

SPELL_S = 3 * 3600
JOBS, USERS = 10, 5
HALF = 0.5  # share of the period
BURST, SOON_S = 15, 3600  # so many starts so soon after a period show that the queue opened again


def closed(waiting: pl.DataFrame, rooms: Rooms, queue: pl.DataFrame) -> dict[str | None, Steps]:
    """Find when each queue was closed: partition -> 1 while it was closed.

    waiting: row, user_name, SHAPE, from, waiting_to (epoch s). queue: partition, start (epoch s, null), nodes.
    """
    closed_by_partition: dict[str | None, Steps] = {}
    for name in waiting["partition"].unique(maintain_order=True):
        partition = None if name is None else str(name)
        is_here = pl.col("partition").eq_missing(pl.lit(name))
        jobs_here = waiting.lazy().filter(is_here)
        basis = jobs_here.select(pl.col("cause_basis").mode().sort().first()).collect().item()
        started = queue.lazy().filter(is_here).drop_nulls("start").select("start", "nodes").sort("start").collect()
        room = rooms.room(basis, partition)
        begin, end = _spells(started["start"].to_numpy(), room.is_open, started, room.nodes or 0)
        starts = started["start"].to_numpy()
        inside = np.searchsorted(starts, end, side="left") - np.searchsorted(starts, begin, side="right")
        kept = _pressed(jobs_here, rooms, begin, end) > inside
        if kept.any():
            begin, end = _union(begin[kept], end[kept])
            closed_by_partition[partition] = Steps.of_intervals(begin, end, np.ones(len(begin), np.int64))
    return closed_by_partition


def _spells(starts: Int64s, is_open: Steps, started: pl.DataFrame, nodes: int) -> tuple[Int64s, Int64s]:
    """Find begin and end (epoch s) of the periods that show one of the two signs."""
    before = np.flatnonzero(np.diff(starts) >= SPELL_S)
    quiet_begin, quiet_end = starts[before], starts[before + 1]
    soon = np.searchsorted(starts, quiet_end + SOON_S) - np.searchsorted(starts, quiet_end)
    open_s = between(is_open, quiet_begin, quiet_end)
    is_quiet = (soon >= BURST) | (open_s >= HALF * (quiet_end - quiet_begin))
    change = np.flatnonzero(is_open.values[1:] != is_open.values[:-1]) + 1
    bounds = np.concatenate([is_open.times[:1], is_open.times[change]])
    open_begin, open_end = bounds[:-1], bounds[1:]
    was_open = is_open.at(open_begin) > 0
    wide = (
        np.sort(started.filter(pl.col("nodes") >= OPEN_SHARE * nodes)["start"].to_numpy()) if nodes > 1 else starts[:0]
    )
    for_wide = np.searchsorted(wide, open_end + SOON_S, side="right") > np.searchsorted(wide, open_begin)
    begin = np.concatenate([quiet_begin[is_quiet], open_begin[was_open & ~for_wide]])
    end = np.concatenate([quiet_end[is_quiet], open_end[was_open & ~for_wide]])
    long = end - begin >= SPELL_S
    return begin[long], end[long]


def _pressed(waiting: pl.LazyFrame, rooms: Rooms, begin: Int64s, end: Int64s) -> Int64s:
    """Count the waiting jobs that fitted in each period; 0 if there were too few."""
    spells = pl.LazyFrame({"begin": begin, "end": end}).with_row_index("spell")
    is_inside = pl.col("from") <= pl.col("end") - SPELL_S, pl.col("waiting_to") >= pl.col("begin") + SPELL_S
    inside = waiting.select(*SHAPE, "user_name", "from", "waiting_to").join_where(spells, *is_inside).collect()
    pressed = np.zeros(len(begin), np.int64)
    if inside.is_empty():
        return pressed
    inside = inside.with_columns(
        pl.max_horizontal("from", "begin").alias("from"), pl.min_horizontal("waiting_to", "end").alias("waiting_to")
    )
    could = rooms.seconds(inside) >= HALF * (inside["waiting_to"] - inside["from"])
    user = pl.col("user_name")
    counted = (
        inside.filter(could)
        .group_by("spell")
        .agg(pl.len(), user.n_unique().alias("users"), user.is_not_null().any().alias("named"))
    )
    enough = counted.filter((pl.col("len") >= JOBS) & ((pl.col("users") >= USERS) | ~pl.col("named")))
    pressed[enough["spell"].to_numpy()] = enough["len"].to_numpy()
    return pressed


def _union(begin: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """Merge overlapping periods and sort them."""
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum.accumulate(end[order])
    first = np.append(True, begin[1:] > end[:-1])
    return begin[first], np.append(end[:-1][first[1:]], end[-1:])
