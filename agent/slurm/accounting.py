"""Past jobs from sacct: of the last day, or of the last week if a day has few. One or two calls.

For a policy that looks ahead, the jobs of the last weeks with their names and priorities. A name is free text, so each
field there ends with a random word.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from agent.slurm.commands import Commands, SlurmError, answer_lines
from agent.slurm.numbers import job_identity, job_nodes, time_limit_s, time_s, whole_number
from features.observe import RECENT
from traces.counted import counted
from traces.slurm.text import parse_state
from traces.units import DAY_S

WINDOWS_S = (DAY_S, 7 * DAY_S)  # we use the first with RECENT starts and RECENT ends, else the last
FIELDS = "JobID,User,Partition,State,Submit,Start,End,Timelimit,NNodes"  # no field holds users' free text
NAMED = f"{FIELDS},Priority,JobName"


@dataclass(frozen=True)
class PastJob:
    """A job with its history so far. Times are epoch seconds."""

    id: str  # as `agent.slurm.queue.SqueueJob`
    user: str
    partition: str
    nodes: int
    limit_s: int
    submit_s: int
    start_s: int | None  # None: it did not run
    end_s: int | None  # None: it has not ended
    name: str = ""
    priority: int = 0  # when first seen


@dataclass(frozen=True)
class AccountingRecords:
    """The jobs of a window in accounting, without pending ones. unread: rows that could not be parsed."""

    jobs: tuple[PastJob, ...]
    unread: int = 0


def read_past(commands: Commands, now_s: int) -> AccountingRecords:
    """Read the jobs of all users that ran or ended recently. Raises SlurmError."""
    for window_s in WINDOWS_S:
        text = commands.run(
            "sacct", "--noheader", "--parsable2", "--allusers", "--allocations", f"--format={FIELDS}",
            f"--starttime={_time_text(now_s - window_s)}", f"--endtime={_time_text(now_s)}",
        )  # fmt: skip
        past = parse_past(text)
        ran = [job for job in past.jobs if job.start_s is not None]
        started = sum((job.start_s or 0) >= now_s - window_s for job in ran)
        ended = sum((job.end_s or 0) >= now_s - window_s for job in ran)
        if min(started, ended) >= RECENT:
            break
    return past


def read_named_past(commands: Commands, now_s: int, window_s: int, partitions: Iterable[str]) -> AccountingRecords:
    """Read all users' jobs that ran or ended in the window in those partitions, with names. Raises SlurmError."""
    mark = f"|{secrets.token_hex(6)}|"
    text = commands.run(
        "sacct", "--noheader", "--parsable", f"--delimiter={mark}", "--allusers", "--allocations",
        f"--format={NAMED}", f"--partition={','.join(partitions)}",
        f"--starttime={_time_text(now_s - window_s)}", f"--endtime={_time_text(now_s)}",
    )  # fmt: skip
    return parse_named_past(text, mark)


def parse_named_past(text: str, mark: str) -> AccountingRecords:
    """Parse sacct's output for NAMED, each field ended by `mark`. Raises SlurmError for other output."""
    fields, columns = text.split(mark), NAMED.count(",") + 1
    if (len(fields) - 1) % columns or fields[-1].strip():
        raise SlurmError("nonsense", "sacct", f"it printed {len(fields) - 1} fields, not a multiple of {columns}")
    return _parsed(fields[first : first + columns] for first in range(0, len(fields) - 1, columns))


def parse_past(text: str) -> AccountingRecords:
    """Parse sacct's output. Raises SlurmError if there are rows and none can be parsed."""
    return _parsed(line.split("|") for line in answer_lines("sacct", text))


def _parsed(rows: Iterable[list[str]]) -> AccountingRecords:
    """Parse rows of FIELDS or of NAMED. Raises SlurmError if there are rows and none can be parsed."""
    jobs, unread, count = [], 0, 0
    for row in rows:
        count += 1
        try:
            job = _job(row)
        except ValueError:
            unread += 1
            continue
        if job is not None:
            jobs.append(job)
    if unread and unread == count:
        raise SlurmError("nonsense", "sacct", f"none of {counted(unread, 'row')} could be parsed")
    return AccountingRecords(tuple(jobs), unread)


def _job(row: list[str]) -> PastJob | None:
    """Parse one row; None for a pending job, which the queue shows with all its tasks."""
    columns = FIELDS.count(",") + 1
    if len(row) not in (columns, columns + 2):
        raise ValueError("wrong number of columns")
    identity, user, partition, state, submit, start, end, limit, nodes = (field.strip() for field in row[:columns])
    priority, name = row[columns:] or ("0", "")
    base = parse_state(state)
    if base == "PENDING":
        return None
    start_s, end_s = time_s(start), time_s(end)
    if end_s is not None and end_s == start_s and base == "CANCELLED":
        start_s = None  # it never ran: Slurm before 22.05 writes the cancellation as its start
    return PastJob(
        job_identity(identity), user, partition, job_nodes(nodes), time_limit_s(limit), whole_number(submit), start_s,
        end_s, name, whole_number(priority or "0"),
    )  # fmt: skip


def _time_text(at_s: int) -> str:
    """Format a time for sacct in UTC, because `Commands` runs it in UTC."""
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%M:%S}"
