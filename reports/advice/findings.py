"""The findings of a log in three parts: who waits, why, and what to do about it.

Every figure comes from the warehouse.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from reports import format as fmt
from reports.advice.advice import NEARLY_ALL, actions
from reports.advice.patterns import in_words
from reports.causes import Cause, shares
from reports.source import Names, Source
from simulator.metrics import NOTICED_WAIT_S
from traces.counted import counted
from traces.store.folder import DataFolder

SPREAD = 0.1  # of the waiting; if every user has less, the waiting is called spread over many users
NAMED = 0.1  # of the waiting; a second cause with less is left out
ONE_USERS = 0.5  # of the waiting for a cause; a user with at least this share is named with it
LEAST_HELD = 0.01  # of the capacity, and of all time held; a user with less is not named


def findings(data: DataFolder, cluster: str, names: Names | None = None) -> list[dict[str, str]]:
    """Return the findings of a cluster as `sentence` and `kind` (who, why, do); one of kind `none` if it has no job."""
    return of_source(Source(data, cluster, names))


def of_source(source: Source) -> list[dict[str, str]]:
    """Return the findings of a source that is already open."""
    if source.jobs.is_empty():
        return [{"kind": "none", "sentence": "The raw files of this cluster hold no job."}]
    sentences = (("who", who(source)), ("why", why(source)), ("do", what_to_do(source)))
    return [{"kind": kind, "sentence": sentence} for kind, sentence in sentences]


def who(source: Source) -> str:
    """Say who waits, for how long and in which jobs; where hardly anybody waits, say who holds the cluster."""
    whole, held = source.whole("queueing_by"), holder(source)
    if whole is None and source.mean_wait_s is not None:
        return "The tables that explain the waits of this cluster have not been computed yet: run `baton analyze`."
    if whole is None or not whole["jobs"]:
        return _joined("The log does not record how long jobs waited", held)
    if not whole["wait_total_s"] or whole["wait_p95_s"] <= NOTICED_WAIT_S:
        return _joined(f"Hardly anybody waits: {NEARLY_ALL} {fmt.duration(whole['wait_p95_s'])}", held)
    words = _most_waiting(source, whole)
    longest = in_words(source)
    return f"{words}. {longest}." if longest else f"{words}."


def _joined(first: str, second: str | None) -> str:
    return f"{first}; {second}." if second else f"{first}."


def _by(source: Source, dimension: str) -> pl.DataFrame:
    """Return the named values of one dimension of queueing_by, most waiting first."""
    rows = source.rows("queueing_by")
    rows = rows.filter((pl.col("dimension") == dimension) & pl.col("value").is_not_null())
    return rows.sort("wait_total_s", "value", descending=[True, False])


def _most_waiting(source: Source, whole: dict[str, Any]) -> str:
    """Say which user, and with several partitions which partition, has the largest share of the waiting."""
    total, jobs = whole["wait_total_s"], whole["jobs"]
    total_words = f"the {fmt.duration(total)} that jobs waited in total"
    users, partitions = _by(source, "user_name"), _by(source, "partition")
    where = ""
    if partitions.height > 1:
        top = partitions.to_dicts()[0]
        where = f"; {fmt.percent(top['wait_total_s'] / total)} of the waiting was in partition {fmt.text(top['value'])}"
    if users.is_empty():
        return f"Jobs waited {fmt.duration(whole['wait_mean_s'])} on average{where} (the log names no users)"
    top = users.to_dicts()[0]
    name, share = fmt.text(source.hidden("user_name", top["value"])), top["wait_total_s"] / total
    if users.height == 1 and top["jobs"] == jobs:
        mean = fmt.duration(whole["wait_mean_s"])
        return f"All jobs that started are those of user {name} and waited {mean} on average{where}"
    if share < SPREAD:
        return (
            f"The waiting is spread over {counted(users.height, 'user')}: no user accounts for more than "
            f"{fmt.percent(share)} of {total_words} (most: user {name}){where}"
        )
    share_of_jobs = f"{fmt.percent(top['jobs'] / jobs)} of the jobs that started"
    return f"User {name} accounts for {fmt.percent(share)} of {total_words}, with {share_of_jobs}{where}"


def why(source: Source) -> str:
    """Say what the waiting is for, and who held the cluster at that time."""
    whole, usage = source.whole("queueing_by"), in_use(source)
    if whole is None or not whole["wait_total_s"]:
        if usage:
            return f"{usage}."
        unknown = "The log does not record how much of the cluster was in use."
        return source.why_empty("queueing_by", "start_utc", unknown) if whole is None else unknown
    causes = list(shares(whole).items())
    if not causes:
        held = holder(source)
        return _joined(usage or "What the jobs waited for cannot be inferred from this log", held if usage else None)
    (first, share), *others = causes
    words = f"{fmt.percent(share)} of the waiting passed {first.words}{_mostly_of(source, first, whole)}"
    words += "".join(f"; {fmt.percent(part)} passed {cause.words}" for cause, part in others[:1] if part >= NAMED)
    held = holder(source) if whole["wait_p95_s"] > NOTICED_WAIT_S else None  # else `who` names the holder
    users = _by(source, "user_name")
    if users.height == 1 and users["jobs"][0] == whole["jobs"]:
        usage = held = "a log of one user's jobs does not show what others held: dump it with `sacct -a`"
    elif usage:
        usage = usage[0].lower() + usage[1:] if usage[:3].isalpha() else usage
    return _joined(words, "; ".join(dict.fromkeys(part for part in (usage, held) if part)) or None)


def _mostly_of(source: Source, cause: Cause, whole: dict[str, Any]) -> str:
    """Return " (92 % of that in jobs of user ann)" if one of several users has at least half of a cause; else ''."""
    users = _by(source, "user_name")
    if users.height < 2 or not whole[cause.column]:
        return ""
    top = users.sort(pl.col(cause.column).fill_null(0), "value", descending=[True, False]).to_dicts()[0]
    share = (top[cause.column] or 0) / whole[cause.column]
    name = fmt.text(source.hidden("user_name", top["value"]))
    return f" ({fmt.percent(share)} of that in jobs of user {name})" if share >= ONE_USERS else ""


def in_use(source: Source) -> str | None:
    """Say how much of the cluster was in use and how its size is known, without a full stop.

    Returns None if it is unknown.
    """
    share, machine = allocated_share(source), source.machine
    if share is None or not machine:
        return None
    amounts = {"GPU": machine["gpus"], "core": machine["cpus"], "memory": machine["mem_mib"], "node": machine["nodes"]}
    amount = amounts[machine["resource"]]
    whole = f"{amount / 1024:,.0f} GiB of memory" if machine["resource"] == "memory" else counted(amount, source.unit)
    nodes = "" if machine["resource"] == "node" or not machine["nodes"] else f" on {counted(machine['nodes'], 'node')}"
    since = source.shown_since
    cut = f" since {fmt.day(since)}, when the first recorded job ended" if since else ""
    return f"{fmt.percent(share)} of the {whole}{nodes} ({machine['known_by']}) were in use on average{cut}"


def what_to_do(source: Source) -> str:
    """Say the recommended action, its effect and, in short, how far to trust it; the page has the full text."""
    first = actions(source)[0]
    recorded = (
        f". The recorded mean wait is {fmt.duration(source.mean_wait_s)}"
        if first.interval and first.unit == "s"
        else ""
    )
    return f"{first.do}: {first.effect[0].lower()}{first.effect[1:]} How far to trust it: {first.verdict}{recorded}."


def holder(source: Source) -> str | None:
    """Say who held most of what was held, without a full stop.

    Returns None if it is unknown or next to nothing.
    """
    held, share = source.rows("allocated_by_user"), allocated_share(source)
    if held.is_empty() or not held["allocated_s"].sum() or (share is not None and share < LEAST_HELD):
        return None
    users = held.filter(pl.col("user_name").is_not_null()).group_by("user_name").agg(pl.col("allocated_s").sum())
    if users.is_empty():
        return None
    top = users.sort("allocated_s", "user_name", descending=[True, False]).to_dicts()[0]
    share = top["allocated_s"] / float(held["allocated_s"].sum())
    name, unit = fmt.text(top["user_name"]), f"{source.unit} hours"
    if users.height == 1 and share == 1:
        return f"user {name} held all {unit}"
    return f"user {name} held most, {fmt.percent(share)} of all {unit}" if share >= LEAST_HELD else None


def allocated_share(source: Source) -> float | None:
    """Return the share of the capacity that jobs held over the whole log; None if it is unknown."""
    held = source.rows("utilization_allocated")
    if held.is_empty():
        return None
    held = held.filter((pl.col("scope") == "cluster") & pl.col("is_binding") & pl.col("capacity_s").is_not_null())
    capacity = float(held["capacity_s"].sum() or 0)
    return float(held["allocated_s"].sum()) / capacity if capacity else None
