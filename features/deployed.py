"""Results of the deployed policy from its agent's log: handovers, and the accuracy of its predictions.

The prediction for a job comes from the decision on which it was submitted: the last one about its predecessor before
the submission, if that decision was to submit and no other job was submitted on it. We compare it with the wait from
submission to first start. A job with a dependency also waits for its predecessor, which no prediction covers, so it
counts among the handovers but not among the predictions. A job that has not started counts in neither, so long waits
appear late.

A plan (`baton-agent run --plan auto`) also predicts the interruption before the link that it submits. We compare it
with what happened, by the limit that it chose.

The wait after a submission at the predecessor's end (reactive) is unknown, because nothing was submitted then. If a
later submission starts no earlier, the interruption of reactive is at least the one achieved; a log cannot show how
much longer it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from features.bootstrap import block_count, interval, resampled_means, seed_weights, start_weights
from features.conventions import INDICATIVE_BELOW_BLOCKS
from features.tables.deployed import DEPLOYED_LINKS, DEPLOYED_POLICIES
from features.trace import shaped
from simulator.metrics import NOTICED_WAIT_S
from traces import schema
from traces.clusters import ClusterSettings
from traces.schema import Table
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.store.frames import empty
from traces.units import HOUR_S

TABLES: tuple[Table, ...] = (DEPLOYED_LINKS, DEPLOYED_POLICIES)
EVERY, NONE = "all", "none"  # values of decided_by: the row of all jobs, and jobs submitted without a decision
ATTEMPT = ("chain", "link", "attempt")
VERSION = ("decided_by", "policy", "version", "setting", "limit_s")
FIGURES = ("interruption_h", "overlap_h", "zero_share")


def compute(data: DataFolder, settings: ClusterSettings) -> dict[str, pl.DataFrame]:
    """Compute both tables for the cluster of `settings` from the warehouse."""
    decisions, events = (
        warehouse.read(data, f"SELECT * FROM {table.name} WHERE cluster = ?", (settings.name,))  # noqa: S608 - ours
        for table in (schema.AGENT_DECISIONS, schema.AGENT_EVENTS)
    )
    return from_log(decisions, events, settings.name)


def from_log(decisions: pl.DataFrame, events: pl.DataFrame, cluster: str) -> dict[str, pl.DataFrame]:
    """Compute both tables from the rows of `agent_decisions` and `agent_events` of one cluster."""
    order = ("time_utc", "trace_sha256", "line")
    decisions, events = decisions.sort(order), events.sort(order)
    jobs = _jobs(events)
    jobs = jobs.join(_handovers(events), on=["chain", "link", "job_id"], how="left")
    links = _judged(_with_decision(jobs, decisions)).with_columns(pl.lit(cluster).alias("cluster"))
    return {
        DEPLOYED_LINKS.name: shaped(links.sort(ATTEMPT), DEPLOYED_LINKS),
        DEPLOYED_POLICIES.name: _policies(links, decisions, cluster),
    }


def _jobs(events: pl.DataFrame) -> pl.DataFrame:
    """Build one row per job from its events in order; `known_utc` is when its submission became known."""

    def values(kind: str, column: str) -> pl.Expr:
        return pl.col(column).filter(pl.col("event") == kind).drop_nulls()

    job_events = events.filter(pl.col("attempt").is_not_null() & (pl.col("job_id") != ""))
    return job_events.group_by(ATTEMPT, maintain_order=True).agg(
        pl.col("job_id").last(),
        pl.col("job_name").last(),
        values("submitted", "time_utc").first().alias("known_utc"),
        # Slurm's own time where known, else the agent's
        pl.coalesce(values("started", "submit_utc").first(), values("submitted", "submit_utc").first()).alias(
            "submit_utc"
        ),
        values("submitted", "dependency").first().alias("dependency"),
        pl.coalesce(values("started", "start_utc").first(), values("ended", "start_utc").last()).alias("start_utc"),
        values("ended", "end_utc").last().alias("end_utc"),
        values("ended", "state").last().alias("state"),
        values("ended", "exit_code").last().alias("exit_code"),
        (pl.col("event") == "requeued").sum().cast(pl.Int64).alias("requeues"),
        (pl.col("event") == "withdrawn").any().alias("is_withdrawn"),
    )


def _handovers(events: pl.DataFrame) -> pl.DataFrame:
    """Build one row per job that took over, from its last handover: a requeued successor takes over again."""
    found = events.filter(pl.col("event").is_in(["handover", "requeued"]))
    last = found.unique(["chain", "link", "job_id"], keep="last", maintain_order=True)
    return last.filter(pl.col("event") == "handover").select(
        "chain", "link", "job_id", "predecessor_id", "interruption_s", "overlap_s",
        pl.col("time_utc").alias("handover_utc"),
    )  # fmt: skip


def _with_decision(jobs: pl.DataFrame, decisions: pl.DataFrame) -> pl.DataFrame:
    """Add the decision on which each job was submitted; `decided_by` is NONE where there was none."""
    asked = decisions.select(
        "chain", (pl.col("link") + 1).alias("link"), "time_utc", "submit", "decided_by",
        *(column.name for column in schema.DECISION),
    )  # fmt: skip
    submitted = jobs.filter(pl.col("known_utc").is_not_null()).sort("known_utc", "attempt")
    last = submitted.select(*ATTEMPT, "known_utc").join_asof(
        asked, left_on="known_utc", right_on="time_utc", by=["chain", "link"], check_sortedness=False
    )
    last = last.filter(pl.col("submit")).unique(["chain", "link", "time_utc"], keep="first", maintain_order=True)
    joined = jobs.join(last.drop("known_utc", "submit", "time_utc"), on=ATTEMPT, how="left")
    return joined.with_columns(pl.col("decided_by").fill_null(NONE))


def _judged(jobs: pl.DataFrame) -> pl.DataFrame:
    """Add the wait, and its position relative to the predictions."""
    wait = (pl.col("start_utc") - pl.col("submit_utc")).dt.total_seconds()
    predictions = ("start_estimate_s", "start_expected_s")
    low, high = pl.min_horizontal(predictions), pl.max_horizontal(predictions)
    band = (
        pl.when((pl.col("dependency") != "") | wait.is_null() | low.is_null()).then(None)
        .when(wait <= low - NOTICED_WAIT_S).then(pl.lit("before"))
        .when(wait >= high + NOTICED_WAIT_S).then(pl.lit("after"))
        .otherwise(pl.lit("within"))
    )  # fmt: skip
    return jobs.with_columns(wait.alias("wait_s"), band.alias("band"))


def _policies(links: pl.DataFrame, decisions: pl.DataFrame, cluster: str) -> pl.DataFrame:
    """Build a row for all and one per version that decided, from its links and its number of decisions."""
    rows = []
    if not links.is_empty() or not decisions.is_empty():
        rows.append({"decided_by": EVERY, "decisions": decisions.height, **_figures(links)})
    decided = {key: rows_of_key.height for key, rows_of_key in decisions.group_by(VERSION)}
    links_by_version = dict(links.group_by(VERSION))
    for key in sorted({*decided, *links_by_version}, key=lambda key: [(value is not None, value) for value in key]):
        figures = _figures(links_by_version.get(key, links.clear()))
        rows.append({**dict(zip(VERSION, key, strict=True)), "decisions": decided.get(key, 0), **figures})
    if not rows:
        return empty(DEPLOYED_POLICIES)
    table = pl.DataFrame(rows, infer_schema_length=None).with_columns(pl.lit(cluster).alias("cluster"))
    return shaped(table, DEPLOYED_POLICIES)


def _figures(links: pl.DataFrame) -> dict[str, Any]:
    """Compute the figures of the links: counts, means with intervals, and errors of the predictions."""
    handed = links.filter(pl.col("handover_utc").is_not_null()).select(
        pl.col("handover_utc").dt.epoch("s").alias("at_s"),
        (pl.col("interruption_s") / HOUR_S).alias("interruption_h"),
        (pl.col("overlap_s") / HOUR_S).alias("overlap_h"),
        (pl.col("interruption_s") == 0).cast(pl.Float64).alias("zero_share"),
    )
    at_s = handed["at_s"].to_numpy()
    blocks = block_count(at_s, int(at_s.min())) if len(at_s) else 0
    figures: dict[str, Any] = {
        "submissions": links.filter(pl.col("known_utc").is_not_null()).height,
        "started": links.filter(pl.col("known_utc").is_not_null() & pl.col("start_utc").is_not_null()).height,
        "handovers": handed.height, "blocks": blocks, "indicative": blocks < INDICATIVE_BELOW_BLOCKS,
    }  # fmt: skip
    values = handed.select(FIGURES).to_numpy().T[None]  # (1, figures, n)
    figures |= handed.select(FIGURES).mean().row(0, named=True)
    planned = links.filter(pl.col("handover_utc").is_not_null() & pl.col("expected_interruption_s").is_not_null())
    both = ((pl.col(f"{which}interruption_s").mean() / HOUR_S).alias(f"{name}_interruption_h")
            for which, name in (("expected_", "expected"), ("", "planned")))  # fmt: skip
    figures |= {"planned": planned.height, **planned.select(both).row(0, named=True)}
    weights = start_weights(at_s)
    if weights is not None:
        drawn = resampled_means(np.ascontiguousarray(values), weights, seed_weights(1))
        for number, name in enumerate(FIGURES):
            stem, unit = name.removesuffix("_h"), "_h" * name.endswith("_h")
            low, high = interval(drawn[:, number]) or (None, None)
            figures |= {f"{stem}_low{unit}": low, f"{stem}_high{unit}": high}
    return figures | _predictions(links.filter(pl.col("band").is_not_null()))


def _predictions(links: pl.DataFrame) -> dict[str, Any]:
    """Compare actual with predicted waits, for the links whose wait was predicted."""
    wait = pl.col("wait_s")
    figures: list[pl.Expr] = [pl.len().alias("predicted"), wait.mean().alias("wait_mean_s")]
    for name, column in (("estimate", "start_estimate_s"), ("expected", "start_expected_s")):
        error = wait - pl.col(column)
        figures += [
            pl.col(column).mean().alias(f"{name}_mean_s"),
            error.mean().alias(f"{name}_error_s"),
            error.abs().mean().alias(f"{name}_absolute_error_s"),
        ]
    figures += [(pl.col("band") == band).mean().alias(f"{band}_share") for band in ("within", "before", "after")]
    return links.select(figures).row(0, named=True)
