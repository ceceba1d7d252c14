"""Jobs of every kind on a real Slurm, and its own dump of them. Shared by the live tests and by the recorder."""

from __future__ import annotations

import os
import re
import subprocess
import time
from dataclasses import dataclass, replace

from tests.live.slurm import Slurm

FIELDS = (
    "JobID,JobIDRaw,JobName,User,Account,Partition,QOS,State,ExitCode,Submit,Eligible,Start,End,ElapsedRaw,"
    "TimelimitRaw,NNodes,NCPUS,ReqTRES,AllocTRES,ReqMem,NodeList,Priority,Flags,Reason"
)
UNASKED = (
    "failed_node",
    "original_sluid",
    "restarts",
    "sluid",
    "submit_line",
)  # columns that a dump of FIELDS leaves empty
DUMP = ("sacct", "-a", "-D", "-P", f"--format={FIELDS}", "-S", "now-1day", "-E", "now")
HOSTILE_NAMES = ("a|b", "<script>alert(1)</script>", "=1+1", "naïve 工作", "two  spaces", 'quote\'s "x"')


@dataclass(frozen=True)
class Expected:
    """What the accounting must say of one job: final state, GPUs it held, runs (0 for one that never ran), how the
    first of several runs ended, when it was submitted (epoch s, 0 for not known) and how long it ran at least.
    """

    state: str
    gpus: int
    attempts: int = 1
    first_state: str | None = None
    submitted_s: float = 0.0
    least_s: int = 0


def submit_all(slurm: Slurm) -> dict[str, Expected]:
    """Submit one of each kind and let them all end (about 40 s). Returns JobIDRaw of each to what must come of it.

    Over 50 lines: a list of jobs in the order in which the cluster must see them.
    """
    expected: dict[str, Expected] = {}

    elsewhere = ("--time=10", "--exclude=n3,n4")  # n3 sees a preemption, n4 fails

    def submit(kind: Expected, *options: str, script: str = "sleep 1") -> str:
        began = time.time()
        pinned = any(option.startswith(("--nodelist", "--nodes=4")) for option in options)
        job = slurm.sbatch(*(elsewhere[:1] if pinned else elsewhere), *options, script=script)
        ran = kind.state == "COMPLETED" and script.startswith("sleep ")
        expected[job] = replace(kind, submitted_s=began, least_s=int(script.split()[1]) if ran else 0)
        return job

    for name in HOSTILE_NAMES:
        submit(Expected("COMPLETED", 1), "--gres=gpu:1", f"--job-name={name}")
    submit(Expected("COMPLETED", 8), "--nodes=2", "--gres=gpu:a100:4", "--job-name=wide")
    submit(Expected("FAILED", 2), "--gres=gpu:2", script="exit 3")
    submit(Expected("FAILED", 1), "--gres=gpu:1", "--job-name=exit 137", script="exit 137")
    head = submit(Expected("COMPLETED", 1), "--gres=gpu:1", "--job-name=chain", script="sleep 2")
    submit(Expected("COMPLETED", 1), "--gres=gpu:1", "--job-name=chain", f"--dependency=afterok:{head}")
    array = slurm.sbatch(*elsewhere, "--array=0-3%2", "--gres=gpu:1", "--job-name=array", script="sleep 1")
    long = submit(Expected("TIMEOUT", 1), "--gres=gpu:1", "--job-name=too long", script="sleep 600")
    again = submit(
        Expected("COMPLETED", 1, attempts=2, first_state="REQUEUED"),
        "--gres=gpu:1", "--requeue", "--job-name=again", script="sleep 6",
    )  # fmt: skip
    killed = submit(Expected("CANCELLED", 1), "--gres=gpu:1", "--job-name=killed", script="sleep 600")
    het = slurm.sbatch(*elsewhere, "--gres=gpu:1", ":", *elsewhere, "--gres=gpu:a100:2", script="sleep 2")
    preempted = submit(
        Expected("COMPLETED", 4, attempts=2, first_state="PREEMPTED"),
        "--nodelist=n3", "--gres=gpu:4", "--requeue", "--job-name=gives way", script="sleep 4",
    )  # fmt: skip
    slurm.wait(60, lambda: _running(slurm, {preempted}), "the job that is to give way")
    submit(Expected("COMPLETED", 4), "--partition=urgent", "--nodelist=n3", "--gres=gpu:4", "--job-name=urgent")
    lost = submit(Expected("NODE_FAIL", 1), "--nodelist=n4", "--gres=gpu:1", "--no-requeue", script="sleep 600")
    moved = submit(
        Expected("COMPLETED", 2, attempts=2, first_state="NODE_FAIL"),
        "--nodelist=n4", "--gres=gpu:2", "--requeue", "--job-name=moved", script="sleep 4",
    )  # fmt: skip

    slurm.wait(60, lambda: _running(slurm, {long, again, killed, lost, moved}), "the long jobs to start")
    slurm.run("scontrol", "update", "NodeName=n4", "State=DOWN", "Reason=test")
    slurm.run("scontrol", "update", f"JobId={moved}", "ReqNodeList=n3")
    # sacct hides a job that never was eligible, so this one waits for nodes in use, not on hold
    never = submit(Expected("CANCELLED", 0, attempts=0), "--nodes=4", "--gres=gpu:a100:4", "--job-name=never ran")
    slurm.wait(15, lambda: never in slurm.run("squeue", "-h", "-t", "PD", "-o", "%i").split(), "the wide job to pend")
    slurm.run("scancel", never)
    slurm.run("scontrol", "requeue", again)
    slurm.run("scontrol", "update", f"JobId={long}", "EndTime=now+2")
    slurm.run("scancel", killed)
    settle(slurm, 180)
    slurm.wait(30, lambda: _is_back(slurm, "n4"), "the failed node to come back")
    tasks = slurm.run("sacct", "-n", "-X", "-P", "-j", array, "--format=JobIDRaw").split()
    parts = slurm.run("sacct", "-n", "-X", "-P", "-j", het, "--format=JobIDRaw").split()
    gpus = dict(zip(sorted(parts, key=int), (1, 2), strict=True))
    return (
        expected
        | {task: Expected("COMPLETED", 1) for task in tasks}
        | {part: Expected("COMPLETED", count, least_s=2) for part, count in gpus.items()}
    )


def settle(slurm: Slurm, most_s: float) -> None:
    """Wait until every job has ended and accounting knows it.

    Requeued jobs begin by themselves once their old credential is void: `cred_expire` is 5 s in this cluster.
    """
    slurm.wait(most_s, lambda: not slurm.run("squeue", "-h", "-t", "PD,CF,R,CG,S").strip(), "an empty queue", every=0.5)
    slurm.wait(30, lambda: not _unsettled(slurm), "the accounting to catch up")


def _running(slurm: Slurm, jobs: set[str]) -> bool:
    return jobs <= set(slurm.run("squeue", "-h", "-t", "R", "-o", "%i").split())


def _is_back(slurm: Slurm, node: str) -> bool:
    """Is the node no longer down? One that has not registered by itself is resumed."""
    if "down" not in slurm.run("sinfo", "-h", "-n", node, "-o", "%T"):
        return True
    slurm.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
    return False


def _unsettled(slurm: Slurm) -> bool:
    states = slurm.run("sacct", "-a", "-n", "-X", "-P", "--format=State", "-S", "now-1day", "-E", "now").split()
    return "RUNNING" in states or "PENDING" in states


def json_forms(slurm: Slurm, program: str) -> list[str]:
    """The options with which a command of this version prints JSON: every data_parser on offer, in every manner that
    the newest has (BATON_LIVE=full: that each has). `--json` alone where there is no choice.
    """
    listed = subprocess.run([program, "--json=list"], env=slurm.env, capture_output=True, check=False)
    parsers = sorted(set(re.findall(r"v0\.0\.\d+", (listed.stdout + listed.stderr).decode())))
    kinds = parsers if os.environ.get("BATON_LIVE") == "full" else parsers[-1:]
    manners = [f"{parser}+{how}" for parser in kinds for how in ("fast", "complex")]
    return [f"--json={form}" for form in (*parsers, *manners)] or ["--json"]
