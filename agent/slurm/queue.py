"""The pending, running and recently ended jobs of all users: one call of squeue.

We read squeue's long format because it is stable across versions. `--json` (`agent.slurm.json_form`) is not: its fields
change names and types, and a job takes over ten times the bytes. User text (names, comments) may hold any character,
including line breaks, so each field ends with a word that is random for each call.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from agent.slurm.commands import Commands, SlurmError
from agent.slurm.numbers import MOST_SHOWN, job_identity, job_nodes, time_limit_s, time_s, whole_number
from traces.counted import counted

JOBS = "jobs"  # a value of Queue.hidden
FIELDS = (
    "JobArrayID", "Name", "UserName", "Account", "Partition", "QOS", "State", "Reason", "NumNodes", "TimeLimit",
    "SubmitTime", "StartTime", "EndTime", "PriorityLong", "RestartCnt", "Comment", "NodeList",
)  # fmt: skip
ENDED = frozenset({
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
})  # fmt: skip


def is_launch_held(reason: str) -> bool:
    """Whether squeue's reason says that a node refused the job and Slurm holds it; newer versions write _ for blanks.

    Only an administrator can release such a job.
    """
    return reason.replace("_", " ") == "launch failed requeued held"


@dataclass(frozen=True)
class SqueueJob:
    """A job, or one array task, as squeue shows it. Times are epoch seconds."""

    id: str  # "123", or "123_4" for an array task
    name: str
    user: str
    account: str
    partition: str  # for a pending job possibly several, separated by commas
    qos: str
    state: str  # squeue's long form: PENDING, RUNNING, COMPLETING, SUSPENDED ...
    reason: str  # why it pends: Priority, Resources, Dependency ...; "None"
    nodes: int
    limit_s: int  # UNLIMITED_S if it has none
    submit_s: int
    start_s: int | None  # for a pending job, Slurm's estimate if there is one
    end_s: int | None
    priority: int
    restarts: int
    comment: str
    node_list: str = ""  # the nodes that it holds, as Slurm writes them


@dataclass(frozen=True)
class Queue:
    """Every job that the user may see at an instant.

    jobs: those that pend, run or complete. ended: those that Slurm still remembers (slurm.conf: MinJobAge). hidden:
    holds JOBS if other users' jobs are not shown. unread: rows that could not be parsed. form: one line if queue or
    nodes were read from JSON instead of text.
    """

    now_s: int
    jobs: tuple[SqueueJob, ...]
    hidden: frozenset[str]
    ended: tuple[SqueueJob, ...] = ()
    unread: int = 0
    form: str = ""


def read_queue(commands: Commands, now_s: int) -> Queue:
    """Read the queue of all users in all partitions, array tasks one by one. Raises SlurmError."""
    mark = f"|{secrets.token_hex(6)}|"
    layout = ",".join(f"{field}:0{mark}" for field in FIELDS)
    text = commands.run("squeue", "--noheader", "--all", "--array", "--states=all", f"--Format={layout}")
    return parse_queue(text, mark, now_s)


def parse_queue(text: str, mark: str, now_s: int) -> Queue:
    """Parse squeue's output, each field ended by `mark`. Raises SlurmError if the fields are not those of FIELDS."""
    fields = text.split(mark)
    if (len(fields) - 1) % len(FIELDS) or fields[-1].strip():
        raise SlurmError("nonsense", "squeue", f"it printed {len(fields) - 1} fields, not a multiple of {len(FIELDS)}")
    alive: list[SqueueJob] = []
    ended: list[SqueueJob] = []
    unread = 0
    for first in range(0, len(fields) - 1, len(FIELDS)):
        try:
            job = _job(dict(zip(FIELDS, fields[first : first + len(FIELDS)], strict=True)))
        except ValueError:
            unread += 1
            continue
        (ended if job.state in ENDED else alive).append(job)
    if unread and not alive and not ended:
        raise SlurmError("nonsense", "squeue", f"none of {counted(unread, 'row')} could be parsed")
    return Queue(now_s, tuple(alive), frozenset(), tuple(ended), unread)


def _job(row: dict[str, str]) -> SqueueJob:
    return SqueueJob(
        id=job_identity(row["JobArrayID"].strip()),
        name=_text(row["Name"]),
        user=_text(row["UserName"]),
        account=_text(row["Account"]),
        partition=_text(row["Partition"]),
        qos=_text(row["QOS"]),
        state=row["State"].strip()[:MOST_SHOWN],
        reason=row["Reason"].strip()[:MOST_SHOWN],
        nodes=job_nodes(row["NumNodes"]),
        limit_s=time_limit_s(row["TimeLimit"]),
        submit_s=whole_number(row["SubmitTime"]),
        start_s=time_s(row["StartTime"]),
        end_s=time_s(row["EndTime"]),
        priority=whole_number(row["PriorityLong"]),
        restarts=whole_number(row["RestartCnt"]),
        comment=_text(row["Comment"]),
        node_list=_text(row["NodeList"]),
    )


def _text(field: str) -> str:
    """Return a text field; Slurm writes (null) if it is not set."""
    return "" if field == "(null)" else field
