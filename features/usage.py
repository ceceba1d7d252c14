"""What is held when: attempts as intervals, and exact arithmetic on the step functions that they make.

Times are epoch seconds (int64), intervals half-open [start, end). No table of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from features.trace import Trace, beside
from traces.clusters import ClusterSettings

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]


ENDS = 10  # ends that should have been in a log before its first one: it is a dump of what ended later
LASTING_S, LASTING_SHARE = 3600, 0.001  # for which, and of a log's span, a level must hold to be the machine's


def lasting(values: Int64s, seconds: Int64s, least: float) -> int:
    """The largest of `values` that is reached or exceeded for `least` seconds in sum; 0 without any."""
    order = np.argsort(-values, kind="stable")
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
        """Sum of `amount` over the intervals [start, end) that cover an instant; each of shape (n,)."""
        keep = end > start
        instants = np.concatenate([start[keep], end[keep]])
        changes = np.concatenate([amount[keep], -amount[keep]])
        times, where = np.unique(instants, return_inverse=True)
        deltas = np.zeros(len(times), dtype=np.int64)
        np.add.at(deltas, where, changes)
        return cls(times, np.cumsum(deltas))

    def at(self, instants: Int64s) -> Int64s:
        """Value at each instant; shape as `instants`."""
        if not len(self.times):
            return np.zeros(len(instants), dtype=np.int64)
        place = np.searchsorted(self.times, instants, side="right") - 1
        return np.where(place >= 0, self.values[np.maximum(place, 0)], 0)

    def area(self, instants: Int64s) -> Int64s:
        """Integral from the first step to each instant (value x s); negative time counts nothing."""
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
        """1 where the value is over `level`, else 0."""
        return Steps(self.times, (self.values > level).astype(np.int64))

    @property
    def peak(self) -> int:
        """The largest value; 0 where nothing changes."""
        return int(self.values.max()) if len(self.values) else 0

    @property
    def lasting_peak(self) -> int:
        """The largest value that was reached or exceeded for LASTING_S in sum, or for a thousandth of a shorter span.

        Records whose ends and starts overlap by seconds exceed a machine for seconds, and are no machine.
        """
        if len(self.times) < 2:
            return self.peak
        least = min(LASTING_S, LASTING_SHARE * (self.times[-1] - self.times[0]))
        return lasting(self.values[:-1], np.diff(self.times), least)

    def quantile(self, share: float) -> int | None:
        """The smallest value v with at least `share` of the busy time (value > 0) at or under v; null if never busy."""
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
    """GPUs by the log, else nodes x gpus_per_node of the settings (whole nodes), else null."""
    if settings.gpus_per_node is None:
        return gpus
    return pl.coalesce(gpus, nodes * settings.gpus_per_node)


def asked_nodes() -> pl.Expr:
    """Nodes that a row of jobs asks for, else held."""
    return pl.coalesce("requested_nodes", pl.when(pl.col("allocated_nodes") > 0).then(pl.col("allocated_nodes")))


def asked_gpus(settings: ClusterSettings) -> pl.Expr:
    """GPUs that a row of jobs asks for, else held, else whole nodes; that a job that never ran held 0 tells nothing."""
    held = pl.when(pl.col("start_utc").is_not_null()).then(pl.col("allocated_gpus"))
    return filled_gpus(pl.coalesce(pl.col("requested_gpus"), held), asked_nodes(), settings)


def seconds(column: str) -> pl.Expr:
    """A timestamp column as epoch seconds."""
    return pl.col(column).dt.epoch("s").alias(column.removesuffix("_utc") + "_epoch")


INSTANTS = ("submit_utc", "start_utc", "end_utc")


def horizon(trace: Trace) -> int:
    """The last instant that the log mentions (epoch s): until then what has no end is taken to run or wait."""
    instants = [
        frame.select(pl.max_horizontal(pl.col(INSTANTS).dt.epoch("s").max())).item()
        for frame in (trace.jobs, trace.attempts)
    ]
    return max((int(instant) for instant in instants if instant is not None), default=0)


def shows_its_end(trace: Trace) -> bool:
    """Whether the log shows the machine at its end: some job still runs or waits there.

    A log of jobs that are over (`sacct` by end time, or with states selected) lacks those that ran on: near its last
    instant the machine looks emptier than it was.
    """
    is_open = pl.col("end_utc").is_null() & (pl.col("start_utc").is_not_null() | (pl.col("state") == "PENDING"))
    return bool(trace.jobs.select(is_open.any()).item())


def whole_from(held: pl.DataFrame) -> int:
    """The instant (epoch s) from which on the log shows all that ran (`held`: see `runs`).

    The first start, but in a dump of the jobs that ended within some days the first end: what ended before is missing.
    Such a dump is known by its starts before the first end: of so many runs as began there, at least ENDS should have
    been over by then, as long as runs of the log are.
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
    """When a job left the queue (epoch s): at its start, else its end, else `until` where the log shows it pending.

    Null for a job that never ran, is over and has no recorded end: the log does not say how long it stood there.
    """
    still = pl.when(pl.col("state") == "PENDING").then(pl.lit(until))
    return pl.coalesce(pl.coalesce("start_utc", "end_utc").dt.epoch("s"), still)


def runs(trace: Trace, settings: ClusterSettings) -> pl.DataFrame:
    """Attempts that started: job_key, attempt, state, partition, account, user_name, start_epoch, end_epoch, nodes,
    gpus, cpus, mem_mib, gpu_milli (thousandths of GPUs: less than `gpus` where jobs share a GPU), gpu_time_s.

    The GPU time is defined here, once for every table and section: GPUs held times the time they were held, until the
    log's end by what still runs there; null where no GPU count is known. An end that the log does not hold is settled
    by `given_out_again`, else by the log's horizon; GPUs are filled from whole nodes where it holds none.
    """
    until = horizon(trace)
    held_s = (pl.col("end_epoch") - pl.col("start_epoch")).clip(0)
    return (
        trace.attempts.select(
            "job_key", "attempt", "state", "start_utc", "end_utc", "nodes", "gpus", "cpus", "mem_mib", "gpu_part"
        )
        .filter(pl.col("start_utc").is_not_null())
        .join(given_out_again(trace), on=["job_key", "attempt"], how="left")
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
    """Whether a row of attempts ran: it has a start, or a time run, or its dump prints no start at all.

    Of a row of jobs it holds where the job has attempts. Which dump prints starts is asked dump by dump (trace_sha256):
    readers list runs alone, but for Philly's, which also has attempts that never started.
    """
    started = pl.col("start_utc").is_not_null()
    return started | (pl.col("run_s") > 0).fill_null(False) | ~started.any().over("trace_sha256")


def with_gpu_time(jobs: pl.DataFrame, held: pl.DataFrame) -> pl.DataFrame:
    """`jobs` with the gpu_time_s of `runs` (`held`), summed over attempts; a run of which the log has no start counts
    as the log says."""
    known = held.drop_nulls("gpu_time_s").group_by("job_key").agg(pl.col("gpu_time_s").sum().alias("held_gpu_time_s"))
    gpu_time = pl.coalesce("held_gpu_time_s", pl.when(pl.col("start_utc").is_null()).then("gpu_time_s"))
    return beside(jobs, known, "job_key").with_columns(gpu_time.alias("gpu_time_s")).drop("held_gpu_time_s")


def given_out_again(trace: Trace) -> pl.DataFrame:
    """job_key, attempt, next_utc: when the first of an attempt's GPUs was next given to another attempt.

    Philly's log lacks the end of 6,695 of 117,325 jobs. Such an attempt cannot still hold a GPU that another one starts
    on; taken to run to the end of the log, they would pile up on every machine.
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
    """Step function of `amount` over the rows of `runs`; a null amount counts 0."""
    return Steps.of_intervals(
        held["start_epoch"].to_numpy().astype(np.int64),
        held["end_epoch"].to_numpy().astype(np.int64),
        held[amount].fill_null(0).to_numpy().astype(np.int64),
    )


def overlap_area(over: Steps, short: Steps, instants: Int64s) -> Int64s:
    """Integral of the product of two 0/1 step functions up to each instant (s)."""
    if not len(over.times):
        return np.zeros(len(instants), dtype=np.int64)
    reached = short.area(over.times)
    before = np.concatenate([[0], np.cumsum(over.values[:-1] * np.diff(reached))])
    place = np.maximum(np.searchsorted(over.times, instants, side="right") - 1, 0)
    area: Int64s = before[place] + over.values[place] * np.maximum(short.area(instants) - reached[place], 0)
    return area


def either(first: Steps, second: Steps) -> Steps:
    """The step function that is 1 where at least one of two step functions of 0 and 1 is 1."""
    times = np.union1d(first.times, second.times)
    return Steps(times, first.at(times) | second.at(times))


def product(first: Steps, second: Steps) -> Steps:
    """The step function that is 1 where both of two step functions of 0 and 1 are 1."""
    times = np.union1d(first.times, second.times)
    return Steps(times, first.at(times) & second.at(times))


def without(first: Steps, second: Steps) -> Steps:
    """The step function that is 1 where the first of two step functions of 0 and 1 is 1 and the second is 0."""
    times = np.union1d(first.times, second.times)
    return Steps(times, first.at(times) & (1 - second.at(times)))


def from_epoch(steps: Steps) -> Steps:
    """The same step function with a first step at the epoch, so that it tells 0 from not yet begun."""
    if len(steps.times) and steps.times[0] <= 0:
        return steps
    return Steps(np.append(0, steps.times), np.append(0, steps.values))
