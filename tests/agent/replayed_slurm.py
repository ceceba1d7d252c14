"""A Slurm that prints a recorded history: what squeue, sinfo, sacct ... would print of a few jobs at any instant.

Only the text form lies between a history and what the agent makes of it; nothing here is shared with the agent but the
names of the fields that it asks for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from agent.slurm.commands import Commands, SlurmError

FOR_EVER = 1 << 60


@dataclass(frozen=True)
class RecordedJob:
    """A job with all that ever becomes of it. Times are epoch s; a job that never starts is cancelled at its end."""

    id: str
    user: str
    nodes: int
    limit_s: int
    submit_s: int
    start_s: int = FOR_EVER
    end_s: int = FOR_EVER
    priority: int = 1
    reason: str = "Priority"
    partition: str = "gpu"
    node_list: str = ""
    name: str = "a job"
    qos: str = "normal"

    def state(self, now_s: int) -> str:
        """Its state when everything before `now_s` has happened; "" before its submission."""
        if now_s <= self.submit_s:
            return ""
        if now_s > self.end_s:
            return "COMPLETED" if self.start_s < FOR_EVER else "CANCELLED"
        return "RUNNING" if now_s > self.start_s else "PENDING"


@dataclass
class ReplayedSlurm(Commands):
    """Answers as a Slurm would at `now_s` to a user `me`. remembers_s: MinJobAge."""

    jobs: Sequence[RecordedJob]
    now_s: int = 0
    remembers_s: int = 300
    nodes: Mapping[str, str] = field(default_factory=dict)  # state by node
    partitions: Mapping[str, str] = field(default_factory=dict)  # node list by partition; the first is the default
    max_jobs: str = ""
    max_tres: str = ""
    more_qos: Sequence[str] = ()  # rows of `sacctmgr show qos` besides that of normal
    config: Mapping[str, str] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()  # programs that refuse
    denied: frozenset[str] = frozenset()  # what PrivateData hides, such as `sinfo` or `scontrol partition`
    private: str | None = None  # the only user whose jobs are shown
    private_past: str | None = None  # the same in the accounting

    def __post_init__(self) -> None:
        super().__init__({}, clock=lambda: self.now_s)

    def run(
        self,
        *argv: str,
        pass_fds: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
    ) -> str:
        self.calls[argv[0]] += 1
        if argv[0] in self.broken or f"{argv[0]} {argv[-1]}" in self.broken:
            raise SlurmError("refused", argv[0], "refuses in this test")
        if argv[0] in self.denied or f"{argv[0]} {argv[-1]}" in self.denied:
            raise SlurmError("refused", argv[0], "slurm_load_partitions: Access/permission denied")
        answers: dict[str, Callable[[Sequence[str]], str]] = {
            "squeue": self._squeue,
            "sinfo": lambda argv: "".join(f"{state}|{name}\n" for name, state in self.nodes.items()),
            "sacct": self._sacct,
            "scontrol": self._scontrol,
            "sacctmgr": self._sacctmgr,
            "sbatch": lambda argv: "",
        }
        return answers[argv[0]](argv)

    def _squeue(self, argv: Sequence[str]) -> str:
        (layout,) = (word.removeprefix("--Format=") for word in argv if word.startswith("--Format="))
        fields = re.findall(r"(\w+):0(\|\w+\|)", layout)
        shown = []
        for job in self.jobs:
            state = job.state(self.now_s)
            is_over = state in ("COMPLETED", "CANCELLED")
            if not state or (is_over and job.end_s < self.now_s - self.remembers_s):
                continue
            if self.private in (None, job.user):
                shown.append("".join(self._field(job, name, state) + mark for name, mark in fields) + "\n")
        return "".join(shown)

    def _field(self, job: RecordedJob, name: str, state: str) -> str:
        has_run = state in ("RUNNING", "COMPLETED")
        end_s = job.start_s + job.limit_s if state == "RUNNING" else job.end_s
        values = {
            "JobArrayID": job.id, "Name": job.name, "UserName": job.user, "Account": "science",
            "Partition": job.partition, "QOS": job.qos, "State": state,
            "Reason": job.reason if state == "PENDING" else "None", "NumNodes": str(job.nodes),
            "TimeLimit": _duration(job.limit_s), "SubmitTime": str(job.submit_s),
            "StartTime": str(job.start_s) if has_run else str(end_s) if state == "CANCELLED" else "N/A",
            "EndTime": "N/A" if state == "PENDING" else str(end_s),
            "PriorityLong": str(job.priority), "RestartCnt": "0", "Comment": "(null)",
            "NodeList": job.node_list if has_run else "",
        }  # fmt: skip
        return values[name]

    def _sacct(self, argv: Sequence[str]) -> str:
        options = dict(word.removeprefix("--").split("=", 1) for word in argv if "=" in word)
        since_s = datetime.fromisoformat(options["starttime"]).replace(tzinfo=UTC).timestamp()
        lines = []
        for job in self.jobs:
            state = job.state(self.now_s)
            if not state or (self.private_past not in (None, job.user)):
                continue
            is_over = state in ("COMPLETED", "CANCELLED")
            if is_over and job.end_s < since_s:
                continue
            values = {
                "JobID": job.id, "User": job.user, "Partition": job.partition.split(",")[0],
                "State": "CANCELLED by 0" if state == "CANCELLED" else state, "Submit": str(job.submit_s),
                "Start": str(job.start_s) if state in ("RUNNING", "COMPLETED") else "None",
                "End": str(job.end_s) if is_over else "Unknown", "Timelimit": _duration(job.limit_s),
                "NNodes": str(job.nodes), "Priority": str(job.priority), "JobName": job.name,
            }  # fmt: skip
            wanted = [values[name] for name in options["format"].split(",")]
            mark = options.get("delimiter", "|")
            lines.append(mark.join(wanted) + (mark if "--parsable" in argv else "") + "\n")
        return "".join(lines)

    def _scontrol(self, argv: Sequence[str]) -> str:
        if argv[-1] == "config":
            known = {"SLURM_VERSION": "22.05.8", "ClusterName": "live", "PriorityMaxAge": "7-00:00:00",
                     "PriorityType": "priority/multifactor", "PriorityWeightAge": "0",
                     "PrivateData": "none" if self.private is None else "jobs,usage",
                     "AccountingStorageType": "accounting_storage/slurmdbd",
                     "AccountingStorageEnforce": "associations,limits,qos"}  # fmt: skip
            lines = [f"{key:<23} = {value}" for key, value in (known | dict(self.config)).items()]
            return "\n".join([f"Configuration data as of {self.now_s}", *lines]) + "\n"
        lines = [
            f"PartitionName={name} Default={'YES' if number == 0 else 'NO'} QoS=N/A MaxTime=7-00:00:00 Nodes={nodes} "
            "PriorityTier=1 State=UP TRES=cpu=32,mem=125G,node=4,billing=32,gres/gpu=16,gres/gpu:a100=16"
            for number, (name, nodes) in enumerate(self.partitions.items())
        ]
        return "\n".join(lines) + "\n"

    def _sacctmgr(self, argv: Sequence[str]) -> str:
        if "user" in argv:
            return "science|science|normal\n"
        if "association" in argv:
            names = ",".join(["normal", *(row.partition("|")[0] for row in self.more_qos)])
            return f"|normal|{names}||||||\n"
        rows = [f"normal||{self.max_jobs}|{self.max_tres}||||||", *self.more_qos]
        return "".join(f"{row}\n" for row in rows)


def _duration(seconds: int) -> str:
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock
