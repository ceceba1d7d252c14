"""Advice that the record alone supports: what to do about a cause of waiting, whom to ask, and an example."""

from __future__ import annotations

from typing import Any

import polars as pl

from features.causes.own_jobs import TAKEN
from features.causes.waits import MAIN_CAUSES
from reports import format as fmt
from reports.causes import Cause, shares
from reports.layout import Action
from reports.source import Source
from traces.counted import counted

WORTH_A_WORD = 0.1  # of the waiting; a smaller cause gets no advice
LEAST_JOBS = 30  # a cause of fewer jobs gets no advice, unless the log has fewer jobs
MOST = 2  # causes that get advice

# cause -> advice if one user has most of it ({user}), advice otherwise, and the limits of the figure
_ADVICE = {
    "held_s": (
        "Ask user {user} about holds, begin times and dependencies",
        "Look at what holds jobs back: dependencies, holds and begin times",
        "No scheduler can shorten it.",
    ),
    "dependency_s": (
        "Ask user {user} whether these jobs must run one after another",
        "Ask the users of chains of jobs whether these must run one after another",
        "It is inferred from starts just after the end of a job of the same name. No scheduler can shorten it.",
    ),
    "own_jobs_s": (
        "Ask user {user} why the jobs wait for each other (one node asked for by name, a fixed number at a time)",
        "Ask the users who wait most in this way why their jobs wait for each other",
        "No scheduler can shorten it, and no other user waits for it.",
    ),
    "array_limit_s": (
        "Ask user {user} to raise the limit of the job arrays (--array=...%N)",
        "Ask users to raise the limits of their job arrays (--array=...%N)",
        "Without the limit, the cluster may be too full for such a task.",
    ),
    "own_limit_s": (
        "Review the limits of users and groups, first those of user {user}",
        "Review the limits of users and groups",
        "Without the limit, the cluster may be too full for such a job.",
    ),
    "cluster_full_s": (
        "Talk to user {user} about when and how much to submit: the cluster is full",
        "The cluster is full: add nodes, reduce the demand or accept the waits",
        "No order of the queue can start all of these jobs at once.",
    ),
    "nodes_down_s": (
        "Bring out-of-service nodes back into use",
        "Bring out-of-service nodes back into use",
        "It is inferred from nodes on which nothing ran for days while jobs waited; the log does not say why.",
    ),
    "fragmented_s": (
        "Pack small jobs together, so that whole nodes stay free",
        "Pack small jobs together, so that whole nodes stay free",
        "Even with tighter packing, some of these jobs would wait for others.",
    ),
    "reservation_s": (
        "Look at reservations and maintenance: announce them, shorten them, let short jobs run before them",
        "Look at reservations and maintenance: announce them, shorten them, let short jobs run before them",
        "It is inferred from hours in which nothing started although jobs of several users would have fitted.",
    ),
    "behind_s": (
        "Find out why jobs that fit do not start (priorities, reservations, depth and pace of backfill)",
        "Find out why jobs that fit do not start (priorities, reservations, depth and pace of backfill)",
        "Part of this waiting is the price of keeping room for wide jobs.",
    ),
    "unknown_s": (
        "Dump the log again with the field Reason, which can name causes that the other fields do not show",
        "Dump the log again with the field Reason, which can name causes that the other fields do not show",
        "These jobs would have fitted, and the log shows no job ahead of them.",
    ),
}


def by_cause(source: Source, whole: dict[str, Any]) -> list[Action]:
    """Return what to do about the largest causes of waiting, largest first.

    `whole` is the row `all` of queueing_by.
    """
    advised = []
    for cause, share in list(shares(whole).items())[:MOST]:
        action = _advice_on(source, cause, share, whole)
        if share >= WORTH_A_WORD and action is not None:
            advised.append(action)
    return advised


def _advice_on(source: Source, cause: Cause, share: float, whole: dict[str, Any]) -> Action | None:
    jobs = source.read(
        f'SELECT q.user_name, j.job_id, q."{cause.column}" AS seconds, q.evidence, q.main_cause FROM queueing_delay q '  # noqa: S608 - our own names
        f'JOIN jobs j USING (cluster, job_key) WHERE cluster = ? AND q."{cause.column}" > 0'
    )
    mostly = jobs.filter(pl.col("main_cause") == MAIN_CAUSES[cause.column])
    if mostly.height < min(LEAST_JOBS, whole["jobs"]):
        return None
    for_one, for_all, limits = _ADVICE[cause.column]
    effect = f"{fmt.percent(share)} of all waiting passed {cause.words}, mostly in {counted(mostly.height, 'job')}."
    users = jobs.group_by("user_name").agg(pl.col("seconds").sum())
    top = users.sort("seconds", "user_name", descending=[True, False]).to_dicts()[0]
    part = top["seconds"] / float(jobs["seconds"].sum())
    do = for_all
    if top["user_name"] is not None and part >= 0.5:
        name = fmt.text(source.hidden("user_name", top["user_name"]))
        do = for_one.format(user=name)
        effect += f" {fmt.percent(part)} of that was in jobs of user {name}."
    example = _example(jobs) if cause.column in TAKEN else ""
    return Action(do, effect + example, f"It is an upper bound, counted in the log and not simulated. {limits}")


def _example(jobs: pl.DataFrame) -> str:
    """Name the job that waited longest for it and the evidence; '' if nothing was inferred."""
    known = jobs.drop_nulls("evidence").sort("seconds", "job_id", descending=[True, False])
    if known.is_empty():
        return ""
    row = known.row(0, named=True)
    return f" For example, job {fmt.text(row['job_id'])} {row['evidence']}."
