"""Precedence of waiting jobs: until when other users' jobs of the queue were ahead or started first. No table.

A queue is a partition. After that time, the log shows no job for which a job that would have fitted could wait.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from traces.arrays import Int64s

NEVER = np.iinfo(np.int64).min


AT_ONCE = 100_000  # rows whose numbers are objects at the same time
WIDTH = ("nodes", "gpus", "cpus")  # amounts that define the width of a job; unknown amounts are 0


def behind_until(queue: pl.DataFrame) -> pl.DataFrame:
    """Find until when (epoch s) others were before each row of `queue`: others_until and own_until; NEVER if none was.

    queue: partition, user_name, WIDTH, from (eligible, epoch s), left (start, or when it left the queue otherwise),
    start (null if it never started). others_until covers other users' jobs that were eligible earlier and still waited,
    and those at least as wide that started first. own_until covers the user's own jobs that were eligible earlier. Of
    two jobs that were eligible in the same second, the earlier row comes first.
    """
    others = np.full(queue.height, NEVER, np.int64)
    columns = ("partition", "user_name", "from", "left", "start", *WIDTH)
    for rows in queue.select(columns).with_row_index("row").partition_by("partition", include_key=False):
        others[rows["row"].to_numpy()] = np.maximum(_ahead(rows), _started(rows))
    by_age = queue.select("partition", "user_name", "from", "left").with_row_index("row").sort("from", "row")
    own = pl.col("left").fill_null(NEVER).cum_max().shift(1, fill_value=NEVER).over("partition", "user_name")
    named = pl.when(pl.col("user_name").is_not_null()).then(own).otherwise(NEVER)
    own_until = by_age.select("row", named.alias("own_until")).sort("row")["own_until"]
    return queue.select("job_key", pl.Series("others_until", others), own_until)


def _owners(rows: pl.DataFrame) -> Int64s:
    """Number the users; a job without a named user gets a number of its own."""
    known = rows["user_name"].cast(pl.String).rank("dense").cast(pl.Int64)
    owners: Int64s = known.fill_null(-1).to_numpy().copy()
    unknown = owners < 0
    owners[unknown] = -2 - np.arange(int(unknown.sum()))
    return owners


def _ahead(rows: pl.DataFrame) -> Int64s:
    """Find the latest instant at which an earlier job of another user left the queue."""
    order = np.lexsort((np.arange(rows.height), rows["from"].to_numpy()))
    users = _owners(rows)[order]
    left = rows["left"].fill_null(NEVER).to_numpy()[order]
    found = np.empty(rows.height, np.int64)
    first, second, owner = NEVER, NEVER, -1  # latest so far, latest of all other users, and the user of the former
    for begin in range(0, rows.height, AT_ONCE):
        some = slice(begin, begin + AT_ONCE)
        latest = []
        for user, until in zip(users[some].tolist(), left[some].tolist(), strict=True):
            latest.append(second if user == owner else first)
            if user == owner:
                first = max(first, until)
            elif until > first:
                first, second, owner = until, first, user
            else:
                second = max(second, until)
        found[order[some]] = latest
    return found


def _started(rows: pl.DataFrame) -> Int64s:
    """Find the latest start of another user's job at least as wide, between the job's eligibility and its own start."""
    found = np.full(rows.height, NEVER, np.int64)
    rows = rows.select("from", "start", *WIDTH, pl.Series("owner", _owners(rows)))
    started = rows.drop("from").drop_nulls("start").sort("start")
    rows = rows.with_row_index("at")
    for width, mine in rows.group_by(WIDTH):
        as_wide = started.filter(pl.col(name) >= least for name, least in zip(WIDTH, width, strict=True))
        starts, owners = as_wide["start"].to_numpy(), as_wide["owner"].to_numpy()
        if not len(starts):
            continue
        before = np.arange(len(starts)) - 1  # previous row, in order of start, of another user
        same = np.flatnonzero(np.append(False, owners[1:] == owners[:-1]))
        for i in same:
            before[i] = before[i - 1]
        own_start = mine["start"].fill_null(NEVER).to_numpy()
        place = np.searchsorted(starts, own_start, side="left") - 1
        own = (place >= 0) & (owners[np.maximum(place, 0)] == mine["owner"].to_numpy())
        place = np.where(own, before[np.maximum(place, 0)], place)
        latest = np.where(place >= 0, starts[np.maximum(place, 0)], NEVER)
        found[mine["at"].to_numpy()] = np.where(latest > mine["from"].to_numpy(), latest, NEVER)
    return found


def overtaken(asked: pl.DataFrame, queue: pl.DataFrame) -> NDArray[np.bool_]:
    """Mark the jobs overtaken between `begin` and `until`: a later, at least as wide job of another user started.

    asked: partition, user_name, ask_nodes, begin, until (epoch s). queue: as for `behind_until`. Two jobs without a
    named user count as jobs of the same user.
    """
    found = np.zeros(asked.height, np.bool_)
    started = queue.lazy().select("partition", "user_name", "nodes", "from", "start").drop_nulls(["start", "nodes"])
    started_by_age = started.sort("from").collect()
    of_partition = started_by_age.partition_by("partition", as_dict=True, include_key=False)
    none = started_by_age.drop("partition").clear()
    for (partition, user, nodes), rows in asked.with_row_index("place").group_by("partition", "user_name", "ask_nodes"):
        others = of_partition.get((partition,), none)
        others = others.filter(pl.col("user_name").ne_missing(pl.lit(user)) & (pl.col("nodes") >= nodes))
        if others.is_empty():
            continue
        came, first = others["from"].to_numpy(), np.minimum.accumulate(others["start"].to_numpy()[::-1])[::-1]
        place = np.searchsorted(came, rows["begin"].to_numpy(), side="left")
        earliest = np.append(first, np.iinfo(np.int64).max)[place]
        found[rows["place"].to_numpy()] = earliest < rows["until"].to_numpy()
    return found
