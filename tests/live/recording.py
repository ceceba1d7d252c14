"""A recorded run of a real Slurm, read back: its jobs as Slurm accounted them and the world that they ran in."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from models.study.slurm.files import SlurmDescription
from simulator.slurm.inputs import cluster as load
from simulator.slurm.world import (
    AFTERANY,
    AFTEROK,
    DRAIN,
    NEVER,
    NONE,
    RESERVATION,
    SINGLETON,
    Dependencies,
    Outages,
    SlurmJobs,
    SlurmWorld,
    constant_capacity,
)
from tests.live.fidelity_workload import Submission
from traces.arrays import Int64s
from traces.slurm.accounts import read_associations, read_qos
from traces.slurm.conf import read_slurm_conf
from traces.slurm.text import expand_nodes, parse_memory_mib, parse_state, parse_tres, tres_gpus

KINDS = {"afterany": AFTERANY, "afterok": AFTEROK, "singleton": SINGLETON}


@dataclass(frozen=True)
class RecordedJob:
    """One allocation of the run: a job, or one task of an array. Times in seconds since 1970, None for never."""

    job_id: int
    submission: Submission
    task: int
    account: str
    state: str
    submit_s: int
    eligible_s: int | None
    start_s: int | None
    end_s: int | None
    limit_s: int
    cpus: int
    gpus: int
    memory_mb: int
    nodes: tuple[str, ...]
    priority: int
    flags: str

    @property
    def key(self) -> tuple[int, int]:
        """What names the job in every run of the workload: its submission and its task."""
        return self.submission.index, self.task

    @property
    def run_s(self) -> int:
        """Elapsed seconds as accounted; for a job that never started, as long as it would have run."""
        if self.start_s is None or self.end_s is None:
            return min(self.submission.run_s, self.limit_s)
        return self.end_s - self.start_s

    @property
    def wait_s(self) -> int | None:
        """Start minus eligibility, None for a job that never started."""
        return None if self.start_s is None or self.eligible_s is None else self.start_s - self.eligible_s


def read(folder: Path, *, runs: bool = False) -> list[RecordedJob]:
    """The jobs of a recording by (submit, submission, task); with `runs`, a row for each run of a requeued job.

    All runs of a job have its first submission, because Slurm keeps its place among the jobs that give way.
    Raises ValueError for a record that was not submitted, and without `runs` for a job that ran twice.

    Not by job id: the first record of an array, with the array's own id, becomes its last task. The tasks of an array
    are eligible together, at its first Eligible: of a task that its throttle held back sacct tells when that let it go,
    but its age, as sprio shows, goes on counting from the array's.
    """
    submissions: dict[int, Submission] = {}
    for line in _text(folder / "submissions.jsonl.gz").splitlines():
        fields = json.loads(line)
        job_id = int(fields.pop("job_id"))
        fields["depends"] = fields["depends"] and tuple(fields["depends"])
        submissions[job_id] = Submission(**fields)
    header, *lines = _text(folder / "sacct.psv.gz").splitlines()
    names = header.split("|")
    jobs = [_job(dict(zip(names, line.split("|"), strict=True)), submissions) for line in lines]
    first: dict[int, int] = {}
    if runs:
        submitted = {job.key: min(other.submit_s for other in jobs if other.key == job.key) for job in jobs}
        again = sorted(jobs, key=lambda job: (submitted[job.key], *job.key, job.submit_s))
        return [replace(job, submit_s=submitted[job.key]) for job in again]
    if len({job.key for job in jobs}) < len(jobs):
        raise ValueError(f"{folder}: a job has several records: it was requeued or preempted")
    for job in jobs:
        if job.eligible_s is not None:
            first[job.submission.index] = min(job.eligible_s, first.get(job.submission.index, job.eligible_s))
    jobs = [replace(job, eligible_s=first.get(job.submission.index)) for job in jobs]
    return sorted(jobs, key=lambda job: (job.submit_s, *job.key))


def _job(row: dict[str, str], submissions: dict[int, Submission]) -> RecordedJob:
    base, _, task = row["JobID"].partition("_")
    if int(base) not in submissions:
        raise ValueError(f"job {row['JobID']} of the recording was not submitted by it")
    tres = row["AllocTRES"] or row["ReqTRES"]
    memory = parse_memory_mib(parse_tres(tres).get("mem", ""))
    start = _time(row["Start"])
    return RecordedJob(
        job_id=int(row["JobIDRaw"]),
        submission=submissions[int(base)],
        task=int(task) if task else 0,
        account=row["Account"],
        state=parse_state(row["State"]),
        submit_s=_time(row["Submit"]) or 0,
        eligible_s=_time(row["Eligible"]),
        start_s=start,
        end_s=_time(row["End"]),
        limit_s=int(row["TimelimitRaw"]) * 60,
        cpus=int(parse_tres(tres)["cpu"]),
        gpus=tres_gpus(tres) or 0,
        memory_mb=round(memory[0]) if memory else 0,
        nodes=tuple(expand_nodes(row["NodeList"])) if start is not None else (),
        priority=int(row["Priority"]),
        flags=row["Flags"],
    )


def _time(text: str) -> int | None:
    """Seconds since 1970 of sacct's UTC time, None for Unknown and None."""
    if text in ("Unknown", "None", ""):
        return None
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def _text(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode(errors="surrogateescape")


def described(folder: Path) -> SlurmDescription:
    """What slurm.conf and the dumps of a recording say."""
    return SlurmDescription(
        read_slurm_conf(folder / "slurm.conf"),
        read_qos(folder / "qos.psv").rows,
        read_associations(folder / "assoc.psv", "live").rows,
    )


def world(
    folder: Path,
    jobs: list[RecordedJob],
    *,
    eligible_known: bool = True,
    declared: SlurmDescription | None = None,
) -> SlurmWorld:
    """The world of a recorded run: its slurm.conf and accounts, its jobs with their recorded starts pinned.

    With `eligible_known` a job is eligible when sacct says so, and dependencies are not looked at again. Without, they
    are simulated, and sacct's times count only for begin times, holds and jobs without dependencies. Times are seconds
    since the full hour before the first submission; the periodic passes count from the start of that slurmctld.
    `declared` replaces what its files say.

    Over 50 lines: most of it is one table, a line for each column of the world.
    """
    origin = passes(folder, "full")[0] - 60  # a first full pass comes sched_interval (60 s) after the start
    start = zero(jobs)
    jobs = [_moved(job, -start) for job in jobs]
    place = load.cluster(*(declared or described(folder)))
    arrays = {job.submission.index for job in jobs if job.submission.tasks > 1}
    array_rows = {index: row for row, index in enumerate(sorted(arrays))}
    first_row = {job.submission.index: row for row, job in reversed(list(enumerate(jobs)))}
    throttle = {array_rows[job.submission.index]: job.submission.throttle for job in jobs if job.submission.tasks > 1}
    names = {name: number for number, name in enumerate(sorted({job.submission.name for job in jobs}))}
    waits = [] if eligible_known else [(row, job) for row, job in enumerate(jobs) if _chained(job, first_row)]
    free = {row for row, _ in waits}
    return SlurmWorld(
        nodes=place.nodes,
        partitions=place.partitions,
        qos=place.qos,
        associations=place.associations,
        jobs=SlurmJobs(
            submit_s=_ints(job.submit_s for job in jobs),
            eligible_s=_ints(
                job.submit_s if row in free else NEVER if job.eligible_s is None else job.eligible_s
                for row, job in enumerate(jobs)
            ),
            cancel_s=_ints(
                NEVER if job.start_s is not None or job.end_s is None or row in free else job.end_s
                for row, job in enumerate(jobs)
            ),
            run_s=_ints(job.run_s for job in jobs),
            limit_s=_ints(job.limit_s for job in jobs),
            failed=np.array([job.state != "COMPLETED" for job in jobs]),
            partition=_ints(place.partition_rows[job.submission.partition] for job in jobs),
            qos=_ints(place.qos_rows[job.submission.qos] for job in jobs),
            user=_ints(place.user_rows[job.submission.user] for job in jobs),
            association=_ints(place.association_rows[job.account, job.submission.user] for job in jobs),
            nodes=_ints(job.submission.nodes for job in jobs),
            cpus_per_node=_ints(job.cpus // job.submission.nodes for job in jobs),
            memory_per_node_mb=_ints(job.memory_mb // job.submission.nodes for job in jobs),
            gpus_per_node=_ints(job.gpus // job.submission.nodes for job in jobs),
            gpu_type=_ints(place.gpu_types.get(job.submission.gpu_type, NONE) for job in jobs),
            exclusive=np.zeros(len(jobs), bool),
            nice=_ints(job.submission.nice for job in jobs),
            site_factor=np.zeros(len(jobs)),
            array=_ints(array_rows.get(job.submission.index, NONE) for job in jobs),
            name=_ints(names[job.submission.name] for job in jobs),
            any_dependency=np.zeros(len(jobs), bool),
            pinned_s=_ints(NEVER if job.start_s is None else job.start_s for job in jobs),
        ),
        dependencies=_dependencies(waits, first_row, jobs),
        outages=_outages(folder, place.node_rows, start),
        capacity=constant_capacity(),
        pinned_first=np.cumsum([0, *(len(job.nodes) for job in jobs)]),
        pinned_nodes=_ints(place.node_rows[name] for job in jobs for name in job.nodes),
        array_throttle=_ints(throttle[row] for row in range(len(arrays))),
        settings=replace(place.settings, origin_s=origin - start),
    )


def _outages(folder: Path, node_rows: dict[str, int], zero_s: int) -> Outages:
    """The reservations and drained nodes that the acts of the recording made; none without acts."""
    rows: list[tuple[int, int, int, int, str]] = []
    path = folder / "acts.psv"
    for line in path.read_text().splitlines() if path.exists() else []:
        at, _, command = line.partition("|")
        words = dict(word.split("=", 1) for word in command.split() if "=" in word)
        second = int(at) - zero_s
        if "ReservationName" in words:
            begin, end = ((_time(words[key]) or 0) - zero_s for key in ("StartTime", "EndTime"))
            rows.append((RESERVATION, begin, end, second, words["Nodes"]))
        elif words["State"] == "DRAIN":
            rows.append((DRAIN, second, NEVER, second, words["NodeName"]))
        else:  # RESUME ends the drain of the same nodes
            rows = [(*row[:2], second, *row[3:]) if row[4] == words["NodeName"] else row for row in rows]
    members = np.zeros((len(rows), len(node_rows)), bool)
    for number, row in enumerate(rows):
        members[number, [node_rows[name] for name in expand_nodes(row[4])]] = True
    kind, begins, ends, known = (_ints(row[at] for row in rows) for at in range(4))  # type: ignore[misc]
    return Outages(kind, begins, ends, known, members)


def zero(jobs: list[RecordedJob]) -> int:
    """The second since 1970 that is second 0 of the world: the full hour before the first submission."""
    return min(job.submit_s for job in jobs) // 3600 * 3600


def passes(folder: Path, kind: str) -> list[int]:
    """Begins of slurmctld's passes of a kind (depth, full or backfill), seconds since 1970."""
    rows = (line.split("|") for line in _text(folder / "passes.psv.gz").splitlines())
    return [_time(at) or 0 for at, of in rows if of == kind]


def priorities(folder: Path) -> dict[int, dict[int, int]]:
    """What sprio told: second since 1970 -> job id -> priority; of an array its own id stands for the pending tasks."""
    found: dict[int, dict[int, int]] = {}
    for line in _text(folder / "priorities.psv.gz").splitlines():
        at, kind, *fields = line.split("|")
        if kind == "job":
            found.setdefault(int(at), {})[int(fields[0])] = int(fields[1])
    return found


def _moved(job: RecordedJob, by_s: int) -> RecordedJob:
    eligible, start, end = (None if at is None else at + by_s for at in (job.eligible_s, job.start_s, job.end_s))
    return replace(job, submit_s=job.submit_s + by_s, eligible_s=eligible, start_s=start, end_s=end)


def _chained(job: RecordedJob, first_row: dict[int, int]) -> bool:
    """Whether the job waits for others; its parent may be missing, since sacct hides jobs that never were eligible."""
    depends = job.submission.depends
    return depends is not None and (depends[1] < 0 or depends[1] in first_row)


def _dependencies(
    waits: list[tuple[int, RecordedJob]], first_row: dict[int, int], jobs: list[RecordedJob]
) -> Dependencies:
    """One row for each (job, job waited for): all tasks of an array where the parent is one."""
    rows: list[tuple[int, int, int]] = []
    for row, job in waits:
        assert job.submission.depends is not None
        kind, index = job.submission.depends
        parents = [NONE]
        if index >= 0:
            parents = [other for other, parent in enumerate(jobs) if parent.submission.index == index]
        rows += [(row, parent, KINDS[kind]) for parent in parents]
    columns = np.array(rows, np.int64).reshape(-1, 3)
    return Dependencies(columns[:, 0], columns[:, 1], columns[:, 2], np.zeros(len(rows), np.int64))


def _ints(values: Iterable[int]) -> Int64s:
    return np.array(list(values), np.int64)
