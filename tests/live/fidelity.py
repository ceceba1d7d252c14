"""One run of a generated workload on a real Slurm whose clock runs 60 times fast, and the recording of it.

Only the comparison's inputs and Slurm's own answers are kept: slurm.conf, the QOS and the associations as sacctmgr
prints them, the submissions with their job ids, sacct's records, and from slurmctld's log the moments of its passes.
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.live.clock import FastClock, ahead_of_others
from tests.live.fidelity_workload import ACCOUNTS, CPUS_PER_GPU, FULL, USERS, Submission, generate
from tests.live.slurm import OWN, Cluster, Slurm

# The processors do not run 60 times faster with the clock. Slurm bounds the work of a pass in seconds (2 s for a main
# pass, bf_interval for a backfill pass, 2 s between its pauses). Those would be milliseconds of work here and cut short
# what a Slurm on its own clock does in no noticeable time.
PATIENCE = "max_sched_time=120,bf_max_time=1800,bf_yield_interval=10000000,bf_yield_sleep=1000"
SETTINGS = {
    # Time-outs in simulated seconds: one real second is a minute, and slurmd must not be given up for it
    "SlurmctldTimeout": "3600",
    "SlurmdTimeout": "36000",
    "MessageTimeout": "600",
    "TCPTimeout": "600",
    "BatchStartTimeout": "3600",
    "PrologEpilogTimeout": "3600",
    "UnkillableStepTimeout": "7200",
    "KillWait": "30",
    "MinJobAge": "172800",
    "MaxJobCount": "20000",
    "SlurmctldDebug": "debug",
    "DebugFlags": "Backfill",
    "SlurmdDebug": "error",
    "LogTimeFormat": "iso8601_ms",
    # What is compared
    "SchedulerParameters": "bf_interval=180,bf_continue,bf_max_job_test=100," + PATIENCE,
    "DependencyParameters": "kill_invalid_depend",
    "PriorityDecayHalfLife": "12:00:00",
    "PriorityCalcPeriod": "5",
    "PriorityMaxAge": "12:00:00",
    "PriorityWeightAge": "10000",
    "PriorityWeightFairshare": "1000",
    "PriorityWeightJobSize": "500",
    "PriorityWeightPartition": "500",
    "PriorityWeightQOS": "3000",
    "PriorityWeightTRES": "gres/gpu=300",
    "AccountingStorageEnforce": "associations,limits,qos",
    "PreemptType": "preempt/none",
    "PreemptMode": "OFF",
}
CLUSTER = Cluster(
    nodes=16,
    node="CPUs=32 RealMemory=256000 Gres=gpu:a100:4",
    settings=SETTINGS,
    partitions=(
        "PartitionName=gpu Nodes=n[01-12] Default=YES MaxTime=12:00:00 DefaultTime=01:00:00 State=UP PriorityTier=1 "
        "PriorityJobFactor=1 DefMemPerCPU=7000 TRESBillingWeights=CPU=0,GRES/gpu=1.0",
        "PartitionName=short Nodes=n[09-16] MaxTime=02:00:00 DefaultTime=00:30:00 State=UP PriorityTier=10 "
        "PriorityJobFactor=10 DefMemPerCPU=7000 TRESBillingWeights=CPU=0,GRES/gpu=1.0",
    ),
)
QOS = {
    "normal": "Priority=100",
    "high": "Priority=1000 MaxTRESPU=gres/gpu=12 MaxJobsPU=4",
    "scavenger": "Priority=0 GrpTRES=gres/gpu=16",
}
FIELDS = (
    "JobIDRaw,JobID,User,Account,Partition,QOS,State,ExitCode,Submit,Eligible,Start,End,ElapsedRaw,TimelimitRaw,NNodes,"
    "NCPUS,ReqTRES,AllocTRES,NodeList,Priority,Flags"
)
SNAPSHOT_S = 900  # simulated seconds between two looks at the priorities


@dataclass(frozen=True)
class Stage:
    """Where a workload runs. `acts` are administrator's commands, each with its second from the start of the run.

    "@N" in a command stands for the time of second N, in the form that scontrol reads. `commands` are commands of
    sacctmgr that an administrator gives before the first submission.
    """

    cluster: Cluster = CLUSTER
    qos: Mapping[str, str] = field(default_factory=lambda: QOS)
    acts: tuple[tuple[int, tuple[str, ...]], ...] = ()
    slurm: Callable[[Path, Cluster, FastClock, str], Slurm] = Slurm
    version: str = OWN
    commands: tuple[tuple[str, ...], ...] = ()


def prepare(slurm: Slurm, qos: Mapping[str, str] = QOS) -> None:
    """Add the accounts and users of the workload, and `qos`: name -> limits as sacctmgr reads them."""
    for name, limits in qos.items():
        slurm.run("sacctmgr", "-i", *(("modify", "qos", name, "set") if name == "normal" else ("add", "qos", name)),
                  *limits.split())  # fmt: skip
    for account, shares in ACCOUNTS.items():
        slurm.run("sacctmgr", "-i", "add", "account", account, "Cluster=live", f"Fairshare={shares}")
    for user, (account, shares) in USERS.items():
        slurm.run("sacctmgr", "-i", "add", "user", user, f"Account={account}", "Cluster=live", f"Fairshare={shares}",
                  f"QOS={','.join(qos)}", "DefaultQOS=normal")  # fmt: skip


def options(job: Submission, ids: dict[int, str], now: float) -> list[str]:
    """The sbatch options of a submission at simulated second `now`; `ids` holds the job ids of the earlier ones."""
    line = [
        f"--uid={job.user}", f"--partition={job.partition}", f"--qos={job.qos}", f"--nodes={job.nodes}",
        "--ntasks-per-node=1", f"--cpus-per-task={job.gpus_per_node * CPUS_PER_GPU}",
        f"--gres=gpu:{job.gpu_type and job.gpu_type + ':'}{job.gpus_per_node}",
        f"--time={job.limit_min}", f"--job-name={job.name}",
    ]  # fmt: skip
    if job.depends:
        kind, index = job.depends
        line.append(f"--dependency={kind}" + (f":{ids[index]}" if index >= 0 else ""))
    if job.tasks > 1:
        line.append(f"--array=0-{job.tasks - 1}" + (f"%{job.throttle}" if job.throttle else ""))
    if job.begin_after_s:
        line.append(f"--begin={_iso(now + job.begin_after_s)}")  # sbatch itself has the real clock
    if job.nice:
        line.append(f"--nice={job.nice}")
    if job.release_s is not None:
        line.append("--hold")
    return line


def drive(
    slurm: Slurm, workload: list[Submission], acts: tuple[tuple[int, tuple[str, ...]], ...] = ()
) -> tuple[dict[int, str], list[str], list[str]]:
    """Submit, cancel, release and act at their times, and wait until the queue is empty.

    Returns the job id of each submission, the lines of `sprio` and `sshare` taken every quarter of an hour, and the
    acts as they were done, `second since 1970|command`.
    """
    clock = slurm.clock
    assert clock is not None
    ids: dict[int, str] = {}
    looks: list[str] = []
    done: list[str] = []
    start = clock.now() + 60
    events: list[tuple[int, int, str, Any]] = [(job.submit_s, 0, "submit", job) for job in workload]
    events += [(job.cancel_s, 1, "cancel", job) for job in workload if job.cancel_s is not None]
    events += [(job.release_s, 1, "release", job) for job in workload if job.release_s is not None]
    events += [(at, 1, "act", act) for at, act in acts]
    events += [(at, 2, "look", None) for at in range(SNAPSHOT_S, max(at for at, *_ in events), SNAPSHOT_S)]
    for at, _, what, job in sorted(events, key=lambda event: (event[0], event[1])):
        clock.sleep_until(start + at)
        if what == "look":
            looks += _look(slurm, clock)
        elif what == "act":
            command = [re.sub(r"@(\d+)", lambda match: _iso(start + int(match[1])), word) for word in job]
            done.append(f"{int(clock.now())}|{' '.join(command)}")
            slurm.run(*command)
        elif what == "submit":
            script = f"sleep {job.run_s / clock.rate:.3f}\nexit {job.exit_code}"
            ids[job.index] = slurm.sbatch(*options(job, ids, clock.now()), script=script)
        else:  # either may come too late, when the job has started or ended: both then refuse
            command = ["scancel", "--state=PENDING"] if what == "cancel" else ["scontrol", "release"]
            subprocess.run([*command, ids[job.index]], env=slurm.real_env, capture_output=True, check=False)
    slurm.wait(1800, lambda: not slurm.run("squeue", "-h").strip(), "an empty queue", every=3)
    return ids, looks, done


def _iso(at: float) -> str:
    """Simulated second `at` since 1970, as Slurm's programs read a time."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S}"


def _look(slurm: Slurm, clock: FastClock) -> list[str]:
    """Priorities of the pending jobs and the fair shares at this moment, one line each behind its time."""
    now = int(clock.now())
    lines = slurm.run("sprio", "-h", "-o", "%i|%Y|%A|%F|%J|%P|%Q|%T|%N").splitlines()
    shares = slurm.run("sshare", "-a", "-P", "-n", "-o", "User,RawUsage,LevelFS,FairShare").splitlines()
    return [f"{now}|job|{line.strip()}" for line in lines] + [f"{now}|user|{line.strip()}" for line in shares]


def record(folder: Path, workload: list[Submission], stage: Stage | None = None, *, keep_log: bool = False) -> None:
    """One run from a cluster of its own; the recording is written into `folder` (made if absent).

    `keep_log` keeps slurmctld's log too, in which every larger difference can be traced to its cause.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stage = stage or Stage()
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # each write to a disk is a long time on this clock
    with ahead_of_others(), tempfile.TemporaryDirectory(prefix="baton-slurm-", dir=memory) as place:
        Path(place).chmod(0o755)
        slurm = stage.slurm(Path(place), stage.cluster, FastClock(), stage.version)
        try:
            slurm.up()
            prepare(slurm, stage.qos)
            for program, *words in stage.commands:
                slurm.run(program, "-i", *words)
            ids, looks, done = drive(slurm, workload, stage.acts)
            slurm.wait(60, lambda: "RUNNING" not in _sacct(slurm), "the accounting to catch up")
            lines = [json.dumps(asdict(job) | {"job_id": ids[job.index]}, sort_keys=True) for job in workload]
            conf = (slurm.folder / "etc/slurm.conf").read_text()
            write(folder / "slurm.conf", _without_place(conf, slurm.folder))
            write(folder / "qos.psv", slurm.run("sacctmgr", "show", "qos", "-P"))
            write(folder / "assoc.psv", slurm.run("sacctmgr", "show", "assoc", "-P"))
            if done:
                write(folder / "acts.psv", "\n".join(done) + "\n")
            write(folder / "submissions.jsonl.gz", "\n".join(lines) + "\n")
            write(folder / "priorities.psv.gz", "\n".join(looks) + "\n")
            write(folder / "sacct.psv.gz", _sacct(slurm))
            log = (slurm.folder / "log/slurmctld.log").read_text(errors="replace")
            write(folder / "passes.psv.gz", "\n".join(passes(log)) + "\n")
            if keep_log:
                write(folder / "slurmctld.log.gz", _without_place(log, slurm.folder))
        finally:
            slurm.down()


def passes(log: str) -> list[str]:
    """`time|kind` of every scheduling pass in a log of slurmctld; kinds: depth and full (main loop), backfill."""
    main, backfill = r": Running job scheduler for (default|full)", "/backfill: _attempt_backfill: beginning"
    found = re.findall(rf"(?m)^\[([-\dT:.]+)\] (?:debug: +)?sched(?:{main}|{backfill})", log)
    names = {"default": "depth", "full": "full", "": "backfill"}
    return [f"{time}|{names[kind]}" for time, kind in found]


def _sacct(slurm: Slurm) -> str:
    return slurm.run("sacct", "-a", "-D", "-X", "-P", f"--format={FIELDS}", "-S", "2026-12-01", "-E", "now")


def _without_place(text: str, folder: Path) -> str:
    """The text without the folder and the host of the run."""
    return re.sub(
        r"(?m)^(SlurmctldHost=)[^(]*|(NodeHostname=)\S*", r"\1\2localhost", text.replace(str(folder), "/slurm")
    )


def write(path: Path, text: str) -> None:
    """Write a text, compressed without a time stamp where its name ends in .gz."""
    data = text.encode(errors="surrogateescape")
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


# As root, after `make system` (and `make slurms`): python -m tests.live.fidelity FOLDER [VERSION] records the full
# workload.
if __name__ == "__main__":
    record(Path(sys.argv[1]), generate(FULL), Stage(version=(sys.argv[2:] or [OWN])[0]), keep_log=True)
