"""Load and its drift: daily arrivals and running jobs, and the distance between the jobs of successive weeks.

The population stability index is the sum over bins of (q - p) ln(q / p), where p and q are the shares of the earlier
and the later week. There are ten bins with equal shares of the earlier week; a category is a bin of its own. Half a job
is added to every bin so that an empty bin has a finite contribution. By convention, a value below 0.1 is stable and
above 0.25 a shift. The Kolmogorov-Smirnov distance is the largest distance between the two empirical distribution
functions, with its asymptotic p-value (Press et al., Numerical Recipes, section 14.3).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from features.resources.usage import Steps, asked_gpus, asked_nodes, horizon, queue_end, runs, steps_of, with_gpu_time
from features.tables.load import DRIFT, LOAD
from features.trace import ASKED, Trace, read_trace, shaped
from traces.arrays import Int64s
from traces.clusters import ClusterSettings
from traces.schema import Table
from traces.store.folder import DataFolder
from traces.store.frames import empty
from traces.units import DAY_S

TABLES: tuple[Table, ...] = (LOAD, DRIFT)
BINS = 10
SHIFTED = 0.25
NUMBERS = (
    "gpus", "nodes", "limit_s", "run_s", "limit_used_share", "gpu_time_s", "wait_s", "eligible_wait_s",
    "interarrival_s", "hour_of_day", "day_of_week", "queued_jobs", "running_jobs",
)  # fmt: skip
CATEGORIES = ("user_name", "partition", "account", "qos", "state")
Numbers = NDArray[np.float64]


def compute(data: DataFolder, settings: ClusterSettings) -> dict[str, pl.DataFrame]:
    """Compute both tables for the cluster of `settings` from the warehouse."""
    columns = ("qos", "limit_s", "run_s", "wait_s", "eligible_wait_s", "gpu_time_s")
    return from_trace(read_trace(data, settings.name, jobs=(*ASKED, *columns)), settings)


def from_trace(trace: Trace, settings: ClusterSettings) -> dict[str, pl.DataFrame]:
    """Compute both tables from canonical frames."""
    return {LOAD.name: _load(trace, settings), DRIFT.name: _drift(drift_features(trace, settings), settings.name)}


def _load(trace: Trace, settings: ClusterSettings) -> pl.DataFrame:
    """Compute one row per day from the first submission to the log's last instant, including days without jobs."""
    submitted = trace.jobs["submit_utc"].drop_nulls()
    if submitted.is_empty():
        return empty(LOAD)
    held, until = runs(trace, settings), horizon(trace)
    first = int(submitted.dt.epoch("s").min()) // DAY_S * DAY_S  # type: ignore[arg-type]
    edges = np.arange(first, until + DAY_S, DAY_S, dtype=np.int64)
    if len(edges) < 2:
        edges = np.array([first, first + DAY_S])
    running, waiting = _concurrency(trace, held)
    gpus = steps_of(held, "gpu_milli")
    days = pl.DataFrame(
        {
            "day_utc": pl.from_epoch(pl.Series(edges[:-1]), "s").cast(pl.Datetime("us")),
            "running_mean": _mean(running, edges),
            "running_peak": _peak(running, edges),
            "queued_mean": _mean(waiting, edges),
            "queued_peak": _peak(waiting, edges),
            "gpus_held_mean": _mean(gpus, edges) / 1000,
        }
    )
    has_gpus = held["gpus"].null_count() < held.height
    del held, running, waiting, gpus
    asked = drift_features(trace, settings).with_columns(pl.col("submit_utc").dt.truncate("1d").alias("day_utc"))
    known = pl.col("gpu_time_s")
    arrived = asked.group_by("day_utc").agg(
        pl.len().alias("arrivals"),
        pl.col("user_name").drop_nulls().n_unique().alias("users"),
        pl.when(known.count() > 0).then(known.sum()).alias("demand_gpu_time_s"),
        pl.col("interarrival_s").mean().alias("interarrival_mean_s"),
        pl.when(pl.col("interarrival_s").mean() > 0)
        .then(pl.col("interarrival_s").std() / pl.col("interarrival_s").mean())
        .alias("interarrival_variation"),
    )
    if not has_gpus:
        days = days.with_columns(pl.lit(None, pl.Float64).alias("gpus_held_mean"))
    daily = days.join(arrived, on="day_utc", how="left").with_columns(
        pl.lit(settings.name).alias("cluster"), pl.col("arrivals", "users").fill_null(0)
    )
    return shaped(daily.sort("day_utc"), LOAD)


def _concurrency(trace: Trace, held: pl.DataFrame) -> tuple[Steps, Steps]:
    """Count running attempts and eligible queued jobs over time."""
    one = pl.lit(1).alias("one")
    queued = trace.jobs.select(
        pl.coalesce("eligible_utc", "submit_utc").dt.epoch("s").alias("start_epoch"),
        queue_end(horizon(trace)).alias("end_epoch"),
        one,
    ).drop_nulls()
    return steps_of(held.with_columns(one), "one"), steps_of(queued, "one")


def _mean(steps: Steps, edges: Int64s) -> Numbers:
    return np.diff(steps.area(edges)) / np.diff(edges)


def _peak(steps: Steps, edges: Int64s) -> Int64s:
    """Find the largest value between each pair of neighbouring edges."""
    if not len(steps.times):
        return np.zeros(len(edges) - 1, dtype=np.int64)
    times = np.union1d(steps.times, edges)
    times = times[(times >= edges[0]) & (times < edges[-1])]
    peaks: Int64s = np.maximum.reduceat(steps.at(times), np.searchsorted(times, edges[:-1]))
    return peaks


def drift_features(trace: Trace, settings: ClusterSettings) -> pl.DataFrame:
    """List the features that may drift (NUMBERS and CATEGORIES), one row per submitted job, in order of submission."""
    submit = pl.col("submit_utc").dt.epoch("s")
    local = pl.col("submit_utc").dt.replace_time_zone("UTC").dt.convert_time_zone(settings.timezone)
    held = runs(trace, settings)
    running, waiting = _concurrency(trace, held)
    jobs = with_gpu_time(trace.jobs, held).drop_nulls("submit_utc")
    del held
    jobs = jobs.sort("submit_utc", "job_key")
    before = jobs["submit_utc"].dt.epoch("s").to_numpy() - 1  # just before, so that the job itself does not count
    return jobs.select(
        "submit_utc", "user_name", "partition", "account", "qos", "state", "limit_s", "run_s", "wait_s",
        "eligible_wait_s", "gpu_time_s",
        asked_gpus(settings).alias("gpus"),
        asked_nodes().alias("nodes"),
        pl.when(pl.col("limit_s") > 0).then(pl.col("run_s") / pl.col("limit_s")).alias("limit_used_share"),
        (submit - submit.shift(1)).alias("interarrival_s"),
        local.dt.hour().cast(pl.Int64).alias("hour_of_day"),
        local.dt.weekday().cast(pl.Int64).alias("day_of_week"),
        pl.Series("queued_jobs", waiting.at(before)),
        pl.Series("running_jobs", running.at(before)),
    )  # fmt: skip


def _drift(jobs: pl.DataFrame, cluster: str) -> pl.DataFrame:
    """Compare every week with jobs with the previous one, for each feature that is known in both."""
    weekly = jobs.with_columns(pl.col("submit_utc").dt.truncate("1w").alias("week_utc"))
    weeks = [(key[0], rows) for key, rows in weekly.group_by("week_utc", maintain_order=True)]
    drifts = []
    for (before_utc, before), (week_utc, after) in pairwise(weeks):
        for name in (*NUMBERS, *CATEGORIES):
            old, new = before[name].drop_nulls(), after[name].drop_nulls()
            if old.is_empty() or new.is_empty():
                continue
            is_number = name in NUMBERS
            if is_number:
                earlier, later = (np.sort(part.to_numpy().astype(np.float64)) for part in (old, new))
                index, distance = stability_of_numbers(earlier, later), kolmogorov_smirnov(earlier, later)
            else:
                index, distance = stability_of_categories(old, new), None
            drifts.append(
                {
                    "week_utc": week_utc, "before_utc": before_utc, "feature": name,
                    "n_before": len(old), "n": len(new), "psi": index,
                    "ks": distance, "ks_p": None if distance is None else _p_value(distance, len(old), len(new)),
                    "is_shifted": index > SHIFTED,
                }
            )  # fmt: skip
    if not drifts:
        return empty(DRIFT)
    return shaped(pl.from_dicts(drifts, infer_schema_length=None).with_columns(pl.lit(cluster).alias("cluster")), DRIFT)


def stability_of_numbers(old: Numbers, new: Numbers) -> float:
    """Compute the population stability index of two samples (n,), (m,), each in rising order."""
    edges = np.unique(np.quantile(old, np.arange(1, BINS) / BINS, method="inverted_cdf"))
    counts = [np.bincount(np.searchsorted(edges, part, side="left"), minlength=len(edges) + 1) for part in (old, new)]
    return stability_index(*counts)


def stability_of_categories(old: pl.Series, new: pl.Series) -> float:
    """Compute the population stability index of two samples of names."""
    counts = [dict(part.value_counts().iter_rows()) for part in (old, new)]
    names = sorted(counts[0].keys() | counts[1].keys())
    p, q = (np.array([count.get(name, 0) for name in names], dtype=np.int64) for count in counts)
    return stability_index(p, q)


def stability_index(old: Int64s, new: Int64s) -> float:
    """Compute the population stability index of counts in the same bins, (bins,) each."""
    p, q = ((n + 0.5) / (n.sum() + 0.5 * len(n)) for n in (old, new))
    return float(((q - p) * np.log(q / p)).sum())


def kolmogorov_smirnov(old: Numbers, new: Numbers) -> float:
    """Compute the largest distance between the empirical distribution functions of two samples in rising order."""
    both = np.concatenate([old, new])
    below = [np.searchsorted(part, both, side="right") / len(part) for part in (old, new)]
    return float(np.abs(below[0] - below[1]).max())


def _p_value(distance: float, n: int, m: int) -> float:
    """Compute the asymptotic probability of such a distance if both samples have the same distribution."""
    size = np.sqrt(n * m / (n + m))
    x = (size + 0.12 + 0.11 / size) * distance
    k = np.arange(1, 101)
    return float(np.clip(2 * ((-1.0) ** (k - 1) * np.exp(-2 * (k * x) ** 2)).sum(), 0, 1)) if x > 0.2 else 1.0
