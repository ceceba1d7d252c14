"""Jobs of every kind on a real Slurm, and its own dump of them. Shared by the live tests and by the recorder."""

from __future__ import annotations

from dataclasses import dataclass

from tests.live.slurm import Slurm

FIELDS = (
    "JobID,JobIDRaw,JobName,User,Account,Partition,QOS,State,ExitCode,Submit,Eligible,Start,End,ElapsedRaw,"
    "TimelimitRaw,NNodes,NCPUS,ReqTRES,AllocTRES,ReqMem,NodeList,Priority,Flags,Reason"
)
DUMP = ("sacct", "-a", "-D", "-P", f"--format={FIELDS}", "-S", "now-1day", "-E", "now")
HOSTILE_NAMES = ("a|b", "<script>alert(1)</script>", "=1+1", "naïve 工作", "two  spaces", 'quote\'s "x"')


@dataclass(frozen=True)
class Expected:
    """What the accounting must say of one job: final state, GPUs it held, runs (0 for one that never ran)."""

    state: str
    gpus: int
    attempts: int = 1


def submit_all(slurm: Slurm) -> dict[str, Expected]:
    """Submit one of each kind and let them all end (about 40 s). Returns JobIDRaw of each to what must come of it."""
    expected: dict[str, Expected] = {}

    def submit(kind: Expected, *options: str, script: str = "sleep 1") -> str:
        job = slurm.sbatch("--time=10", *options, script=script)
        expected[job] = kind
        return job

    for name in HOSTILE_NAMES:
        submit(Expected("COMPLETED", 1), "--gres=gpu:1", f"--job-name={name}")
    submit(Expected("COMPLETED", 8), "--nodes=2", "--gres=gpu:a100:4", "--job-name=wide")
    submit(Expected("FAILED", 2), "--gres=gpu:2", script="exit 3")
    head = submit(Expected("COMPLETED", 1), "--gres=gpu:1", "--job-name=chain", script="sleep 2")
    submit(Expected("COMPLETED", 1), "--gres=gpu:1", "--job-name=chain", f"--dependency=afterok:{head}")
    array = slurm.sbatch("--time=10", "--array=0-3%2", "--gres=gpu:1", "--job-name=array", script="sleep 1")
    long = submit(Expected("TIMEOUT", 1), "--gres=gpu:1", "--job-name=too long", script="sleep 600")
    again = submit(
        Expected("COMPLETED", 1, attempts=2), "--gres=gpu:1", "--requeue", "--job-name=again", script="sleep 6"
    )
    killed = submit(Expected("CANCELLED", 1), "--gres=gpu:1", "--job-name=killed", script="sleep 600")

    slurm.wait(30, lambda: _running(slurm, {long, again, killed}), "the long jobs to start")
    # sacct hides a job that never was eligible, so this one waits for nodes in use, not on hold
    never = submit(Expected("CANCELLED", 0, attempts=0), "--nodes=4", "--gres=gpu:a100:4", "--job-name=never ran")
    slurm.wait(15, lambda: never in slurm.run("squeue", "-h", "-t", "PD", "-o", "%i").split(), "the wide job to pend")
    slurm.run("scancel", never)
    slurm.run("scontrol", "requeue", again)
    slurm.run("scontrol", "update", f"JobId={again}", "StartTime=now")
    slurm.run("scontrol", "update", f"JobId={long}", "EndTime=now+2")
    slurm.run("scancel", killed)
    slurm.wait(180, lambda: not slurm.run("squeue", "-h", "-t", "PD,R,CG").strip(), "an empty queue")
    slurm.wait(30, lambda: not _unsettled(slurm), "the accounting to catch up")
    tasks = slurm.run("sacct", "-n", "-X", "-P", "-j", array, "--format=JobIDRaw").split()
    return expected | {task: Expected("COMPLETED", 1) for task in tasks}


def _running(slurm: Slurm, jobs: set[str]) -> bool:
    return jobs <= set(slurm.run("squeue", "-h", "-t", "R", "-o", "%i").split())


def _unsettled(slurm: Slurm) -> bool:
    states = slurm.run("sacct", "-a", "-n", "-X", "-P", "--format=State", "-S", "now-1day", "-E", "now").split()
    return "RUNNING" in states or "PENDING" in states
