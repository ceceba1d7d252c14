"""What an ordinary user's agent sees of a real Slurm is what was set up there."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.check import check_agent
from agent.eyes import Eyes
from agent.sight import SlurmRequest
from agent.slurm.commands import Commands, SlurmError
from agent.slurm.queue import SqueueJob
from tests.conftest import skip_or_fail
from tests.live.slurm import Cluster, Slurm, missing

pytestmark = pytest.mark.live

ME, OTHER = "games", "news"  # Debian's own users, so that none has to be made on the machine
ENFORCED = {"AccountingStorageEnforce": "associations,limits,qos"}
HOSTILE = "a|b\nPENDING|9|evil"


@pytest.fixture(scope="module")
def live() -> Iterator[Slurm]:
    reason = missing()
    if reason:
        skip_or_fail("slurm", reason)
    with tempfile.TemporaryDirectory(prefix="baton-slurm-") as folder:
        Path(folder).chmod(0o755)
        slurm = Slurm(Path(folder), Cluster(settings=ENFORCED))
        try:
            slurm.up()
            for user in (ME, OTHER):
                slurm.run("sacctmgr", "-i", "add", "user", user, "Account=science", "Cluster=live")
            slurm.run(
                "sacctmgr", "-i", "modify", "qos", "normal", "set", "MaxJobsPerUser=3", "MaxTRESPerUser=gres/gpu=8"
            )
            yield slurm
        finally:
            slurm.down()


def as_user(slurm: Slurm, user: str) -> Commands:
    """Slurm's commands as an ordinary user runs them: each name on the path leads to setpriv."""
    folder = slurm.folder / f"as-{user}"
    folder.mkdir(exist_ok=True)
    for name in ("squeue", "sinfo", "sacct", "scontrol", "sacctmgr", "sbatch"):
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec setpriv --reuid {user} --regid {user} --clear-groups /usr/bin/{name} "$@"\n')
        path.chmod(0o755)
    return Commands(slurm.env | {"PATH": f"{folder}:{slurm.env['PATH']}"})


def submit(slurm: Slurm, user: str, *options: str) -> str:
    return slurm.sbatch(f"--uid={user}", "--nodes=1", "--exclusive", *options, script="sleep 600")


def prepare(slurm: Slurm) -> dict[str, str]:
    """Two nodes at work, one drained, one in maintenance; a queue of every kind. Job ids by what each is."""
    jobs = {
        "mine": submit(slurm, ME, "--time=60", "--nodelist=n1", "--gres=gpu:4", f"--job-name={HOSTILE}"),
        "other": submit(slurm, OTHER, "--time=30", "--nodelist=n2"),
    }
    slurm.wait(30, lambda: slurm.run("squeue", "-h", "-t", "R", "-o", "%i").split().__len__() == 2, "two to run")
    slurm.run("scontrol", "update", "NodeName=n4", "State=DRAIN", "Reason=test")
    slurm.run("scontrol", "create", "reservation", "ReservationName=works", "StartTime=now", "Duration=120",
              "Nodes=n3", "Users=root", "Flags=MAINT,IGNORE_JOBS")  # fmt: skip
    jobs |= {
        "wide": submit(slurm, OTHER, "--nodes=2", "--time=120"),
        "held": submit(slurm, OTHER, "--hold", "--time=10"),
        "after": submit(slurm, OTHER, f"--dependency=afterok:{jobs['mine']}", "--time=10"),
        "later": submit(slurm, OTHER, "--begin=now+2hours", "--time=10"),
        "array": submit(slurm, OTHER, "--array=0-4%1", "--time=20"),
        "own": submit(slurm, ME, "--time=40"),
    }
    slurm.wait(30, lambda: "maint" in slurm.run("sinfo", "-h", "-N", "-n", "n3", "-o", "%T"), "the maintenance")
    slurm.wait(30, lambda: " None" not in slurm.run("squeue", "-h", "-t", "PD", "-o", "%i %r"), "reasons")
    slurm.wait(30, lambda: slurm.run("sacct", "-anX", "-s", "R", "-o", "JobID").split().__len__() == 2, "accounting")
    return jobs


def hide(slurm: Slurm, words: str) -> None:
    """Set PrivateData and wait until the controller knows."""
    conf = slurm.folder / "etc/slurm.conf"
    conf.write_text(f"{conf.read_text().partition('PrivateData=')[0]}PrivateData={words}\n")
    slurm.run("scontrol", "reconfigure")

    def is_known() -> bool:
        shown = slurm.run("scontrol", "show", "config").partition("PrivateData")[2].partition("\n")[0]
        return sorted(shown.strip(" =").split(",")) == sorted(words.split(","))

    slurm.wait(30, is_known, "privacy")


def mine(eyes: Eyes, number: str) -> SqueueJob:
    assert eyes.queue is not None
    return next(job for job in eyes.queue.jobs if job.id == number)


def test_a_real_slurm_is_seen_as_it_was_set_up(live: Slurm) -> None:
    """Over 50 lines: one cluster is set up, seen, hidden and stopped, each from the state that the one before left."""
    began = int(time.time())
    jobs = prepare(live)
    commands = as_user(live, ME)
    request = SlurmRequest(1, 3600, ME, account="science")
    eyes = Eyes(commands, request)
    now_s = int(time.time())
    queue = eyes.look(now_s)
    assert queue.unread == 0
    predecessor = mine(eyes, jobs["mine"])
    assert (predecessor.name, predecessor.state, predecessor.user) == (HOSTILE, "RUNNING", ME)
    found = eyes.sight(predecessor)
    seen = found.snapshot
    assert found.hidden == {}

    assert (seen.capacity, seen.usable) == (4, 2)
    assert sorted(seen.running_limit_s) == [1800, 3600] and sorted(seen.running_nodes) == [1, 1]
    assert all(began <= start <= now_s for start in seen.running_start_s)
    tasks = 5
    assert len(seen.pending_nodes) == 4 + tasks + 1
    assert sorted(seen.pending_limit_s) == sorted([7200, *([600] * 3), *([1200] * tasks), 2400])
    assert found.observation["own_pending_jobs"] <= 1
    held = {job.id.partition("_")[0] for job, is_held in zip(pending(eyes), seen.pending_held, strict=True) if is_held}
    assert (
        {jobs["held"], jobs["after"], jobs["later"]} <= held <= {jobs[k] for k in ("held", "after", "later", "array")}
    )
    assert (seen.user_max_jobs, seen.user_max_nodes) == (3, 2)
    assert (found.observation["headroom_jobs"], found.observation["headroom_nodes"]) == (2, 1)
    assert sorted(seen.recent_start_s) == sorted(seen.running_start_s)
    assert len(seen.arrived_submit_s) == len(seen.pending_nodes) + 2
    assert (seen.predecessor_end_s - seen.predecessor_start_s, seen.successor_nodes) == (3600, 1)

    script = ("--partition=gpu", "--account=science", "--nodes=1", "--time=60")
    job = live.folder / "true.sh"
    job.write_text("#!/bin/sh\ntrue\n")
    trial = lambda: commands.run("sbatch", "--test-only", *script, str(job))  # noqa: E731
    levels = {(one.level, one.subject) for one in check_agent(commands, request, now_s=time.time, trial=trial)}
    good = ("slurm", "queue", "clock", "accounting", "partition", "limits", "hidden", "submission", "calls")
    assert levels == {("good", subject) for subject in good}

    with pytest.raises(SlurmError) as caught:
        commands.run("sbatch", "--partition=nope", str(job))
    assert (caught.value.kind, "Invalid partition name" in caught.value.detail) == ("refused", True)

    hide(live, "jobs")
    eyes = Eyes(commands, request)
    queue = eyes.look(int(time.time()))
    assert {job.user for job in queue.jobs} == {ME}
    found = eyes.sight(mine(eyes, jobs["mine"]))
    assert {"pending_jobs", "free_nodes", "start_estimate_h"} <= set(found.hidden)
    assert (found.observation["capacity_nodes"], found.observation["usable_nodes"]) == (4, 2)

    for words, hidden in (("nodes", "usable_nodes"), ("nodes,partitions", "capacity_nodes")):
        hide(live, words)
        findings = check_agent(commands, request, now_s=time.time, trial=trial)
        assert not [one for one in findings if one.level == "problem"]
        eyes = Eyes(commands, request)
        eyes.look(int(time.time()))
        assert hidden in eyes.sight(mine(eyes, jobs["mine"])).hidden

    live.run("scontrol", "shutdown", "slurmctld")
    live.wait(20, lambda: not (live.folder / "run/slurmctld.pid").exists(), "the controller to end")
    with pytest.raises(SlurmError) as caught:
        eyes.look(int(time.time()))
    assert caught.value.kind == "away"


def pending(eyes: Eyes) -> list[SqueueJob]:
    """The pending jobs in the order of the snapshot, by priority and id, all of one tier."""
    assert eyes.queue is not None
    jobs = [job for job in eyes.queue.jobs if job.state == "PENDING"]
    return sorted(jobs, key=lambda job: (-job.priority, [int(part) for part in job.id.split("_")]))
