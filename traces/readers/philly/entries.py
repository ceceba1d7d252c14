"""Slow reader of Philly's job log, entry by entry in plain Python, for entries that differ from the documented format.

It is the slow twin of `traces.readers.philly.columns`: both make the same rows from the same log.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import orjson
import polars as pl

from traces import schema
from traces.readers.common import shown

# The end of one entry and the start of the next. It cannot match inside a text, where quotes are escaped, or between
# two attempts, whose keys differ.
BOUNDARY = re.compile(r'\}\s*,\s*(?=\{\s*"(?:status|vc|jobid|attempts|submitted_time|user)")')
_BETWEEN = re.compile(r"[\s,]*")
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
    "line": pl.Int64, "job_key": pl.String, "attempt": pl.Int64, "node": pl.String, "gpus": pl.Int64,
    "gpu_numbers": pl.String,
}  # fmt: skip


def entries(piece: bytes) -> Iterator[tuple[Any, str | None]]:
    """Yield (entry, what is wrong with it or None) of a JSON list; invalid text is skipped up to the next entry."""
    with contextlib.suppress(orjson.JSONDecodeError):
        whole = orjson.loads(piece)
        if isinstance(whole, list):
            yield from ((entry, None) for entry in whole)
        else:
            yield piece.decode("utf-8", errors="replace"), "not a JSON list of jobs"
        return
    text = piece.decode("utf-8", errors="replace")
    decoder, at = json.JSONDecoder(), text.find("[") + 1
    while True:
        between = _BETWEEN.match(text, at)
        at = between.end() if between else at
        if at >= len(text) or (text[at] == "]" and not text[at + 1 :].strip()):
            return
        try:
            entry, after = decoder.raw_decode(text, at)
            # half a surrogate pair is valid in JSON, but not in UTF-8
            entry = json.loads(json.dumps(entry, ensure_ascii=False).encode("utf-8", errors="replace"))
        except (ValueError, RecursionError):
            next_ = BOUNDARY.search(text, at)
            end = next_.start() + 1 if next_ else len(text)
            yield text[at : min(end, at + 4_000)], "not a whole JSON entry: the list is cut short or broken here"
            at = end
        else:
            at = after
            yield entry, None


def job_of(line: int, entry: Any, zone: ZoneInfo) -> dict[str, Any]:
    """Convert an entry to a job with its `runs`. Raises ValueError, with the value, for an invalid entry."""
    if not isinstance(entry, dict):
        raise ValueError(f"entry {shown(str(entry))} is not a job")
    key = entry.get("jobid")
    if not isinstance(key, str) or not key:
        raise ValueError(f"jobid {shown(str(key))} is not an id")
    status = entry.get("status")
    if not isinstance(status, str) or status not in STATUS:
        raise ValueError(f"status {shown(str(status))} is none of {', '.join(STATUS)}")
    attempts = entry.get("attempts") or []
    if not isinstance(attempts, list):
        raise ValueError(f"attempts {shown(str(attempts))} is not a list")
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
        raise ValueError(f"attempt {shown(str(attempt))} is not an object")
    placed: dict[str, list[int]] = {}
    details = attempt.get("detail") or []
    if not isinstance(details, list):
        raise ValueError(f"detail {shown(str(details))} is not a list")
    for detail in details:
        if not isinstance(detail, dict) or not isinstance(detail.get("ip"), str):
            raise ValueError(f"detail {shown(str(detail))} names no machine")
        gpus = detail.get("gpus") or []
        if not isinstance(gpus, list):
            raise ValueError(f"gpus {shown(str(gpus))} is not a list")
        placed.setdefault(detail["ip"], []).extend(_gpu(gpu) for gpu in gpus)
    times = {name: _time(attempt.get(f"{name}_time"), f"{name}_time") for name in ("start", "end")}
    return {**times, "placed": placed, "gpus": sum(map(len, placed.values()))}


def _gpu(name: Any) -> int:
    match = re.fullmatch(r"gpu(\d{1,4})", name) if isinstance(name, str) else None
    if match is None:
        raise ValueError(f"GPU {shown(str(name))} is not gpuN")
    return int(match[1])


def _time(value: Any, what: str) -> datetime | None:
    """Parse a local time without a zone; None for null, 'None' and blank."""
    if value is None or value in ("None", ""):
        return None
    try:
        time = datetime.strptime(value, "%Y-%m-%d %H:%M:%S")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} {shown(str(value))} is not YYYY-MM-DD HH:MM:SS") from error
    if not schema.FIRST_UTC <= time <= schema.LAST_UTC:
        raise ValueError(f"{what} {shown(value)} is not from {schema.FIRST_UTC} to {schema.LAST_UTC}")
    return time


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def in_order(local: list[datetime | None], zone: ZoneInfo) -> tuple[list[datetime | None], bool]:
    """Convert local times in ascending order to (naive UTC, still ambiguous).

    In the repeated hour of a clock change, this takes the first reading that is not before the previous time. The
    result is ambiguous if the later reading would fit the following times too.
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
    """Return the possible instants of a local time (naive UTC, ascending).

    A time in the hour that a clock change skips is read with the offset before the change.
    """
    instants = [local.replace(tzinfo=zone, fold=fold).astimezone(UTC).replace(tzinfo=None) for fold in (0, 1)]
    return [instants[0]] if instants[1] <= instants[0] else instants


def tables_of(jobs: list[dict[str, Any]]) -> dict[str, pl.DataFrame]:
    """Return the tables jobs, attempts and placements."""
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
            # the log does not record whether a run followed by another failed or was preempted
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
                (job["line"], key, number, node, len(gpus), ",".join(map(str, sorted(gpus))))
                for node, gpus in run["placed"].items()
            )
        first, last = (job["runs"][0], job["runs"][-1]) if job["runs"] else (None, None)
        start = min((r["start"] for r in job["runs"] if r["start"]), default=None)
        # without the first attempt's start the wait is unknown
        wait = int((start - job["submit"]).total_seconds()) if first and first["start"] and job["submit"] else None
        job_rows.append((
            job["line"], key, key, job["user"], job["vc"], job["state"], False, job["submit"], start, job["end_utc"],
            len(first["placed"]) if first else None, first["gpus"] if first else None,
            len(last["placed"]) if last else 0, last["gpus"] if last else 0,
            sum(s for s, _ in known) if known else None, wait if wait is not None and wait >= 0 else None,
            sum(g for _, g in known) if known else None, len(job["runs"]), job["ambiguous"],
        ))  # fmt: skip
    return {
        "jobs": pl.DataFrame(job_rows, schema=_JOBS, orient="row"),
        "attempts": pl.DataFrame(attempt_rows, schema=_ATTEMPTS, orient="row"),
        "placements": pl.DataFrame(placement_rows, schema=_PLACEMENTS, orient="row"),
    }
