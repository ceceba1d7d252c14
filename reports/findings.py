"""The finding of a log in three sentences: who, why, and what to do about it. Every figure comes from the warehouse."""

from __future__ import annotations

from typing import Any

import polars as pl

from reports import format as fmt
from reports.advice import NEARLY_ALL, actions
from reports.causes import shares
from reports.sizes import gpus
from reports.source import Names, Source
from simulator.metrics import NOTICED_WAIT_S
from traces.counted import counted
from traces.store.folder import DataFolder

SPREAD = 0.1  # of the waiting: where no user has as much, it is called spread over many
STANDS_OUT = 1.5  # times the mean wait of all: an hour or a size below that is not worth a word
ENOUGH = 0.01  # of the jobs, and at least ENOUGH_JOBS: fewer make no pattern
ENOUGH_JOBS = 5
NAMED = 0.1  # of the waiting: a second cause with less is left out


def findings(data: DataFolder, cluster: str, names: Names | None = None) -> list[dict[str, str]]:
    """The findings of a cluster: `sentence` and `kind` (who, why, do); one of kind `none` where there is no job."""
    return of(Source(data, cluster, names))


def of(source: Source) -> list[dict[str, str]]:
    """The same from what is read already."""
    if source.jobs.is_empty():
        return [{"kind": "none", "sentence": "The raw files of this cluster hold no job."}]
    made = (("who", who(source)), ("why", why(source)), ("do", what_to_do(source)))
    return [{"kind": kind, "sentence": sentence} for kind, sentence in made]


def who(source: Source) -> str:
    """Who waits, for how long, and in which jobs; where hardly anybody does, who holds the cluster."""
    whole, held = source.whole("queueing_by"), holder(source)
    if whole is None and source.mean_wait_s is not None:
        return "What explains the waits of this cluster is not computed yet: run `baton analyze`."
    if whole is None or not whole["jobs"]:
        return _joined("The log does not tell how long jobs waited", held)
    if not whole["wait_total_s"] or whole["wait_p95_s"] <= NOTICED_WAIT_S:
        return _joined(f"Hardly anybody waits: {NEARLY_ALL} {fmt.duration(whole['wait_p95_s'])}", held)
    words = _most_waiting(source, whole)
    longest = [part for part in (_longest_size(source, whole), _longest_hour(source, whole)) if part]
    return f"{words}; {' and '.join(longest)} wait longest." if longest else f"{words}."


def _joined(first: str, second: str | None) -> str:
    return f"{first}; {second}." if second else f"{first}."


def _by(source: Source, dimension: str) -> pl.DataFrame:
    """The named values of one dimension of queueing_by, most waiting first."""
    rows = source.rows("queueing_by")
    rows = rows.filter((pl.col("dimension") == dimension) & pl.col("value").is_not_null())
    return rows.sort("wait_total_s", "value", descending=[True, False])


def _most_waiting(source: Source, whole: dict[str, Any]) -> str:
    """The user, and where there are several the partition, with the largest share of the waiting."""
    total, jobs = whole["wait_total_s"], whole["jobs"]
    all_ = f"the {fmt.duration(total)} that jobs waited in all"
    users, partitions = _by(source, "user_name"), _by(source, "partition")
    where = ""
    if partitions.height > 1:
        top = partitions.to_dicts()[0]
        where = f"; partition {fmt.text(top['value'])} has {fmt.percent(top['wait_total_s'] / total)} of the waiting"
    if users.is_empty():
        return f"Jobs waited {fmt.duration(whole['wait_mean_s'])} on average{where} (the log names no users)"
    top = users.to_dicts()[0]
    name, share = fmt.text(source.hidden("user_name", top["value"])), top["wait_total_s"] / total
    if users.height == 1 and top["jobs"] == jobs:
        mean = fmt.duration(whole["wait_mean_s"])
        return f"All jobs that started are those of user {name} and waited {mean} on average{where}"
    if share < SPREAD:
        return (
            f"The waiting is spread over {counted(users.height, 'user')}: nobody has more than "
            f"{fmt.percent(share)} of {all_} (most: user {name}){where}"
        )
    of_jobs = f"{fmt.percent(top['jobs'] / jobs)} of the jobs that started"
    return f"User {name} has {fmt.percent(share)} of {all_}, with {of_jobs}{where}"


def _frequent(rows: pl.DataFrame, jobs: int) -> pl.DataFrame:
    return rows.filter(pl.col("jobs") >= max(ENOUGH * jobs, min(ENOUGH_JOBS, jobs)))


def _longest_size(source: Source, whole: dict[str, Any]) -> str | None:
    rows = _frequent(_by(source, "size_bucket"), whole["jobs"]).sort("wait_mean_s", descending=True).to_dicts()
    if len(rows) < 2 or rows[0]["wait_mean_s"] < STANDS_OUT * whole["wait_mean_s"]:
        return None
    mean = f"{fmt.duration(rows[0]['wait_mean_s'])} on average, against {fmt.duration(whole['wait_mean_s'])} of all"
    return f"jobs of {gpus(rows[0]['value']).replace('>', 'more than ')} ({mean})"


def _longest_hour(source: Source, whole: dict[str, Any]) -> str | None:
    """The hour of the day, local time, whose submissions wait longest on average."""
    hours = (
        _by(source, "hour_of_week")
        .with_columns((pl.col("value").cast(pl.Int64) % 24).alias("hour"))
        .group_by("hour")
        .agg(pl.col("jobs").sum(), pl.col("wait_total_s").sum())
    )
    hours = _frequent(hours, whole["jobs"]).with_columns((pl.col("wait_total_s") / pl.col("jobs")).alias("mean"))
    rows = hours.sort("mean", "hour", descending=[True, False]).to_dicts()
    if len(rows) < 2 or rows[0]["mean"] < STANDS_OUT * whole["wait_mean_s"]:
        return None
    hour, mean = rows[0]["hour"], fmt.duration(rows[0]["mean"])
    return f"those submitted from {hour:02d}:00 to {hour:02d}:59 in {source.timezone} ({mean})"


def why(source: Source) -> str:
    """What the waiting is for, and who held the cluster meanwhile."""
    whole, allocated = source.whole("queueing_by"), allocated_share(source)
    in_use = None if allocated is None else f"{fmt.percent(allocated)} of the capacity was in use on average"
    room = None if in_use is None else in_use[0].upper() + in_use[1:]
    if whole is None or not whole["wait_total_s"]:
        if room:
            return f"{room}."
        untold = "The log does not tell how much of the cluster was in use."
        return source.why_empty("queueing_by", "start_utc", untold) if whole is None else untold
    causes = list(shares(whole).items())
    if not causes:
        held = holder(source)
        return _joined(room or "What the jobs waited for cannot be told from this log", held if room else None)
    (first, share), *others = causes
    words = f"{fmt.percent(share)} of the waiting passed {first.words}"
    words += "".join(f", {fmt.percent(part)} {cause.words}" for cause, part in others[:1] if part >= NAMED)
    held = holder(source) if whole["wait_p95_s"] > NOTICED_WAIT_S else None  # else it is said of `who`
    users = _by(source, "user_name")
    if users.height == 1 and users["jobs"][0] == whole["jobs"]:
        in_use = held = "a log of one user's jobs does not show what others held: dump it with `sacct -a`"
    return _joined(words, "; ".join(dict.fromkeys(part for part in (in_use, held) if part)) or None)


def what_to_do(source: Source) -> str:
    """The recommended action with its effect and, in short, how far to trust it; the page has that in full."""
    first = actions(source)[0]
    log = (
        f"; the log's own mean wait is {fmt.duration(source.mean_wait_s)}"
        if first.interval and first.unit == "s"
        else ""
    )
    return f"{first.do}: {first.effect[0].lower()}{first.effect[1:]} How far to trust that: {first.verdict}{log}."


def holder(source: Source) -> str | None:
    """Who held most of what was held, without a full stop; None where the log does not tell."""
    held = source.rows("allocated_by_user")
    if held.is_empty() or not held["allocated_s"].sum():
        return None
    users = held.filter(pl.col("user_name").is_not_null()).group_by("user_name").agg(pl.col("allocated_s").sum())
    if users.is_empty():
        return None
    top = users.sort("allocated_s", "user_name", descending=[True, False]).to_dicts()[0]
    share = top["allocated_s"] / float(held["allocated_s"].sum())
    name = fmt.text(top["user_name"])
    if users.height == 1 and share == 1:
        return f"user {name} held all of it"
    return f"user {name} held most, {fmt.percent(share)} of all {held['unit'][0]} hours"


def allocated_share(source: Source) -> float | None:
    """Share of the capacity that jobs held, over the whole log; None where it is not known."""
    held = source.rows("utilization_allocated")
    if held.is_empty():
        return None
    held = held.filter((pl.col("scope") == "cluster") & pl.col("capacity_s").is_not_null())
    capacity = float(held["capacity_s"].sum() or 0)
    return float(held["allocated_s"].sum()) / capacity if capacity else None
