"""The recorded jobs after a diff: those that ask for another partition, QOS or default limit than the log shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import polars as pl

from models.what_if.advice.conf_text import ConfEdit, edited_conf
from models.what_if.changes import limit_of
from traces.slurm.conf import SlurmConf
from traces.units import DAY_S

NORMAL = "normal"  # the QOS that a new Slurm has
LONGEST_S = 365 * DAY_S  # the limit of a job that no setting limits, as slurmctld's backfill plans it


class JobMove(NamedTuple):
    """Jobs that ask for another partition or QOS (`column`): those whose user, account, partition or QOS is `who`.

    In the dimensions limit and nodes they are those that ask for at most `who`.
    """

    dimension: str
    who: str
    column: str  # partition or qos
    new: str


def moved_jobs(jobs: pl.DataFrame, conf: SlurmConf, moves: Iterable[JobMove], waiting: pl.Expr) -> pl.DataFrame:
    """Return the jobs (columns as in `traces.schema`) after the moves, which are made one after the other.

    Only those that are `waiting` move: a job that runs keeps its partition and QOS.
    """
    for move in moves:
        new = pl.when(_concerned(conf, move) & waiting).then(pl.lit(move.new)).otherwise(move.column)
        jobs = jobs.with_columns(new.alias(move.column))
    return jobs


def _concerned(conf: SlurmConf, move: JobMove) -> pl.Expr:
    if move.dimension == "limit":
        return pl.col("limit_s") <= limit_of(move.who, move.who)
    if move.dimension == "nodes":
        return pl.coalesce("allocated_nodes", "requested_nodes") <= int(move.who)
    if move.dimension == "partition":
        return _in_partition(conf, move.who)
    if move.dimension == "qos":
        return pl.col("qos").replace("", None).str.to_lowercase().fill_null(NORMAL) == move.who
    return (
        pl.col("user_name") == move.who
        if move.dimension == "user"
        else pl.col("account").str.to_lowercase() == move.who
    )


def _in_partition(conf: SlurmConf, name: str) -> pl.Expr:
    """Jobs of a partition: the first that they name, or the default one."""
    usual = conf.default_partition.name if conf.default_partition else ""
    return pl.col("partition").str.split(",").list.first().replace("", None).fill_null(usual) == name


def with_default_limits(jobs: pl.DataFrame, conf: SlurmConf, edits: Iterable[ConfEdit]) -> pl.DataFrame:
    """Return the jobs under the DefaultTime of the edits; `conf` is the slurm.conf before them.

    A job without a limit, or with the present default as its limit, is taken as having the default. It gets the new one
    unless it ran longer: then it would have asked for what it had.
    """
    for edit in edits:
        one = conf.partition(edit.partition or "")
        conf = edited_conf(conf, [edit])
        after = conf.partition(edit.partition or "")
        if edit.key != "DefaultTime" or one is None or after is None:
            continue
        old_s, new_s = (row.default_time_s or row.max_time_s or LONGEST_S for row in (one, after))
        asked = pl.when(pl.col("limit_s") > 0).then("limit_s")
        is_default = _in_partition(conf, one.name) & (asked.is_null() | (asked == old_s))
        short = pl.col("run_s").fill_null(0) <= new_s
        jobs = jobs.with_columns(
            limit_s=pl.when(is_default & short).then(new_s).when(is_default).then(old_s).otherwise("limit_s")
        )
    return jobs
