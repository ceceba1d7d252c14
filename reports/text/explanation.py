"""Explanations of a job or a user, as text for a terminal; `reports.format.text` makes all names in them harmless."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reports import format as fmt
from reports.causes import CAUSES
from traces.counted import counted

_ASK_OF_NODES = ("cluster_full_s", "nodes_down_s")  # causes that depend on which nodes the job could use
_INFERRED = ("dependency_s", "own_jobs_s", "array_limit_s")  # causes that `evidence` is about


def job_text(job: dict[str, Any]) -> str:
    """Format the result of `features.explain.job`.

    `job` also holds `what_if` of `models.what_if.job`, or the reason why there is none.
    """
    return "\n".join([*_head(job), *_waited(job), *_meanwhile(job), *_ran(job), *_what_if(job)]) + "\n"


def user_text(user: dict[str, Any]) -> str:
    """Format the result of `features.explain_user.user`."""
    cluster = user["of_the_cluster"]
    states = ", ".join(f"{row['jobs']:,} {fmt.text(row['state'])}" for row in user["states"])
    lines = [
        f"user {fmt.text(user['user_name'])} on cluster {fmt.text(user['cluster'])}: "
        f"{_many(user['jobs'], 'job')} ({states})",
        f"waited {fmt.duration(user['wait_p50_s'])} in the median, {fmt.duration(user['wait_p95_s'])} at the 95th "
        f"percentile (the cluster: {fmt.duration(cluster['wait_p50_s'])} and {fmt.duration(cluster['wait_p95_s'])}); "
        f"{user['never_ran']:,} never ran",
        *_causes(user["wait_s_by_cause"], _pools(user["pools"])),
        *_user_held(user),
    ]
    if user["completed_with_limit_jobs"]:
        lines.append(
            f"jobs that completed used {fmt.percent(user['limit_used_p50_share'])} of their limit in the median; "
            f"{user['far_over_asked_jobs']:,} of {user['completed_with_limit_jobs']:,} used under a tenth of it"
        )
    if user["waited_longest"]:
        lines.append("waited longest:")
    for row in user["waited_longest"]:
        lines.append(
            f"  {fmt.text(row['job_id'])}, submitted {fmt.moment(row['submit_utc'])}: waited "
            f"{fmt.duration(row['wait_s'])}, main cause: {row['main_cause'] or fmt.MISSING}"
            + (f" ({fmt.text(row['evidence'])})" if row["evidence"] else "")
        )
    return "\n".join(lines) + "\n"


def _user_held(user: dict[str, Any]) -> Iterator[str]:
    """Say what the user's jobs held of the cluster, and how much of it they used."""
    held = []
    if user["gpu_time_s"]:
        held.append((fmt.unit_time(user["gpu_time_s"]), user["gpu_time_share"]))
    if user["core_time_s"]:
        held.append((fmt.unit_time(user["core_time_s"], "core"), user["core_time_share"]))
    elif user["node_time_s"] is not None:
        held.append((fmt.unit_time(user["node_time_s"], "node"), user["node_time_share"]))
    if held:
        yield "held " + "; ".join(f"{time}, {fmt.percent(share)} of all" for time, share in held)
    if user["cpu_used_share"] is not None:
        yield f"used {fmt.percent(user['cpu_used_share'])} of that core time, where the log records it"
    if user["memory_used_p50_share"] is not None:
        yield f"used {fmt.percent(user['memory_used_p50_share'])} of the memory asked for in the median (largest task)"


def _many(number: float | None, unit: str) -> str:
    return f"{fmt.MISSING} {unit}s" if number is None else counted(round(number), unit)


def _size(nodes: int | None, gpus: int | None, cpus: int | None) -> list[str]:
    """Name nodes, and GPUs if there are any, else cores; unknown amounts are left out."""
    parts = [] if nodes is None else [_many(nodes, "node")]
    if gpus:
        return [*parts, _many(gpus, "GPU")]
    return [*parts, _many(cpus, "core")] if cpus else parts


def _head(job: dict[str, Any]) -> Iterator[str]:
    requested = _size(job["requested_nodes"], job["requested_gpus"], job["requested_cpus"])
    limit = "no limit known" if job["limit_s"] is None else f"limit {fmt.duration(job['limit_s'])}"
    yield (
        f"job {fmt.text(job['job_id'])} of {fmt.text(job['user_name'])} on cluster {fmt.text(job['cluster'])}, "
        f"partition {fmt.text(job['partition'])}: {job['state']}"
    )
    yield f"asked for {', '.join([*requested, limit])}; name {fmt.text(job['job_name'])}"
    yield (
        f"submitted {fmt.moment(job['submit_utc'])}, eligible {fmt.moment(job['eligible_utc'])}, started "
        f"{fmt.moment(job['start_utc'])}, ended {fmt.moment(job['end_utc'])} (UTC)"
    )


def _waited(job: dict[str, Any]) -> Iterator[str]:
    reason = (
        fmt.text(job["reason"]) if job["reason"] not in (None, "", "None") else ""
    )  # Slurm writes None for no reason
    if job["wait_s"] is None:
        abandoned_s = job["abandoned_wait_s"]
        if job["ran"] is not None:
            head = "its wait is unknown: the log lacks its submission or its start"
        else:
            head = "it still waits" if job["state"] == "PENDING" else "it never ran"
        yield (
            head
            + ("" if abandoned_s is None else f": {fmt.duration(abandoned_s)} in the queue")
            + (f"; the scheduler's reason: {reason}" if reason else "")
        )
        return
    notes = [f"inferred from {job['cause_basis']}"] if job["cause_basis"] else []
    notes += [f"scheduler's reason: {reason}"] if reason else []
    notes += [f"limit: {fmt.text(job['own_limit'])}"] if job["own_limit"] else []
    yield f"waited {fmt.duration(job['wait_s'])}" + (f" ({'; '.join(notes)})" if notes else "")
    pool = [] if job["pool_nodes"] is None else [{"nodes": job["pool_nodes"], "known_by": job["pool_known_by"]}]
    yield from _causes(job["wait_s_by_cause"], _pools(pool), job["evidence"])


def _pools(pools: list[dict[str, Any]]) -> str:
    """Say how many nodes could be used and how that number is known; '' if it is unknown."""
    if not pools:
        return ""
    low, high = min(pool["nodes"] for pool in pools), max(pool["nodes"] for pool in pools)
    known_by = " or ".join(dict.fromkeys(pool["known_by"] for pool in pools))
    return f" ({'' if low == high else f'{low:,} to '}{_many(high, 'node')}, {known_by})"


def _causes(seconds: dict[str, int | None], pool: str, evidence: str | None = None) -> Iterator[str]:
    """Format one line per cause that took any time, with the nodes concerned or the evidence."""
    total = sum(value or 0 for value in seconds.values())
    for cause in CAUSES:
        if value := seconds[cause.column]:
            more = pool if cause.column in _ASK_OF_NODES else ""
            if evidence and cause.column in _INFERRED:
                more = f"; {fmt.text(evidence)}"
            yield f"  {fmt.duration(value):>12}  {fmt.percent(value / total):>7}  {cause.name}: {cause.meaning}{more}"


def _meanwhile(job: dict[str, Any]) -> Iterator[str]:
    meanwhile = job["meanwhile"]
    if meanwhile is None:
        return
    ahead, passed = meanwhile["ahead"], meanwhile["overtook"]
    yield f"ahead of it when it was submitted: {_several(ahead)}" + (
        "" if passed is None else f"; submitted later and started sooner: {_several(passed)}"
    )
    most = "; those that held most:" if meanwhile["held_by"] else ""
    yield f"meanwhile {_many(meanwhile['held_by_jobs'], 'job')} held {meanwhile['held']}{most}"
    yield from (f"  {_other(row)} for {fmt.duration(row['held_s'])}" for row in meanwhile["held_by"])
    last = "this job started" if job["ran"] is not None else "this job left the queue"
    for row in meanwhile["ended_just_before"]:
        yield f"  {_other(row)} ended just before {last}, at {fmt.moment(row['until_utc'])}"


def _several(counts: dict[str, int]) -> str:
    return f"{_many(counts['jobs'], 'job')} of {_many(counts['users'], 'user')}, {_many(counts['nodes'], 'node')}"


def _other(row: dict[str, Any]) -> str:
    size = ", ".join(_size(row["nodes"], row["gpus"], row["cpus"]))
    return f"{fmt.text(row['job_id'])} of {fmt.text(row['user_name'])}" + (f" ({size})" if size else "")


def _ran(job: dict[str, Any]) -> Iterator[str]:
    ran = job["ran"]
    if ran is None:
        return
    named = f" ({', '.join(fmt.text(name) for name in ran['node_names'])})" if ran["node_names"] else ""
    held = "".join(f", {part}" for part in _held(ran))
    yield (
        f"ran {fmt.duration(ran['run_s'])} on {_many(ran['nodes'], 'node')}{named}{held}; "
        f"exit status {fmt.count(ran['exit_code'])}"
    )
    used = {
        "of its limit": ran["limit_used_share"],
        "of its CPU time": ran["cpu_used_share"],
        _memory(ran): ran["memory_used_share"],
        "of its GPU time by the last readings of Slurm": ran["gpu_used_share"],
        "GPU utilization in the mean": ran["gpu_use"] and ran["gpu_use"]["mean_share"],
        "of the measured GPU time idle": ran["gpu_use"] and ran["gpu_use"]["idle_share"],
    }
    if uses := [f"{fmt.percent(share)} {what}" for what, share in used.items() if share is not None]:
        yield f"used {', '.join(uses)}"
    if len(ran["attempts"]) > 1:
        for row in ran["attempts"]:
            yield (
                f"  attempt {row['attempt']}: waited {fmt.duration(row['wait_s'])}, started "
                f"{fmt.moment(row['start_utc'])}, ran {fmt.duration(row['run_s'])}, {row['state']}"
            )
    for row in ran["steps"]:
        yield f"  step {fmt.text(row['step_id'])}: {row['state']}, ran {fmt.duration(row['run_s'])}{_gpus_of(row)}"
    for row in ran["failures"]:
        yield f"  attempt {row['attempt']} failed: {fmt.text(row['reason'])}"


def _gpus_of(step: dict[str, Any]) -> str:
    """Name the highest readings of a task's GPU utilization and memory, if Slurm recorded them."""
    percent, kib = step["gpu_max_percent"], step["gpu_mem_max_kib"]
    utilization = f", GPU utilization of a task up to {percent:g} %" if percent is not None else ""
    return utilization + (f", GPU memory of a task up to {kib / (1 << 20):,.1f} GiB" if kib is not None else "")


def _memory(ran: dict[str, Any]) -> str:
    """Name the memory used: for a job of several nodes the log holds only that of the largest task."""
    return "of its memory" + ("" if ran["nodes"] == 1 else " by its largest task")


def _held(ran: dict[str, Any]) -> Iterator[str]:
    """Name GPUs and GPU time if the job held any, else cores and core time, else node time, if known."""
    if ran["gpus"] or ran["gpu_time_s"]:
        yield from (_many(ran["gpus"], "GPU"), fmt.unit_time(ran["gpu_time_s"]))
    elif ran["core_time_s"] is not None:
        yield from (_many(ran["cpus"], "core"), fmt.unit_time(ran["core_time_s"], "core"))
    elif ran["node_time_s"] is not None:
        yield fmt.unit_time(ran["node_time_s"], "node")


def _what_if(job: dict[str, Any]) -> Iterator[str]:
    answer = job["what_if"]
    if answer is None:
        yield f"no simulation: {job['why_no_what_if']}"
        return
    if answer["replayed_wait_s"] is None:
        yield "no simulation: with nothing changed, the job does not start within ten days"
        return
    distance_s = answer["distance_s"]
    caution = ""
    if answer["is_held"]:
        caution = ". The record shows that something held it, so it starts when it did under every change"
    elif distance_s is not None:
        than = "more" if distance_s >= 0 else "less"
        caution = f", {fmt.duration(abs(distance_s))} {than} than recorded. Trust only differences larger than that"
    since = "became eligible" if answer["is_from_eligible"] else "was submitted"
    waits = fmt.duration(answer["replayed_wait_s"])
    yield f"simulated from when it {since}: with nothing changed, it waits {waits}{caution}"
    yield from (f"  {line}" for line in answer["said"])
    for row in answer["changes"]:
        what = f"  with {row['change']} ({_many(row['nodes'], 'node')}, {fmt.duration(row['limit_s'])})"
        cut = "; that limit would have ended it early" if row["would_be_cut"] else ""
        difference = row["difference_s"]
        if difference is None:
            yield f"{what} it does not start within ten days{cut}"
        elif abs(difference) < 1:
            yield f"{what} it starts at the same time{cut}"
        else:
            yield f"{what} it starts {fmt.duration(abs(difference))} {'sooner' if difference < 0 else 'later'}{cut}"
