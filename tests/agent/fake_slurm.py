"""A Slurm in memory for tests of the agent: the commands that it calls, answered in Slurm's own forms.

Jobs start in order of submission as soon as enough nodes are free and their dependency allows it, and end as the test
planned. Time moves only when a test moves it.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from agent.slurm.commands import Commands, SlurmError

ME = pwd.getpwuid(os.getuid()).pw_name
START_S = 1_800_000_000
CONFIG = (
    "PartitionName=gpu Nodes=n[1-4] Default=YES MaxTime=12:00:00 State=UP PriorityTier=1 TotalNodes=4 "
    "TRES=cpu=32,node=4\n"
)


@dataclass
class FakeJob:
    """One job; times are epoch seconds. `lasts_s` and `how` are what the test planned for it."""

    id: int
    name: str
    user: str
    nodes: int
    limit_s: int
    submit_s: int
    lasts_s: float
    how: str
    exit_status: int
    dependency: str = ""
    start_s: int | None = None
    end_s: int | None = None
    state: str = "PENDING"
    reason: str = "Priority"
    restarts: int = 0
    least_s: int | None = None  # --time-min: what it gets at its start
    qos: str = "normal"


@dataclass(frozen=True)
class Plan:
    """How long a link runs and how it ends; beyond its limit it ends by TIMEOUT."""

    lasts_s: float = 1e9
    how: str = "COMPLETED"
    exit_status: int = 0


@dataclass
class FakeSlurm:
    """The cluster. `plan` is asked for every job that is submitted, by its name."""

    nodes: int = 4
    limit_s: int = 7200
    link_nodes: int = 1
    now_s: int = START_S
    plan: Callable[[str], Plan] = lambda name: Plan()
    has_accounting: bool = True
    remembers_s: int = 300  # MinJobAge
    jobs: list[FakeJob] = field(default_factory=list)
    next_id: int = 100
    waits_s: Callable[[FakeJob], float] = lambda job: 0.0  # after its submission, before a job may start
    step_nodes: int = 1  # that the steps of ended links used
    saves_s: float = 1e9  # from a signal until a job ends
    output: Callable[[FakeJob], str] = lambda job: "/dev/null"  # the file of a job's standard output
    signals: list[tuple[int, str]] = field(default_factory=list)  # of scancel: job, options

    # -- the cluster --------------------------------------------------------------------------------------------------

    def submit(
        self, name: str, dependency: str = "", user: str = ME, nodes: int | None = None, limit_s: int | None = None,
        least_s: int | None = None, qos: str = "normal",
    ) -> FakeJob:  # fmt: skip
        """Queue a job."""
        plan = self.plan(name)
        size = self.link_nodes if nodes is None else nodes
        job = FakeJob(
            self.next_id,
            name,
            user,
            size,
            limit_s or self.limit_s,
            self.now_s,
            plan.lasts_s,
            plan.how,
            plan.exit_status,
            dependency,
            least_s=least_s,
            qos=qos,
        )
        self.next_id += 1
        self.jobs.append(job)
        self.settle()
        return job

    def advance(self, seconds: float) -> None:
        """Let time pass, in steps no longer than to the next end of a job."""
        until_s = self.now_s + int(seconds)
        while self.now_s < until_s:
            ends = [self._due_s(job) for job in self.jobs if job.state == "RUNNING"]
            self.now_s = min([until_s, *(end for end in ends if end > self.now_s), self.now_s + 60])
            self.settle()

    def settle(self) -> None:
        """End and start what is due now."""
        for job in self.jobs:
            if job.state == "RUNNING" and self.now_s >= self._due_s(job):
                is_cut = job.lasts_s >= job.limit_s
                self.end(job, "TIMEOUT" if is_cut else job.how, 0 if is_cut else job.exit_status)
        for job in self.jobs:
            if job.state != "PENDING" or job.reason.startswith(("JobHeld", "launch")):
                continue
            job.reason = "Dependency" if not self._is_free(job) else "Priority"
            held = sum(other.nodes for other in self.jobs if other.state == "RUNNING")
            may_start = self.now_s >= job.submit_s + self.waits_s(job)
            if job.reason == "Priority" and may_start and held + job.nodes <= self.nodes:
                job.state, job.start_s, job.reason = "RUNNING", self.now_s, "None"
                job.limit_s = job.least_s or job.limit_s

    def end(self, job: FakeJob, how: str, exit_status: int = 0) -> None:
        """End a job now."""
        job.state, job.end_s, job.exit_status = how, self.now_s, exit_status

    def requeue(self, job: FakeJob) -> None:
        """Put a running job back into the queue, under the same id."""
        job.state, job.start_s, job.restarts, job.reason = "PENDING", None, job.restarts + 1, "BeginTime"

    def running(self) -> list[FakeJob]:
        """The jobs that run."""
        return [job for job in self.jobs if job.state == "RUNNING"]

    def _due_s(self, job: FakeJob) -> int:
        assert job.start_s is not None
        return job.start_s + int(min(job.lasts_s, job.limit_s))

    def _is_free(self, job: FakeJob) -> bool:
        match = re.fullmatch(r"(afterany|after):(\d+)(?:\+(\d+))?", job.dependency)
        if match is None:
            return True
        other = next((one for one in self.jobs if one.id == int(match[2])), None)
        if other is None or (other.end_s is not None and match[1] == "afterany"):
            return True
        if match[1] == "afterany" or other.start_s is None:
            return False
        return self.now_s >= other.start_s + 60 * int(match[3] or 0)

    def _is_known(self, job: FakeJob) -> bool:
        return job.end_s is None or self.now_s - job.end_s < self.remembers_s

    # -- its commands -------------------------------------------------------------------------------------------------

    def call(self, argv: Sequence[str]) -> str:
        """What a command prints. Raises SlurmError."""
        return {"squeue": self._squeue, "sbatch": self._sbatch, "scancel": self._scancel, "sacct": self._sacct,
                "sdiag": self._sdiag, "scontrol": self._scontrol}[argv[0]](argv)  # fmt: skip

    def _squeue(self, argv: Sequence[str]) -> str:
        jobs = [job for job in self.jobs if self._is_known(job)]
        if "--me" in argv:
            jobs = [job for job in jobs if job.user == ME]
        if which := _value(argv, "--jobs"):
            jobs = [job for job in jobs if str(job.id) == which]
            if not jobs:
                raise SlurmError("refused", "squeue", "slurm_load_jobs error: Invalid job id specified")
        if which := _value(argv, "--name"):
            jobs = [job for job in jobs if job.name == which]
        names, marks = zip(*(part.split(":0", 1) for part in (_value(argv, "--Format") or "").split(",")), strict=True)
        pairs = list(zip(names, marks, strict=True))
        return "".join("".join(self._field(job, name) + mark for name, mark in pairs) + "\n" for job in jobs)

    def _field(self, job: FakeJob, name: str) -> str:
        end_s = job.end_s if job.end_s is not None or job.start_s is None else job.start_s + job.limit_s
        minutes = job.limit_s // 60
        return {
            "JobArrayID": str(job.id), "JobID": str(job.id), "Name": job.name, "UserName": job.user,
            "Account": "science", "Partition": "gpu", "QOS": job.qos, "State": job.state, "Reason": job.reason,
            "NumNodes": str(job.nodes), "TimeLimit": f"{minutes // 60}:{minutes % 60:02}:00",
            "SubmitTime": str(job.submit_s), "StartTime": _shown(job.start_s), "EndTime": _shown(end_s),
            "PriorityLong": "100", "RestartCnt": str(job.restarts), "Comment": "(null)", "NodeList": "",
            "exit_code": str(job.exit_status << 8),
        }[name]  # fmt: skip

    def _sbatch(self, argv: Sequence[str]) -> str:
        name = _value(argv, "--job-name")
        assert name is not None
        nodes = _value(argv, "--nodes")
        limit_s, least_s = (60 * int(_value(argv, option) or 0) or None for option in ("--time", "--time-min"))
        job = self.submit(
            name,
            _value(argv, "--dependency") or "",
            limit_s=limit_s,
            least_s=least_s,
            nodes=int(nodes) if nodes else None,
            qos=_value(argv, "--qos") or "normal",
        )
        return f"{job.id}\n"

    def _scancel(self, argv: Sequence[str]) -> str:
        for job in self.jobs:
            if str(job.id) == argv[-1] and job.start_s is not None and (signal := _value(argv, "--signal")):
                self.signals.append((job.id, signal + " --batch" * ("--batch" in argv)))
                job.lasts_s, job.how, job.exit_status = self.now_s - job.start_s + self.saves_s, "COMPLETED", 0
            elif str(job.id) == argv[-1] and job.end_s is None:
                self.end(job, "CANCELLED")
                self.settle()
        return ""

    def _sacct(self, argv: Sequence[str]) -> str:
        if not self.has_accounting:
            raise SlurmError("refused", "sacct", "Slurm accounting storage is disabled")
        which, name = _value(argv, "--jobs"), _value(argv, "--name")
        if "NNodes" in argv[-1]:
            return f"{which}|{self.step_nodes}\n{which}.batch|1\n{which}.extern|9\n{which}.0|{self.step_nodes}\n"
        jobs = [
            job for job in self.jobs if job.user == ME and name in (None, job.name) and which in (None, str(job.id))
        ]
        return "".join(
            f"{job.id}|{job.state}|{job.exit_status}:0|{job.submit_s}|{_shown(job.start_s)}|{_shown(job.end_s)}\n"
            for job in jobs
        )

    def _scontrol(self, argv: Sequence[str]) -> str:
        (job,) = [job for job in self.jobs if str(job.id) == argv[-1]]
        return f"JobId={job.id} JobName={job.name}\n   StdOut={self.output(job)}\n"

    def _sdiag(self, argv: Sequence[str]) -> str:
        return f"***\nsdiag output at Sun Nov 22 15:30:37 2026 ({self.now_s})\n***\n"


class CheckedSlurm(FakeSlurm):
    """Answers what the checks before a first submission ask, too."""

    refusal = ""

    def call(self, argv: Sequence[str]) -> str:
        """A partition of four nodes, at most 12 h."""
        if argv[0] == "scontrol":
            return CONFIG
        if argv[0] == "sbatch" and "--test-only" in argv:
            if self.refusal:
                raise SlurmError("refused", "sbatch", self.refusal)
            return ""
        return super().call(argv)


class FakeCommands(Commands):
    """Commands of a fake Slurm. `before` and `after` see every call, and may raise in its place."""

    def __init__(self, slurm: FakeSlurm) -> None:
        super().__init__({}, clock=lambda: float(slurm.now_s))
        self.slurm = slurm
        self.before: Callable[[tuple[str, ...]], None] = lambda argv: None
        self.after: Callable[[tuple[str, ...]], None] = lambda argv: None
        self.environments: list[dict[str, str]] = []  # of sbatch

    def run(
        self,
        *argv: str,
        pass_fds: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
    ) -> str:
        """The answer of the fake."""
        self.calls[argv[0]] += 1
        self._called_s.append(self._clock())
        self.before(argv)
        if argv[0] == "sbatch":
            self.environments.append(dict(environment or {}))
        answer = self.slurm.call(argv)
        self.after(argv)
        return answer


def _value(argv: Sequence[str], name: str) -> str | None:
    return next((text.partition("=")[2] for text in argv if text.startswith(f"{name}=")), None)


def _shown(time_s: int | None) -> str:
    return "N/A" if time_s is None else str(time_s)
