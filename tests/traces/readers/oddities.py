"""Oddities of sacct, one an entry: what is printed, by which Slurm or which source, and what becomes of it.

Rows are made by hand after the source named, with invented names. `docs/oddities.md` is generated from this table.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

HEADER = (
    "JobID|JobIDRaw|JobName|User|Partition|State|ExitCode|Submit|Eligible|Start|End|ElapsedRaw|TimelimitRaw|NNodes|"
    "AllocCPUS|ReqMem|ReqTRES|AllocTRES|NodeList|Flags"
)
TRES = "billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G,node=2"
_PLAIN = {
    "JobName": "train.sh", "User": "alice", "Partition": "gpu", "State": "COMPLETED", "ExitCode": "0:0",
    "Submit": "2024-05-01T10:00:00", "Eligible": "2024-05-01T10:00:00", "Start": "2024-05-01T10:30:00",
    "End": "2024-05-01T11:30:00", "ElapsedRaw": "3600", "TimelimitRaw": "120", "NNodes": "2", "AllocCPUS": "8",
    "ReqMem": "64G", "ReqTRES": TRES, "AllocTRES": TRES, "NodeList": "n[01-02]", "Flags": "SchedMain",
}  # fmt: skip
NEVER = {"ElapsedRaw": "0", "AllocTRES": "", "NodeList": "None assigned", "State": "CANCELLED by 7"}
_AUTUMN = {"Submit": "2022-11-06T00:10:00", "Eligible": "2022-11-06T00:10:00", "Start": "2022-11-06T01:30:00",
           "End": "2022-11-06T03:00:00"}  # fmt: skip
_SPRING = {"Submit": "2023-03-12T01:50:00", "Eligible": "2023-03-12T01:50:00", "Start": "2023-03-12T01:59:00"}


@dataclass(frozen=True)
class Oddity:
    """`lines` under HEADER; `job`: columns of its one job, or None where the record is refused. `{id}` is its id."""

    name: str
    source: str
    lines: tuple[str, ...]
    becomes: str
    job: dict[str, Any] | None = field(default_factory=dict)
    timezone: str = "UTC"

    @property
    def raw(self) -> str:
        return "\n".join(self.lines)


def row(**other: str) -> str:
    """A line of a plain job of one hour, and what is said otherwise."""
    values = {"JobID": "{id}", "JobIDRaw": "{id}", **_PLAIN, **other}
    return "|".join(values[name] for name in HEADER.split("|"))


def _one(name: str, source: str, becomes: str, other: dict[str, str], job: dict[str, Any] | None, **how: str) -> Oddity:
    return Oddity(name, source, (row(**other),), becomes, job, **how)


MAN = "sacct(1)"
LAB = "dump of a Slurm 22.05.8"
NONE = {"start_utc": None, "wait_s": None, "run_s": None, "attempts": 0, "allocated_gpus": 0, "requested_gpus": 4}

ODDITIES = (
    _one("CANCELLED by UID", MAN, "state CANCELLED; the user id is left out", {"State": "CANCELLED by 1000"}, {"state": "CANCELLED"}),
    _one("a state cut by a fixed width", "sacct without -P", "completed where one state fits", {"State": "OUT_OF_ME+"}, {"state": "OUT_OF_MEMORY"}),
    _one("a compact state", "squeue(1) codes", "its base state", {"State": "TO"}, {"state": "TIMEOUT"}),
    _one("a flag in place of the state", "Slurm 23.11", "the base state that it implies", {"State": "COMPLETING"}, {"state": "RUNNING"}),
    _one("a state that is none", "slurm.h, JOB_END", "UNKNOWN", {"State": "?"}, {"state": "UNKNOWN"}),
    _one("a state of a later Slurm", "made by hand", "UNKNOWN; its text is named once a run and kept in other_flags", {"State": "FLYING"}, {"state": "UNKNOWN", "run_s": 3600, "other_flags": "FLYING"}),
    _one("a state with a digit", "made by hand", "UNKNOWN; its text is named once a run and kept in other_flags", {"State": "WARP2"}, {"state": "UNKNOWN", "other_flags": "WARP2"}),
    _one("a flag of a later Slurm", "made by hand", "kept as text in other_flags, and named once a run", {"Flags": "SchedMain,Teleported"}, {"started_by": "main", "other_flags": "Teleported"}),
    _one("a misspelled flag", "StartRecieved, sacct of Slurm 22.05", "is StartReceived, which is not kept", {"Flags": "SchedBackfill,StartRecieved"}, {"started_by": "backfill", "other_flags": None}),
    _one("exit signal", MAN, "code and signal apart", {"ExitCode": "0:9", "State": "FAILED"}, {"exit_code": 0, "exit_signal": 9}),
    _one("signal of the prolog", "Slurm 22.05, 0:53", "kept as it is", {"ExitCode": "0:53", "State": "FAILED"}, {"exit_code": 0, "exit_signal": 53}),
    _one("an exit code that lacks 128", "sacct of Slurm 22.05 and 24.11, exit 137", "as printed, and marked: 9 may be 137", {"ExitCode": "9:0", "State": "FAILED"}, {"exit_code": 9, "exit_code_form": "128 may be missing"}),
    _one("UNLIMITED", MAN, "no limit", {"TimelimitRaw": "UNLIMITED"}, {"limit_s": None}),
    _one("Partition_Limit", MAN, "no limit of its own", {"TimelimitRaw": "Partition_Limit"}, {"limit_s": None}),
    _one("a limit in days", "sacct Timelimit", "seconds", {"TimelimitRaw": "2-00:00:00"}, {"limit_s": 172_800}),
    _one("a limit raised while it ran", "scontrol update TimeLimit", "the last limit; the run is not cut", {"TimelimitRaw": "30"}, {"limit_s": 1800, "run_s": 3600, "state": "COMPLETED"}),
    _one("elapsed INVALID", "Slurm 20.11, clock set back", "refused: ElapsedRaw is a number", {"ElapsedRaw": "INVALID"}, None),
    _one("cancelled while pending, since 22.05", "Slurm 22.05, Start None", "no start, no wait, no attempt", {**NEVER, "Start": "None"}, NONE),
    _one("cancelled while pending, before 22.05", "bug 7449, Start = End", "no start, no wait, no attempt", {**NEVER, "Start": "2024-05-01T11:30:00"}, NONE),
    _one("pending", MAN, "no start, no end", {**NEVER, "State": "PENDING", "Start": "Unknown", "End": "Unknown"}, {**NONE, "state": "PENDING", "end_utc": None}),
    _one("pending tasks of an array", MAN, "one job under its range", {**NEVER, "JobID": "77_[4-10%2]", "State": "PENDING", "Start": "Unknown", "End": "Unknown"}, {**NONE, "job_id": "77_[4-10%2]", "array_job_id": 77, "array_task_id": None}),
    _one("a range cut at 64 bytes", "SLURM_BITSTR_LEN", "one job under what is left of it", {**NEVER, "JobID": "78_[1,3,5,7,9,11,13,15,17,...", "State": "PENDING", "Start": "Unknown", "End": "Unknown"}, {**NONE, "array_job_id": 78}),
    _one("a task of an array", MAN, "its own job, with array and task", {"JobID": "90_7"}, {"array_job_id": 90, "array_task_id": 7}),
    _one("a component of a het job", "sacct(1), HETEROGENEOUS JOBS", "its own job by JobIDRaw", {"JobID": "90+1"}, {"job_id": "90+1", "array_job_id": None}),
    _one("cancelled in its first second", LAB, "it ran: nodes are assigned", {"State": "CANCELLED by 7", "End": "2024-05-01T10:30:00", "ElapsedRaw": "0"}, {"run_s": 0, "wait_s": 1800, "attempts": 1}),
    _one("still running", MAN, "no end; run time so far", {"State": "RUNNING", "End": "Unknown", "ElapsedRaw": "60"}, {"end_utc": None, "run_s": 60}),
    _one("eligible later than submitted", MAN, "two waits", {"Eligible": "2024-05-01T10:20:00"}, {"wait_s": 1800, "eligible_wait_s": 600}),
    _one("never eligible", MAN, "no eligible wait", {"Eligible": "Unknown"}, {"eligible_wait_s": None, "wait_s": 1800}),
    _one("eligible after it started", "scontrol requeue, " + LAB, "no eligible wait: the requeue has overwritten it", {"Eligible": "2024-05-01T10:40:00"}, {"eligible_wait_s": None, "wait_s": 1800}),
    _one("start after end", "sacct clamps it", "start = end, and flagged", {"Start": "2024-05-01T12:00:00", "ElapsedRaw": "0"}, {"wait_s": 5400, "is_end_before_start": True}),
    _one("suspended", "ElapsedRaw leaves it out", "elapsed seconds are the run time", {"ElapsedRaw": "3000"}, {"run_s": 3000}),
    _one("memory a node", "Slurm before 21.08, 48000Mn", "times the nodes", {"ReqTRES": "", "ReqMem": "48000Mn"}, {"requested_mem_mib": 96_000}),
    _one("memory a CPU", "Slurm before 21.08, 1000Mc", "times the CPUs", {"ReqTRES": "", "ReqMem": "1000Mc"}, {"requested_mem_mib": 8000}),
    _one("memory unset", "0n", "not known", {"ReqTRES": "", "ReqMem": "0n"}, {"requested_mem_mib": None}),
    _one("memory with decimals", "62.50G", "MiB", {"ReqTRES": "", "ReqMem": "62.50G"}, {"requested_mem_mib": 64_000}),
    _one("typed and untyped GPUs", "gres/gpu:a100=4,gres/gpu=4", "the same GPUs, counted once", {}, {"allocated_gpus": 4, "gpu_time_s": 14_400}),
    _one("typed GPUs alone", "gres/gpu not in AccountingStorageTRES", "the sum of the types", {"AllocTRES": "gres/gpu:a=1,gres/gpu:b=2"}, {"allocated_gpus": 3}),
    _one("MIG-like types", "gres.conf, nvidia MIG", "slices are counted as GPUs of their type", {"AllocTRES": "gres/gpu:1g.5gb=2,gres/gpu:a100_3g.20gb=1"}, {"allocated_gpus": 3}),
    _one("shards", "gres/shard", "are no GPUs", {"AllocTRES": "cpu=1,gres/shard=8"}, {"allocated_gpus": 0}),
    _one("usage beside the count", "gres/gpumem, gres/gpuutil", "are no GPUs", {"AllocTRES": "gres/gpu=2,gres/gpumem=40G,gres/gpuutil=93"}, {"allocated_gpus": 2}),
    _one("energy unset", "energy=18446744073709551614", "left out", {"AllocTRES": "cpu=1,energy=18446744073709551614,gres/gpu=1"}, {"allocated_gpus": 1}),
    _one("a count with a unit", "sacct without --noconvert", "the number", {"AllocCPUS": "1.50K"}, {"allocated_cpus": 1500}),
    _one("a count that means none", "NO_VAL of slurm.h", "not known", {"AllocCPUS": "4294967294", "AllocTRES": "gres/gpu=4"}, {"allocated_cpus": None}),
    _one("CPUs in AllocTRES alone", "a dump without AllocCPUS", "the CPUs held", {"AllocCPUS": "", "AllocTRES": "cpu=6,node=2"}, {"allocated_cpus": 6}),
    _one("memory in AllocTRES", MAN, "the memory held, in MiB", {"AllocTRES": "cpu=8,mem=62.50G,node=2"}, {"allocated_mem_mib": 64_000, "requested_mem_mib": 65_536}),
    _one("no memory in AllocTRES", "SelectTypeParameters=CR_Core", "memory held is not known", {"AllocTRES": "cpu=8,node=2"}, {"allocated_mem_mib": None}),
    _one("node lists", "cpn-f13-03-[01-02],cpn-f15", "a placement a node", {"NodeList": "cpn-f13-03-[01-02],cpn-f15", "NNodes": "3"}, {"allocated_nodes": 3}),
    _one("several brackets in a name", "r[1-2]n[1-2]", "their product", {"NodeList": "r[1-2]n[1-2]", "NNodes": "4"}, {"allocated_nodes": 4}),
    _one("a node list that runs back", "made by hand", "refused", {"NodeList": "n[9-1]"}, None),
    _one("epoch seconds", "SLURM_TIME_FORMAT=%s", "the instant", {"Submit": "1714557600"}, {"wait_s": 1800}),
    _one("a space for the T", "SLURM_TIME_FORMAT='%F %T'", "the same time", {"Submit": "2024-05-01 10:00:00"}, {"wait_s": 1800}),
    _one("an offset from UTC", "SLURM_TIME_FORMAT=%FT%T%z", "the instant, whatever the zone", {"Submit": "2024-05-01T05:00:00-0500"}, {"wait_s": 1800}),
    _one("a relative time", "SLURM_TIME_FORMAT=relative", "refused: it says no year", {"Submit": "1 May 10:00"}, None),
    _one("a day before its month", "SLURM_TIME_FORMAT=%d/%m/%Y", "refused: 01/05 may be either", {"Submit": "01/05/2024 10:00:00"}, None),
    _one("a name of several words", "accounts kept in Active Directory", "as it is", {"User": "domain users"}, {"user_name": "domain users"}),
    _one("30 February", "made by hand", "refused", {"Submit": "2024-02-30T10:00:00"}, None),
    _one("a time that is none", "made by hand", "refused", {"Submit": "yesterday"}, None),
    _one("the doubled hour, first pass", "2022-11-06, US Central", "elapsed seconds settle it", {**_AUTUMN, "ElapsedRaw": "9000"}, {"run_s": 9000, "wait_s": 4800, "is_time_ambiguous": False}, timezone="America/Chicago"),
    _one("the doubled hour, second pass", "2022-11-06, US Central", "elapsed seconds settle it", {**_AUTUMN, "ElapsedRaw": "5400"}, {"run_s": 5400, "wait_s": 8400, "is_time_ambiguous": False}, timezone="America/Chicago"),
    _one("over the spring change", "2023-03-12, US Central", "one hour, not two", {**_SPRING, "End": "2023-03-12T03:59:00"}, {"run_s": 3600}, timezone="America/Chicago"),
    _one("in the hour that spring leaves out", "2023-03-12, US Central", "read by the offset before", {**_SPRING, "End": "2023-03-12T02:59:00"}, {"run_s": 3600}, timezone="America/Chicago"),
    *(
        _one(f"a name with {what}", "firecrest-v2 #148, reportseff #31; " + LAB, "put together again", {"JobName": name}, {"job_name": name})
        for what, name in (
            ("the delimiter", "a|b"), ("a line break", "two\nlines"), ("both", "a|b\nc|d"), ("only the delimiter", "|"),
            ("a tab", "tab\there"), ("a carriage return", "carriage\rreturn"), ("control characters", "bell\x07esc\x1b[31m"),
            ("a unit separator", "unit\x1fseparator"), ("an empty line", "x\n\ny"), ("1,024 characters", "x" * 1024),
            ("a forged id", "100|100|forged"), ("the start of another record", "x\n999|999|evil"), ("the start of a job's record before it", "x\n1|1|evil"),
            ("the start of two records", "x\n999|999|evil\n1|1|y"), ("quotes", '"quoted" \'name\''), ("U+FFFD for bad UTF-8", "caf\ufffd"),
        )
    ),
    *(
        _one(f"{what} beyond any machine", "made by hand", "refused, with the bound", other, None)
        for what, other in (
            ("GPUs", {"AllocTRES": "gres/gpu=4611686018427387903"}), ("GPUs of two types", {"ReqTRES": f"gres/gpu:a={1 << 20},gres/gpu:b=1"}),
            ("nodes", {"NNodes": "1048577"}), ("CPUs", {"AllocCPUS": "268435457"}), ("memory", {"ReqMem": f"{'9' * 18}E"}),
            ("memory of all nodes", {"ReqTRES": "", "ReqMem": "1048576Tn"}), ("a run", {"ElapsedRaw": "4294967296"}),
            ("a time", {"End": "2106-02-06T06:28:17"}), ("a time before all", {"Submit": "1969-12-30T10:00:00"}),
            ("GPU time", {"AllocTRES": "gres/gpu=1048576", "ElapsedRaw": "16777217", "End": "2024-11-11T14:50:17"}),
            ("a limit", {"TimelimitRaw": "4294967297"}),
        )
    ),
    _one("as many GPUs as any machine has", "made by hand", "read", {"AllocTRES": "gres/gpu=1048576"}, {"gpu_time_s": 3600 << 20}),
    Oddity("requeued", "sacct -D, " + LAB, (row(State="NODE_FAIL"), row(Submit="2024-05-01T11:30:05", Start="2024-05-01T12:00:00", End="2024-05-01T13:00:00")), "one job of two attempts; its wait is the first", {"attempts": 2, "run_s": 7200, "wait_s": 1800, "state": "COMPLETED"}),
    Oddity("preempted and requeued", "sacct -D, PreemptMode=REQUEUE", (row(State="PREEMPTED"), row(Submit="2024-05-01T11:30:05", Start="2024-05-01T12:00:00", End="2024-05-01T13:00:00")), "one job of two attempts", {"attempts": 2, "gpu_time_s": 28_800}),
    Oddity("resized", "scontrol update NumNodes, " + LAB, (row(State="RESIZING", End="2024-05-01T11:00:00", ElapsedRaw="1800"), row(Submit="2024-05-01T11:00:00", NNodes="1", NodeList="n01", AllocTRES="gres/gpu=2")), "two attempts, no second twice", {"attempts": 2, "run_s": 3600, "gpu_time_s": 10_800, "allocated_nodes": 1}),
    Oddity("printed running, then finished", "two dumps in one file", (row(State="RUNNING", End="Unknown", ElapsedRaw="60"), row()), "the finished record; the other is a duplicate", {"attempts": 1, "state": "COMPLETED", "run_s": 3600}),
    Oddity("a pending range gone stale", "sacct during an array's last task", (row(**{**NEVER, "JobID": "79_[4-10]", "State": "PENDING", "Start": "Unknown", "End": "Unknown"}), row(JobID="79_10")), "the task that took the array's own id; the range is a duplicate", {"job_id": "79_10", "array_task_id": 10, "attempts": 1}),
    Oddity("printed twice", "overlapping windows of -S and -E", (row(), row()), "one job, one duplicate", {"attempts": 1}),
    Oddity("a step after its job", MAN, (row(), row(JobID="{id}.batch", JobIDRaw="{id}.batch", JobName="batch")), "a row of steps", {"attempts": 1, "job_name": "train.sh"}),
    Oddity("a line cut short", "the end of a full disk", (row()[:60],), "refused", None),
)  # fmt: skip


@dataclass(frozen=True)
class OddFile:
    """A whole dump. Its jobs have these `users`, and each the columns of `job`; `rejects` records are refused."""

    name: str
    source: str
    content: str | bytes
    becomes: str
    users: dict[str, int] = field(default_factory=lambda: {"alice": 2})
    rejects: int = 0
    file: str = "dump.psv"
    job: dict[str, Any] = field(default_factory=lambda: {"wait_s": 1800, "state": "COMPLETED"})

    @property
    def data(self) -> bytes:
        return self.content if isinstance(self.content, bytes) else self.content.encode()


def _lines(*rows: str) -> str:
    return "".join(f"{line}\n" for line in rows)


def _job(number: int, **other: str) -> str:
    return row(**other).replace("{id}", str(number))


_NARROW = ("JobID", "JobName", "User", "Submit", "Start", "End", "State", "Comment")


def _fixed(
    *rows: dict[str, str],
    widths: tuple[int, ...] = (8, 8, 9, 19, 19, 19, 10, 9),
    names: tuple[str, ...] = _NARROW,
) -> str:
    head = " ".join(name[:width].rjust(width) for name, width in zip(names, widths, strict=True))
    dashes = " ".join("-" * width for width in widths)
    found = (
        " ".join(
            (text if len(text) <= width else text[: width - 1] + "+").rjust(width)
            for text, width in zip(({**_PLAIN, "Comment": "", **r}[name] for name in names), widths, strict=True)
        )
        for r in rows
    )
    return "".join(f"{line} \n" for line in (head, dashes, *found))


def _json(number: int, state: Any = "COMPLETED", since_s: int = 0, **other: Any) -> str:
    """A job of `sacct --json` like the plain one, `since_s` later."""
    times = {"submission": 1_714_557_600, "start": 1_714_559_400, "end": 1_714_563_000}
    found = {"account": "ml", "job_id": number, "state": {"current": state}, **other, "user": "alice"}
    shifted = {**{name: at + since_s for name, at in times.items()}, "elapsed": 3600}
    return json.dumps({**found, "time": {**shifted, **({"limit": other["limit"]} if "limit" in other else {})}})


def _documents(*jobs: str, meta: str = '{"Slurm": {}}') -> str:
    """The last job in a document of its own, the others in one before it."""
    lists = [", ".join(jobs[:-1]), jobs[-1]]
    return "\n".join(f'{{"meta": {meta}, "jobs": [{found}], "errors": []}}' for found in lists)


_ALL = "Account|AdminComment|Comment|Constraints|Elapsed|JobID|JobName|Layout|NCPUS|NNodes|" + (
    "NodeList|Priority|Reason|Restarts|Start|State|Submit|SubmitLine|Suspended|User|WorkDir|End"
)


def _all(number: int, **other: str) -> str:
    """A line under `_ALL`, whose columns are in the order of sacct --format=ALL."""
    more = {
        "Elapsed": "01:00:00", "NCPUS": "8", "Restarts": "0", "SubmitLine": "sbatch a", "Suspended": "00:00:00",
        "WorkDir": "/tmp",
    }  # fmt: skip
    values = {**_PLAIN, **more, "JobID": str(number), "Account": "ml", "Priority": "9", **other}
    return "|".join(values.get(name, "") for name in _ALL.split("|"))


_FLAGGED = "End|ExitCode|Extra|FailedNode|Flags|GID|Group|JobID|JobIDRaw|JobName|NNodes|Start|State|Submit|User"


def _flagged(number: int, name: str) -> str:
    """A line under `_FLAGGED`, whose columns are in the order of sacct --format=ALL of Slurm 26.05."""
    more = {"Flags": "SchedMain,StartReceived", "GID": "0", "Group": "root", "JobIDRaw": str(number), "JobName": name}
    values = {**_PLAIN, **more, "JobID": str(number)}
    return "|".join(values.get(column, "") for column in _FLAGGED.split("|"))


_SOON = {"Submit": "2024-05-01T11:30:05", "Start": "2024-05-01T12:00:00", "End": "2024-05-01T13:00:00"}
_LATER = {"Submit": "2024-07-01T10:00:00", "Start": "2024-07-01T12:00:00", "End": "2024-07-01T13:00:00"}
_TWO = _lines(HEADER, _job(1), _job(2))
_OTHER = _lines("User|JobID|Account|Submit|Start|End|State|Comment", *(
    f"bob|{n}|cv|2024-05-02T10:00:00|2024-05-02T10:30:00|2024-05-02T11:30:00|COMPLETED|" for n in (3, 4)
))  # fmt: skip
_SWAPPED = _lines(HEADER.replace("User|Partition", "Partition|User"), _job(3, User="gpu", Partition="alice"))
_SWAP = HEADER.replace("User|Partition", "Partition|User")
_FORGED = _lines(HEADER, _job(1, JobName=f"a\n{_job(9)}\n{_SWAP}\n{_job(8)}\nb"), _job(2))
_CSV = _lines(*(",".join(f'"{field}"' for field in line.split("|")) for line in _TWO.split("\n")[:-1]))
_FRAME = _lines(*(f"{at}{line}" for at, line in zip(("", "0", "1"), _lines(*(
    "," + ",".join(f'"{field}"' if "," in field else field for field in line.split("|")) for line in _TWO.split("\n")[:-1]
)).split("\n"), strict=False)))  # fmt: skip
FILES = (
    OddFile("a header again", "cat of daily dumps", _TWO + HEADER + "\n" + _job(3) + "\n", "read on", {"alice": 3}),
    OddFile("other columns further down", "cat of dumps of other --format", _TWO + _OTHER, "read by the columns of the header above", {"alice": 2, "bob": 2}),
    OddFile("two columns changed over", "cat of dumps of other --format", _TWO + _SWAPPED, "read by the columns of the header above", {"alice": 3}),
    OddFile("a header in a job's name", "made by hand", _FORGED, "is text of that name, and so are the records around it"),
    OddFile("a record forged in a comment", "made by hand", _lines(HEADER.replace("Flags", "Comment|Container"), _job(1) + "|", _job(2, Flags="x\n" + _job(9) + "|\ny") + "|", _job(3) + "|"), "several readings: refused whole", {"alice": 2}, 1),
    OddFile("a record and the start of another in a name", "made by hand", _lines(HEADER, _job(1), _job(2), _job(3, JobName=f"x\n{_job(999)}\n998|998|y"), _job(4)), "is text of that name", {"alice": 4}),
    OddFile("a record forged in its place among the ids", "made by hand", _lines(HEADER, _job(1), _job(2, JobName="x\n3|3|evil"), _job(5)), "it may be text, or the line before it cut short: both refused", {"alice": 2}, 1),
    OddFile("a name that ends in a column's text", "made by hand", _lines(HEADER, _job(4), _job(5, JobName="x|bob|gpu|FAI\n3|3|evil"), _job(6)), "its ids are out of order: refused whole", {"alice": 2}, 1),
    OddFile("a line cut short before others", "a disk that was full", _lines(HEADER, _job(1), _job(2)[:60], _job(3)), "refused, the rest is read", {"alice": 2}, 1),
    OddFile("text before the header", "2>&1, a shell's echo", "sacct: error: slurmdbd: retry\n" + _TWO, "refused line by line, the rest is read", rejects=1),
    OddFile("a byte order mark and CR LF", "a dump through Windows", ("\ufeff" + _TWO).replace("\n", "\r\n"), "left out"),
    OddFile("quoted CSV", "R write.csv", _CSV, "quotes are taken off", file="dump.csv"),
    OddFile("CSV of a data frame", "pandas to_csv, with its index", _FRAME, "quotes are taken off, the index is not read", file="dump.csv"),
    OddFile("JSON documents one after the other", "cat of daily sacct --json", _documents(_json(1), _json(2)), "read on", file="dump.json"),
    OddFile("a list of jobs inside another value", "made by hand", _documents(_json(1), _json(2), meta='{"jobs": []}'), "is not the list of the document", file="dump.json"),
    OddFile("a JSON record that is broken", "a raw line break, a missing number", _documents(_json(1), _json(3)[:-9], _json(2)), "refused, with its extent; read on behind it", rejects=1, file="dump.json"),
    OddFile("a requeued run in JSON", "Slurm 24.11 and 26.05, every data_parser", _documents(_json(1, ["PENDING", "REQUEUED"]), _json(1, ["COMPLETED"], 7200)), "the word that sacct prints for the list, REQUEUED: one job of two attempts", {"alice": 1}, file="dump.json", job={"attempts": 2, "run_s": 7200, "wait_s": 1800, "state": "COMPLETED"}),
    OddFile("a resized run in JSON", "Slurm 24.11 and 26.05, every data_parser", _documents(_json(1, ["RUNNING", "RESIZING"]), _json(1, ["COMPLETED"], 3600)), "RESIZING: one job of two attempts", {"alice": 1}, file="dump.json", job={"attempts": 2, "wait_s": 1800, "state": "COMPLETED"}),
    *(
        OddFile(f"an exit code in JSON, {what}", source, _documents(*(_json(n, state, exit_code=code) for n in (1, 2))), becomes, file="dump.json", job={"exit_code": read[0], "exit_signal": read[1]})
        for what, source, state, code, becomes, read in (
            ("over 127", "Slurm 24.11 and 26.05", ["FAILED"], {"status": ["ERROR"], "return_code": {"set": True, "infinite": False, "number": 137}}, "as it is, 137", (137, 0)),
            ("a signal", "Slurm 24.11 and 26.05", ["FAILED"], {"status": ["SIGNALED"], "return_code": {"set": False, "infinite": False, "number": 0}, "signal": {"id": {"set": True, "infinite": False, "number": 9}, "name": "KILL"}}, "code 0, signal 9", (0, 9)),
            ("a signal before 23.02", LAB, "FAILED", {"status": "SIGNALED", "return_code": None, "signal": {"signal_id": 9, "name": "Killed"}}, "code 0, signal 9", (0, 9)),
            ("SUCCESS of a failed job", LAB, "FAILED", {"status": "SUCCESS", "return_code": 0}, "not known: 22.05 prints it for every exit status", (None, None)),
            ("SUCCESS of a completed job", LAB, "COMPLETED", {"status": "SUCCESS", "return_code": 0}, "code 0", (0, 0)),
            ("+complex", "Slurm 24.11 and 26.05", ["FAILED"], {"status": ["ERROR"], "return_code": 137}, "as it is, 137", (137, 0)),
        )
    ),
    OddFile("an exit code over 127", "sacct of Slurm 26.05", _lines(HEADER, _job(1, ExitCode="137:0", State="FAILED"), _job(2, ExitCode="9:0", State="FAILED")), "this Slurm prints codes whole: each is as printed", job={"state": "FAILED", "exit_code_form": "whole"}),
    OddFile("DerivedExitCode over 127", "sacct of Slurm 22.05 and 24.11", _lines(HEADER.replace("Flags", "DerivedExitCode"), *(_job(n, ExitCode="9:0", State="FAILED", Flags="137:0") for n in (1, 2))), "it is whole in every version, and restores the same code less 128", job={"exit_code": 137, "exit_code_form": "restored from DerivedExitCode"}),
    OddFile("words of a state in JSON that nobody knows", "made by hand, after Slurm 26.05", _documents(*(_json(n, ["HAUNTED", "COMPLETED"], flags=["STARTED_ON_BACKFILL", "REDACTED"]) for n in (1, 2))), "the base state; the other words, and flags, are kept in other_flags and named once a run", file="dump.json", job={"state": "COMPLETED", "started_by": "backfill", "other_flags": "REDACTED,HAUNTED"}),
    OddFile("JSON of a version that no test has read", "made by hand, after Slurm 26.05", _documents(_json(1), _json(2), meta='{"slurm": {"release": "27.11.0"}, "plugin": {"data_parser": "data_parser/v0.0.48"}}'), "read as far as it can be; the version and the proven ones are named once a run", file="dump.json"),
    OddFile("a requeue after two months", "Restarts, sacct of Slurm 24.11 and 26.05", _lines(f"{HEADER}|Restarts", _job(1, State="NODE_FAIL") + "|0", _job(1, **_LATER) + "|1"), "Restarts rose: one job of two attempts", {"alice": 1}, job={"attempts": 2, "restarts": 1, "wait_s": 1800}),
    OddFile("an id used again at once by the same user", "SLUID and OriginalSLUID, sacct of Slurm 26.05", _lines(f"{HEADER}|Restarts|SLUID|OriginalSLUID", _job(1) + "|0|s1A|s1A", _job(1, **_SOON) + "|0|s2B|s2B"), "another OriginalSLUID and no restart: two jobs", {"alice": 2}, job={"attempts": 1}),
    OddFile("a resize in JSON and text", "OriginalSLUID, sacct of Slurm 26.05", _lines(f"{HEADER}|Restarts|SLUID|OriginalSLUID", _job(1, State="RESIZING", End="2024-05-01T11:00:00", ElapsedRaw="1800") + "|0|s1A|s1A", _job(1, Submit="2024-05-01T11:00:00") + "|0|s2B|s1A"), "the OriginalSLUID of its first size: one job of two attempts", {"alice": 1}, job={"attempts": 2, "run_s": 3600}),
    OddFile("requested CPUs after a resize", "ReqCPUS, sacct of Slurm 24.11 and 26.05", _lines(f"{HEADER}|ReqCPUS", _job(1, State="RESIZING", End="2024-05-01T11:00:00", ElapsedRaw="1800", ReqTRES="cpu=2") + "|2", _job(1, Submit="2024-05-01T11:00:00", ReqTRES="cpu=1") + "|2"), "read from ReqCPUS, the count of the submission; a dump without it has only ReqTRES, the count after the resize", {"alice": 1}, job={"requested_cpus": 2}),
    OddFile("runs that began in the same second", "SLUID, sacct of Slurm 24.11 and 26.05", _lines(f"{HEADER}|SLUID", _job(1, State="REQUEUED", End="2024-05-01T10:30:00", ElapsedRaw="0") + "|s1A", _job(1) + "|s2B"), "two SLUIDs are two attempts", {"alice": 1}, job={"attempts": 2, "run_s": 3600}),
    OddFile("a record forged in the last column", "sacct --format=ALL, whose last column is WorkDir", _lines(f"{HEADER}|WorkDir", *(f"{_job(n)}|/tmp" for n in range(1, 15)), f"{_job(999)}|/evil", *(f"{_job(n)}|/tmp" for n in range(15, 31))), "its id is out of order in a dump that is in order: refused", {"alice": 30}, 1),
    OddFile("a requeued run among newer jobs, a user's text last", "sacct -D of Slurm 22.05, 24.11 and 26.05", _lines(f"{HEADER}|WorkDir", *(f"{_job(n, State='PREEMPTED')}|/tmp" for n in range(1, 21)), f"{_job(2, **_SOON)}|/tmp", *(f"{_job(n, State='PREEMPTED')}|/tmp" for n in range(21, 31))), "its id is out of order, but its job was preempted: read", {"alice": 30}, job={"wait_s": 1800}),
    OddFile("no limit in JSON, +complex", "Slurm 24.11 and 26.05", _documents(*(_json(n, ["COMPLETED"], limit="Infinity") for n in (1, 2))), "no limit", file="dump.json", job={"limit_s": None, "wait_s": 1800}),
    OddFile("user text before the id", "sacct --format=ALL, Slurm 24.11", _lines(_ALL, _all(1), _all(2, JobName="a|b\nc", Comment="c|d"), _all(3)), "put together again", {"alice": 3}),
    OddFile("a record in a name, after the flags", "sacct --format=ALL, Slurm 26.05", _lines(_FLAGGED, _flagged(1, "a"), _flagged(2, "9|9|x|root|science|gpu|COMPLETED"), _flagged(3, "1|2|COMPLETED\n3|4")), "read as a name, because Slurm's flags begin with a capital letter", {"alice": 3}),
    OddFile("a run of NUL bytes", "a disk that was full", _lines(HEADER.replace("|Flags", ""), *(_job(n).removesuffix("|SchedMain") for n in (1, 2)), "\0" * 4096), "refused, the rest is read", rejects=1),
    OddFile("a name of a million delimiters", "made by hand", _lines(HEADER, _job(1), _job(2), _job(3, JobName="|" * 1_000_000)), "refused, the rest is read", rejects=1),
    OddFile("fixed width, a header again", "cat of sacct without -P", _fixed({"JobID": "1"}) + _fixed({"JobID": "2"}), "read on"),
    OddFile("fixed width, other widths further down", "--format=JobName%20", _fixed({"JobID": "1"}) + _fixed({"JobID": "2"}, widths=(8, 20, 9, 19, 19, 19, 14, 9)), "read by the widths of the dashes above"),
    OddFile("fixed width, requested resources cut short", "--format=ReqTRES%30", _fixed({"JobID": "1"}, {"JobID": "2"}, names=("JobID", "NNodes", "User", "Submit", "Start", "End", "State", "ReqTRES"), widths=(8, 8, 9, 19, 19, 19, 10, 30)), "not known, and named once; the held ones do not stand in", job={"requested_nodes": None, "requested_gpus": None, "allocated_nodes": 2}),
    OddFile("fixed width, blanks cut off", "an editor, or an e-mail", "\n".join(line.rstrip() for line in _fixed({"JobID": "1"}, {"JobID": "2"}).split("\n")), "read up to where the line ends"),
    OddFile("fixed width, a line break in a name", "sbatch --job-name", _fixed({"JobID": "1", "JobName": "two\nli"}, {"JobID": "2", "JobName": "two\nli"}), "lines whose lengths add up to a record are joined", job={"job_name": "two\nli"}),
    OddFile("fixed width, a name that ends in a space", "sbatch --job-name", _fixed({"JobID": "1", "JobName": "space "}, {"JobID": "2", "JobName": "space "}), "read without it: a column is filled with spaces", job={"job_name": "space"}),
    OddFile("fixed width, half a character", "a name cut in its middle", _fixed({"JobID": "1", "JobName": "abcdefXY"}, {"JobID": "2"}).encode().replace(b"XY", b"+\xc3"), "replaced"),
    OddFile("a frame to be skipped", "pzstd", b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + pa.compress(_TWO.encode(), "zstd", asbytes=True), "skipped", file="dump.psv.zst"),
    OddFile("two frames in one file", "cat of .zst", b"".join(pa.compress(part.encode(), "zstd", asbytes=True) for part in (_lines(HEADER, _job(1)), _lines(_job(2)))), "read on", file="dump.psv.zst"),
    OddFile("two members in one file", "cat of .gz", b"".join(gzip.compress(part.encode()) for part in (_lines(HEADER, _job(1)), _lines(_job(2)))), "read on", file="dump.psv.gz"),
)  # fmt: skip
