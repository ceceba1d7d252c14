"""Resource use over time: attempts as intervals, and exact arithmetic on step functions built from them.

Times are epoch seconds (int64); intervals are half-open, [start, end). The module has no table of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from features.trace import Trace, left_join
from traces.arrays import Int64s
from traces.clusters import ClusterSettings

ENDS = 10  # expected ends before a log's first one, from which the log is a dump of jobs that ended later
LASTING_S, LASTING_SHARE = 3600, 0.001  # minimum s, and share of a log's span, of a lasting level


def lasting(values: Int64s, seconds: Int64s, least: float) -> int:
    """Find the largest of `values` that is reached or exceeded for `least` seconds in total; 0 without values."""
    order = np.argsort(values)[::-1]
    place = np.searchsorted(np.cumsum(seconds[order]), least, side="left")
    return int(values[order][min(int(place), len(values) - 1)]) if len(values) else 0


@dataclass(frozen=True)
class Steps:
    """A right-continuous step function: `values[i]` from `times[i]` on, 0 before the first.

    times: shape (k,), int64, epoch s, strictly rising. values: shape (k,), int64.
    """

    times: Int64s
    values: Int64s

    @classmethod
    def of_intervals(cls, start: Int64s, end: Int64s, amount: Int64s) -> Steps:
        """Build the sum of `amount` over the intervals [start, end) that cover an instant; each of shape (n,)."""
        keep = end > start
        times = np.concatenate([start[keep], end[keep]])
        order = np.argsort(times)
        times = times[order]
        values = np.cumsum(np.concatenate([amount[keep], -amount[keep]])[order])
        is_last = np.append(times[1:] != times[:-1], np.ones(min(len(times), 1), np.bool_))
        return cls(times[is_last], values[is_last])

    def at(self, instants: Int64s) -> Int64s:
        """Return the value at each instant; shape as `instants`."""
        if not len(self.times):
            return np.zeros(len(instants), dtype=np.int64)
        place = np.searchsorted(self.times, instants, side="right") - 1
        return np.where(place >= 0, self.values[np.maximum(place, 0)], 0)

    def area(self, instants: Int64s) -> Int64s:
        """Integrate from the first step to each instant (value x s); 0 for instants before the first step."""
        if not len(self.times):
            return np.zeros(len(instants), dtype=np.int64)
        place = np.maximum(np.searchsorted(self.times, instants, side="right") - 1, 0)
        area: Int64s = self._area_before[place] + self.values[place] * np.maximum(instants - self.times[place], 0)
        return area

    @cached_property
    def _area_before(self) -> Int64s:
        """Integral up to each of `times`."""
        return np.concatenate([[0], np.cumsum(self.values[:-1] * np.diff(self.times))])

    def above(self, level: float) -> Steps:
        """Return 1 where the value exceeds `level`, else 0."""
        return collapsed(self.times, self.values > level)

    @property
    def peak(self) -> int:
        """The largest value; 0 for an empty step function."""
        return int(self.values.max()) if len(self.values) else 0

    @property
    def lasting_peak(self) -> int:
        """The largest value that was reached or exceeded for LASTING_S in total, or for a thousandth of a shorter span.

        Records whose ends and starts overlap by seconds exceed the machine for seconds; such peaks do not count.
        """
        if len(self.times) < 2:
            return self.peak
        least = min(LASTING_S, LASTING_SHARE * (self.times[-1] - self.times[0]))
        return lasting(self.values[:-1], np.diff(self.times), least)

    def quantile(self, share: float) -> int | None:
        """Find the least value at or under which `share` of the busy time (value > 0) lies; None if never busy."""
        if not len(self.times):
            return None
        values, seconds = self.values[:-1], np.diff(self.times)
        values, seconds = values[values > 0], seconds[values > 0]
        if not len(values):
            return None
        order = np.argsort(values, kind="stable")
        reached = np.cumsum(seconds[order])
        return int(values[order][np.searchsorted(reached, share * reached[-1], side="left")])


def filled_gpus(gpus: pl.Expr, nodes: pl.Expr, settings: ClusterSettings) -> pl.Expr:
    """GPUs according to the log, else nodes x gpus_per_node of the settings (whole nodes), else null."""
    if settings.gpus_per_node is None:
        return gpus
    return pl.coalesce(gpus, nodes * settings.gpus_per_node)


def asked_nodes() -> pl.Expr:
    """Nodes that a row of jobs requests, else holds."""
    return pl.coalesce("requested_nodes", pl.when(pl.col("allocated_nodes") > 0).then(pl.col("allocated_nodes")))


def asked_gpus(settings: ClusterSettings) -> pl.Expr:
    """GPUs that a row of jobs requests, else holds (if it ran), else those of whole nodes."""
    held = pl.when(pl.col("start_utc").is_not_null()).then(pl.col("allocated_gpus"))
    return filled_gpus(pl.coalesce(pl.col("requested_gpus"), held), asked_nodes(), settings)


def seconds(column: str) -> pl.Expr:
    """Convert a timestamp column to epoch seconds."""
    return pl.col(column).dt.epoch("s").alias(column.removesuffix("_utc") + "_epoch")


INSTANTS = ("submit_utc", "start_utc", "end_utc")
AnyTrace = TypeVar("AnyTrace", bound=Trace)


def horizon(trace: Trace) -> int:
    """Find the last instant of the log (epoch s); jobs without an end are assumed to run or wait until then."""
    instants = [
        frame.select(pl.max_horizontal(pl.col(INSTANTS).dt.epoch("s").max())).item()
        for frame in (trace.jobs, trace.attempts)
    ]
    return max((int(instant) for instant in instants if instant is not None), default=0)


def without_runs(trace: AnyTrace) -> AnyTrace:
    """Keep of the attempts only what `horizon` reads, a row: `runs` has the rest."""
    return replace(trace, attempts=trace.attempts.select(pl.col(INSTANTS).max()))


def shows_its_end(trace: Trace) -> bool:
    """Return whether the log shows the machine at its end, that is, whether some job still runs or waits there.

    A log of finished jobs (`sacct` by end time, or with selected states) lacks those that ran on, so that the machine
    looks emptier than it was near the last instant.
    """
    is_open = pl.col("end_utc").is_null() & (pl.col("start_utc").is_not_null() | (pl.col("state") == "PENDING"))
    return bool(trace.jobs.select(is_open.any()).item())


def complete_from(held: pl.DataFrame) -> int:
    """Find the instant (epoch s) from which the log shows everything that ran (`held`: see `runs`).

    This is the first start, or the first end in a dump of the jobs that ended within some days, which lacks jobs that
    ended before. We recognize such a dump by its starts before the first end: given the run times in the log, at least
    ENDS of these runs should have ended by then.
    """
    ran = held.filter(pl.col("end_epoch") > pl.col("start_epoch"))
    if ran.is_empty():
        return 0
    start, length = ran["start_epoch"].to_numpy(), np.sort((ran["end_epoch"] - ran["start_epoch"]).to_numpy())
    first, first_end = int(start.min()), int(str(ran["end_epoch"].min()))
    age = first_end - start[start < first_end]
    expected = (np.searchsorted(length, age, side="left") / len(length)).sum()
    return first_end if expected >= ENDS else first


def queue_end(until: int) -> pl.Expr:
    """Instant at which a job left the queue (epoch s): its start, else its end, else `until` while it is pending.

    Null for a finished job that never ran and has no recorded end, because the log does not show how long it waited.
    """
    still = pl.when(pl.col("state") == "PENDING").then(pl.lit(until))
    return pl.coalesce(pl.coalesce("start_utc", "end_utc").dt.epoch("s"), still)


def runs(trace: Trace, settings: ClusterSettings) -> pl.DataFrame:
    """List the attempts that started, with what they held.

    Columns: job_key, attempt, state, partition, account, user_name, start_epoch, end_epoch, nodes, gpus, cpus, mem_mib,
    gpu_milli (thousandths of GPUs; less than 1000 x `gpus` where jobs share a GPU), gpu_time_s.

    This is the single definition of GPU time: GPUs held times the time held, until the log's end for an attempt that
    still runs; null where no GPU count is known. A missing end comes from `next_allocation`, else it is the log's
    horizon. Missing GPU counts are filled from whole nodes.
    """
    until = horizon(trace)
    held_s = (pl.col("end_epoch") - pl.col("start_epoch")).clip(0)
    return (
        trace.attempts.select(
            "job_key", "attempt", "state", "start_utc", "end_utc", "nodes", "gpus", "cpus", "mem_mib", "gpu_part"
        )
        .filter(pl.col("start_utc").is_not_null())
        .join(next_allocation(trace), on=["job_key", "attempt"], how="left")
        .join(trace.jobs.select("job_key", "partition", "account", "user_name"), on="job_key", how="left")
        .select(
            "job_key", "attempt", "state", "partition", "account", "user_name",
            seconds("start_utc"),
            pl.coalesce(pl.coalesce("end_utc", "next_utc").dt.epoch("s"), pl.lit(until)).alias("end_epoch"),
            "nodes",
            filled_gpus(pl.col("gpus"), pl.col("nodes"), settings).alias("gpus"),
            "cpus",
            "mem_mib",
            (1000 * pl.col("gpu_part").fill_null(1)).round().cast(pl.Int64).alias("gpu_milli"),
        )
        .with_columns(gpu_milli=pl.col("gpus") * pl.col("gpu_milli"))
        .with_columns((pl.col("gpu_milli") * held_s // 1000).alias("gpu_time_s"))
    )  # fmt: skip


def has_run() -> pl.Expr:
    """Whether a row of attempts ran: it has a start or a run time, or its dump prints no starts at all.

    For a row of jobs, the expression applies only if the job has attempts. Whether a dump prints starts is determined
    per dump (trace_sha256). Readers list only attempts that ran, except Philly's, which also lists others.
    """
    started = pl.col("start_utc").is_not_null()
    return started | (pl.col("run_s") > 0).fill_null(False) | ~started.any().over("trace_sha256")


def with_gpu_time(jobs: pl.DataFrame, held: pl.DataFrame) -> pl.DataFrame:
    """Add to `jobs` the gpu_time_s of `runs` (`held`), summed over attempts.

    A job without a start keeps the log's own figure.
    """
    known = held.select("job_key", pl.col("gpu_time_s").alias("held_gpu_time_s")).drop_nulls()
    known = known.group_by("job_key").agg(pl.col("held_gpu_time_s").sum())
    gpu_time = pl.coalesce("held_gpu_time_s", pl.when(pl.col("start_utc").is_null()).then("gpu_time_s"))
    return left_join(jobs, known, "job_key").with_columns(gpu_time.alias("gpu_time_s")).drop("held_gpu_time_s")


def next_allocation(trace: Trace) -> pl.DataFrame:
    """Find when one of an attempt's GPUs was first allocated to another attempt: job_key, attempt, next_utc.

    Philly's log lacks the end of 6,695 of 117,325 jobs. Such an attempt cannot still hold a GPU on which another
    attempt starts. If we assumed that they run to the end of the log, they would pile up on every machine.
    """
    named = pl.col("gpu_numbers").replace("", None).is_not_null()
    held = (
        trace.placements.filter(named)
        .join(trace.attempts.select("job_key", "attempt", "start_utc"), on=["job_key", "attempt"])
        .drop_nulls("start_utc")
        .select(
            "job_key", "attempt", "node", "start_utc", pl.col("gpu_numbers").cast(pl.String).str.split(",").alias("gpu")
        )
        .explode("gpu")
    )
    of_gpu = ["node", "gpu"]
    starts = held.select(*of_gpu, "start_utc").unique().sort("start_utc")
    following = starts.with_columns(pl.col("start_utc").shift(-1).over(of_gpu).alias("next_utc"))
    return (
        held.join(following, on=[*of_gpu, "start_utc"])
        .group_by("job_key", "attempt")
        .agg(pl.col("next_utc").min())
    )  # fmt: skip


def steps_of(held: pl.DataFrame, amount: str) -> Steps:
    """Build the step function of `amount` over the rows of `runs`; a null amount counts as 0."""
    return Steps.of_intervals(
        held["start_epoch"].to_numpy().astype(np.int64),
        held["end_epoch"].to_numpy().astype(np.int64),
        held[amount].fill_null(0).to_numpy().astype(np.int64),
    )


def overlap_area(over: Steps, short: Steps, instants: Int64s) -> Int64s:
    """Integrate the product of two 0/1 step functions up to each instant (s)."""
    if not len(over.times):
        return np.zeros(len(instants), dtype=np.int64)
    reached = short.area(over.times)
    before = np.concatenate([[0], np.cumsum(over.values[:-1] * np.diff(reached))])
    place = np.maximum(np.searchsorted(over.times, instants, side="right") - 1, 0)
    area: Int64s = before[place] + over.values[place] * np.maximum(short.area(instants) - reached[place], 0)
    return area


def either(first: Steps, second: Steps) -> Steps:
    """Return 1 where at least one of two 0/1 step functions is 1."""
    times = np.union1d(first.times, second.times)
    return collapsed(times, (first.at(times) | second.at(times)) > 0)


def product(first: Steps, second: Steps) -> Steps:
    """Return 1 where both of two 0/1 step functions are 1."""
    times = np.union1d(first.times, second.times)
    return collapsed(times, (first.at(times) & second.at(times)) > 0)


def without(first: Steps, second: Steps) -> Steps:
    """Return 1 where the first of two 0/1 step functions is 1 and the second is 0."""
    times = np.union1d(first.times, second.times)
    return collapsed(times, (first.at(times) & (1 - second.at(times))) > 0)


def collapsed(times: Int64s, values: NDArray[np.bool_]) -> Steps:
    """Build the step function that is `values[i]` from `times[i]` on, without steps that change nothing."""
    keep = np.append(np.ones(min(len(times), 1), np.bool_), values[1:] != values[:-1])
    return Steps(times[keep], values[keep].astype(np.int64))


def from_epoch(steps: Steps) -> Steps:
    """Add a first step of 0 at the epoch, so that the function is defined before its first change."""
    if len(steps.times) and steps.times[0] <= 0:
        return steps
    return Steps(np.append(0, steps.times), np.append(0, steps.values))
