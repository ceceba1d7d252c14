"""The five files of Microsoft's Philly trace: the job log here, the CSV files in `philly_samples`.

Format: README of the public repository msr-fiddle/philly-traces. A job is one allocation, its scheduling attempts are
runs of it. Times are local to the cluster (America/Los_Angeles) without an offset. Defects that the README names are
read as they are meant: jobs without attempts, times null or 'None', a last attempt without an end (still running).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import orjson
import polars as pl

from traces.errors import InputError
from traces.readers.common import Parsed, RawFile, Reject, shown
from traces.readers.philly_samples import CpuUtilization, GpuUtilization, MachineList, MemoryUtilization

__all__ = ["CpuUtilization", "GpuUtilization", "JobLog", "MachineList", "MemoryUtilization"]

STATUS = {"Pass": "COMPLETED", "Killed": "CANCELLED", "Failed": "FAILED"}
_TIME: dict[str, Any] = {"submit_utc": pl.Datetime("us"), "start_utc": pl.Datetime("us"), "end_utc": pl.Datetime("us")}
_JOBS: dict[str, Any] = {
    "line": pl.Int64, "job_key": pl.String, "job_id": pl.String, "user_name": pl.String, "partition": pl.String,
    "state": pl.String, "state_is_inferred": pl.Boolean, **_TIME, "requested_nodes": pl.Int64,
    "requested_gpus": pl.Int64, "allocated_nodes": pl.Int64, "allocated_gpus": pl.Int64, "run_s": pl.Int64,
    "wait_s": pl.Int64, "gpu_time_s": pl.Int64, "attempts": pl.Int64, "is_time_ambiguous": pl.Boolean,
}  # fmt: skip
_ATTEMPTS: dict[str, Any] = {
    "line": pl.Int64, "job_key": pl.String, "attempt": pl.Int64, **_TIME, "run_s": pl.Int64, "state": pl.String,
    "nodes": pl.Int64, "gpus": pl.Int64, "gpu_time_s": pl.Int64,
}  # fmt: skip
_PLACEMENTS: dict[str, Any] = {
    "job_key": pl.String, "attempt": pl.Int64, "node": pl.String, "gpus": pl.Int64, "gpu_numbers": pl.String,
}  # fmt: skip


class JobLog:
    """The reader of `cluster_job_log`: a JSON list of jobs."""

    name = "philly-jobs"
    version = 1

    def recognises(self, file: RawFile, head: bytes) -> bool:
        """A JSON list of objects with Philly's keys."""
        start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
        return start.startswith(b"[") and b'"jobid"' in head and (b'"attempts"' in head or b'"vc"' in head)

    def read(self, file: RawFile) -> Parsed:
        """All jobs. Raises InputError where the file holds none."""
        zone = ZoneInfo(file.settings.timezone)
        parsed = Parsed()
        jobs: dict[str, dict[str, Any]] = {}
        seen: dict[str, bytes] = {}
        for line, entry, broken in _entries(file.text()):
            parsed.records += 1
            if broken:
                parsed.rejects.append(Reject(line, broken, str(entry)))
                continue
            try:
                job = _job(line, entry, zone)
            except ValueError as error:
                raw = orjson.dumps(entry).decode("utf-8", errors="replace")
                parsed.rejects.append(Reject(line, str(error), raw))
                continue
            key, bytes_ = job["job_key"], orjson.dumps(entry, option=orjson.OPT_SORT_KEYS)
            if key in jobs:
                parsed.duplicates += 1
                if seen[key] == bytes_ or not _is_newer(job, jobs[key]):
                    continue
            jobs[key], seen[key] = job, bytes_
        if parsed.records == 0:
            raise InputError(f"{file.path}: the JSON list holds no job")
        _tables(parsed, list(jobs.values()))
        return parsed


def _is_newer(job: dict[str, Any], old: dict[str, Any]) -> bool:
    """Does the later record of a job tell more: more attempts, or an end where there was none?"""
    return (len(job["runs"]), job["end_utc"] or datetime.min) >= (len(old["runs"]), old["end_utc"] or datetime.min)


def _entries(text: str) -> Iterator[tuple[int, Any, str | None]]:
    """(number, entry, what is wrong) of the list's entries; a list that is cut short is read up to there."""
    try:
        whole = orjson.loads(text)
    except orjson.JSONDecodeError:
        yield from _entries_of_broken(text)
        return
    if not isinstance(whole, list):
        yield 1, text, "not a JSON list of jobs"
        return
    for number, entry in enumerate(whole, 1):
        yield number, entry, None


def _entries_of_broken(text: str) -> Iterator[tuple[int, Any, str | None]]:
    """Entries one by one up to the first that is no JSON; the rest of the text is one broken entry."""
    decoder = json.JSONDecoder()
    at, number = text.find("[") + 1, 0
    skip = re.compile(r"[\s,]*")
    while True:
        found = skip.match(text, at)
        at = found.end() if found else at
        if at >= len(text):
            return
        if text[at] == "]" and not text[at + 1 :].strip():
            return
        number += 1
        try:
            entry, at = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError):
            yield number, text[at : at + 4_000], "no whole JSON entry: the list is cut short or broken here"
            return
        yield number, entry, None


def _job(line: int, entry: Any, zone: ZoneInfo) -> dict[str, Any]:
    """One job with its `runs`. Raises ValueError, with the value, for an entry that is none."""
    if not isinstance(entry, dict):
        raise ValueError(f"entry {shown(str(entry))} is no job")
    key = entry.get("jobid")
    if not isinstance(key, str) or not key:
        raise ValueError(f"jobid {shown(str(key))} is no id")
    status = entry.get("status")
    if status not in STATUS:
        raise ValueError(f"status {shown(str(status))} is none of {', '.join(STATUS)}")
    attempts = entry.get("attempts") or []
    if not isinstance(attempts, list):
        raise ValueError(f"attempts {shown(str(attempts))} is no list")
    submitted = _time(entry.get("submitted_time"), "submitted_time")
    runs = [_run(attempt) for attempt in attempts]
    times, ambiguous = in_order([submitted, *(t for run in runs for t in (run["start"], run["end"]))], zone)
    for number, run in enumerate(runs):
        run["start"], run["end"] = times[1 + 2 * number], times[2 + 2 * number]
        if run["start"] and run["end"] and run["end"] < run["start"]:
            raise ValueError(f"attempt {number} ends {run['end']} before it starts {run['start']} (UTC)")
    last = runs[-1] if runs else None
    state = "RUNNING" if last and last["start"] and last["end"] is None else STATUS[status]
    return {
        "line": line, "job_key": key, "user": _text(entry.get("user")), "vc": _text(entry.get("vc")),
        "state": state, "submit": times[0], "runs": runs, "ambiguous": ambiguous,
        "end_utc": last["end"] if last else None,
    }  # fmt: skip


def _run(attempt: Any) -> dict[str, Any]:
    if not isinstance(attempt, dict):
        raise ValueError(f"attempt {shown(str(attempt))} is no object")
    placed: dict[str, list[int]] = {}
    for detail in attempt.get("detail") or []:
        if not isinstance(detail, dict) or not isinstance(detail.get("ip"), str):
            raise ValueError(f"detail {shown(str(detail))} names no machine")
        gpus = detail.get("gpus") or []
        if not isinstance(gpus, list):
            raise ValueError(f"gpus {shown(str(gpus))} is no list")
        placed.setdefault(detail["ip"], []).extend(_gpu(gpu) for gpu in gpus)
    times = {name: _time(attempt.get(f"{name}_time"), f"{name}_time") for name in ("start", "end")}
    return {**times, "placed": placed, "gpus": sum(map(len, placed.values()))}


def _gpu(name: Any) -> int:
    match = re.fullmatch(r"gpu(\d{1,4})", name) if isinstance(name, str) else None
    if match is None:
        raise ValueError(f"GPU {shown(str(name))} is not gpuN")
    return int(match[1])


def _time(value: Any, what: str) -> datetime | None:
    """A local time without a zone; None for null, 'None' and blank."""
    if value is None or value in ("None", ""):
        return None
    try:
        return datetime.strptime(value, "%Y-%m-%d %H:%M:%S")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} {shown(str(value))} is not YYYY-MM-DD HH:MM:SS") from error


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def in_order(local: list[datetime | None], zone: ZoneInfo) -> tuple[list[datetime | None], bool]:
    """(naive UTC, still ambiguous) of local times that follow each other.

    In the doubled hour of a clock change the first reading that is not before the time before it is taken; it is
    ambiguous where the later reading would fit what follows just as well.
    """
    choices = [[] if t is None else _readings(t, zone) for t in local]
    if all(len(c) < 2 for c in choices):
        return [c[0] if c else None for c in choices], False
    early: list[datetime | None] = []
    before = datetime.min
    for choice in choices:
        early.append(next((t for t in choice if t >= before), choice[0]) if choice else None)
        before = early[-1] or before
    late: list[datetime | None] = []
    after = datetime.max
    for choice in reversed(choices):
        late.append(next((t for t in reversed(choice) if t <= after), choice[-1]) if choice else None)
        after = late[-1] or after
    return early, early != late[::-1]


def _readings(local: datetime, zone: ZoneInfo) -> list[datetime]:
    """The instants (naive UTC, ascending) that a local time may be; in the hour left out, by the offset before it."""
    instants = [local.replace(tzinfo=zone, fold=fold).astimezone(UTC).replace(tzinfo=None) for fold in (0, 1)]
    return [instants[0]] if instants[1] <= instants[0] else instants


def _tables(parsed: Parsed, jobs: list[dict[str, Any]]) -> None:
    """Fill tables and counts from the jobs."""
    job_rows: list[tuple[Any, ...]] = []
    attempt_rows: list[tuple[Any, ...]] = []
    placement_rows: list[tuple[Any, ...]] = []
    for job in jobs:
        key, queued = job["job_key"], job["submit"]
        known: list[tuple[int, int]] = []
        for number, run in enumerate(job["runs"]):
            seconds = int((run["end"] - run["start"]).total_seconds()) if run["start"] and run["end"] else None
            if seconds is not None:
                known.append((seconds, seconds * run["gpus"]))
            # a run that another one follows has failed: Philly retries failures only
            state = job["state"] if run is job["runs"][-1] else "FAILED"
            gpu_time = None if seconds is None else seconds * run["gpus"]
            attempt_rows.append(
                (
                    job["line"],
                    key,
                    number,
                    queued,
                    run["start"],
                    run["end"],
                    seconds,
                    state,
                    len(run["placed"]),
                    run["gpus"],
                    gpu_time,
                )
            )
            queued = run["end"]
            placement_rows.extend(
                (key, number, node, len(gpus), ",".join(map(str, sorted(gpus)))) for node, gpus in run["placed"].items()
            )
        first, last = (job["runs"][0], job["runs"][-1]) if job["runs"] else (None, None)
        start = min((r["start"] for r in job["runs"] if r["start"]), default=None)
        # without the first attempt's start the wait is not known
        wait = int((start - job["submit"]).total_seconds()) if first and first["start"] and job["submit"] else None
        job_rows.append((
            job["line"], key, key, job["user"], job["vc"], job["state"], False, job["submit"], start, job["end_utc"],
            len(first["placed"]) if first else None, first["gpus"] if first else None,
            len(last["placed"]) if last else 0, last["gpus"] if last else 0,
            sum(s for s, _ in known) if known else None, wait if wait is not None and wait >= 0 else None,
            sum(g for _, g in known) if known else None, len(job["runs"]), job["ambiguous"],
        ))  # fmt: skip
    parsed.allocations = parsed.jobs = len(job_rows)
    parsed.attempts = len(attempt_rows)
    parsed.tables = {
        "jobs": pl.DataFrame(job_rows, schema=_JOBS, orient="row"),
        "attempts": pl.DataFrame(attempt_rows, schema=_ATTEMPTS, orient="row"),
        "placements": pl.DataFrame(placement_rows, schema=_PLACEMENTS, orient="row"),
    }
