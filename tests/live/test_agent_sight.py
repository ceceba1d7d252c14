"""What an ordinary user's agent sees of a real Slurm is what was set up there."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from agent.chains.plan import AHEAD, PlanTerms
from agent.chains.planner import OPEN_SITE
from agent.check import check_agent
from agent.eyes import Eyes
from agent.sight import SlurmRequest
from agent.slurm import json_form
from agent.slurm.commands import Commands, SlurmError
from agent.slurm.nodes import read_nodes
from agent.slurm.queue import SqueueJob, read_queue
from agent.slurm_time import SlurmTime
from features.futures.summary import FUTURES
from models.provisioning.service.moment import live_waits
from models.provisioning.service.outlook import ChainWish, outlooks
from models.queue_time.ask import WaitRequest, answer
from models.queue_time.live import look_at_slurm
from models.queue_time.make import make
from tests.features.submission.logs import generated_log
from tests.live.slurm import Cluster, Slurm
from tests.live.workload import json_forms
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.ingest import ingest
from traces.slurm.accounts import read_associations, read_qos
from traces.slurm.reservations import read_reservations
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.units import DAY_S

pytestmark = pytest.mark.live

ME, OTHER = "games", "news"  # Debian's own users, so that none has to be made on the machine
ENFORCED = {"AccountingStorageEnforce": "associations,limits,qos"}
HOSTILE = "a|b\nPENDING|9|evil"


@pytest.fixture(scope="module")
def live(version: str) -> Iterator[Slurm]:
    with Slurm.running(Cluster(settings=ENFORCED), version=version) as slurm:
        for user in (ME, OTHER):
            slurm.run("sacctmgr", "-i", "add", "user", user, "Account=science", "Cluster=live")
        slurm.run("sacctmgr", "-i", "modify", "qos", "normal", "set", "MaxJobsPerUser=3", "MaxTRESPerUser=gres/gpu=8")
        yield slurm


def as_user(slurm: Slurm, user: str) -> Commands:
    """Slurm's commands as an ordinary user runs them: each name on the path leads to setpriv."""
    folder = slurm.folder / f"as-{user}"
    folder.mkdir(exist_ok=True)
    for name in ("squeue", "sinfo", "sacct", "scontrol", "sacctmgr", "sbatch"):
        path = folder / name
        program = shutil.which(name, path=slurm.env["PATH"])
        path.write_text(f'#!/bin/sh\nexec setpriv --reuid {user} --regid {user} --clear-groups {program} "$@"\n')
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
    slurm.wait(60, lambda: " None" not in slurm.run("squeue", "-h", "-t", "PD", "-o", "%i %r"), "reasons")
    slurm.wait(30, lambda: slurm.run("sacct", "-anX", "-s", "R", "-o", "JobID").split().__len__() == 2, "accounting")
    return jobs


def mine(eyes: Eyes, number: str) -> SqueueJob:
    assert eyes.queue is not None
    return next(job for job in eyes.queue.jobs if job.id == number)


def forms_agree(live: Slurm, commands: Commands) -> None:
    """What the agent reads as text it reads the same as JSON; every list of nodes, limits and reservations is read."""
    now_s = int(time.time())
    for form in json_forms(live, "squeue"):
        for _ in range(20):  # Slurm may give a waiting job another reason or priority between two commands
            before = comparable(read_queue(commands, now_s).jobs)
            json = json_form.parse_queue(live.run("squeue", "--all", "--states=all", form), now_s)
            after = comparable(read_queue(commands, now_s).jobs)
            if before == after:
                break
        assert comparable(json.jobs) == after, form
    for form in json_forms(live, "sinfo"):
        assert json_form.parse_nodes(live.run("sinfo", "--all", "--Node", form)) == read_nodes(commands), form
    assert abs(SlurmTime(commands).now_s() - now_s) < 10

    dumps: dict[str, tuple[str, ...]] = {
        "one line": ("scontrol", "-o", "show", "node"),
        "paragraphs": ("scontrol", "show", "node"),
        "sinfo": ("sinfo", "-N", "-o", "%N|%P|%c|%m|%G|%f|%t"),
        **{form: ("sinfo", form) for form in json_forms(live, "sinfo")},
    }
    data = DataFolder(live.folder / "data")
    for name, command in dumps.items():
        (result,) = ingest([written(live, name, *command)], cluster=ClusterSettings(name), data=data)
        assert result.rejects == 0, name
    warehouse.build(data)
    nodes = warehouse.read(data, "SELECT cluster, node, cpus, memory_mib, gpus, gpu_type FROM nodes ORDER BY ALL")
    for name in dumps:
        assert nodes.filter(pl.col("cluster") == name).drop("cluster").rows() == [
            (f"n{number}", 8, 32000, 4, "a100") for number in range(1, 5)
        ], name
    shown = (("scontrol", "-o", "show", what) for what in ("job", "partition", "reservation"))
    for refused in (*shown, ("scontrol", "show", "config"), ("sprio", "-l"), ("sdiag",)):
        with pytest.raises(InputError, match=f"the output of {refused[0]}, which does not record when jobs ran"):
            ingest([written(live, "other", *refused)], cluster=ClusterSettings("other"), data=data)

    (works,) = read_reservations(written(live, "reservations", "scontrol", "-o", "show", "reservation"), "UTC")
    assert (works.name, works.nodes, works.users, works.end_s - works.start_s) == ("works", ("n3",), ("root",), 7200)
    (normal,) = read_qos(written(live, "qos", "sacctmgr", "-P", "show", "qos")).rows
    assert (normal.max_jobs_per_user, normal.max_tres_per_user) == (3, {"gres/gpu": 8})
    associations = read_associations(written(live, "assoc", "sacctmgr", "-P", "show", "assoc"), "live").rows
    assert {(one.account, one.user) for one in associations} >= {("science", user) for user in ("", ME, OTHER)}


def written(live: Slurm, name: str, *command: str) -> Path:
    """A file with the output of a command."""
    path = live.folder / f"{name}.txt"
    path.write_text(live.run(*command))
    return path


def comparable(jobs: tuple[SqueueJob, ...]) -> dict[str, SqueueJob]:
    """The jobs by id, without the start that Slurm estimates, which moves from pass to pass."""
    return {job.id: job if job.state == "RUNNING" else replace(job, start_s=None, end_s=None) for job in jobs}


def wait_is_answered(commands: Commands) -> None:
    """`baton wait --live`: the wait of a job from a log of another cluster and the queue and nodes of this one."""
    log = generated_log(7, jobs=300, days=9)
    stored = make(log, ClusterSettings("lab", "UTC", nodes=10), {"made_from": "", "code": "", "champion": None})
    seen, partition = look_at_slurm(commands, stored, SlurmRequest(1, 3600, ME))
    manifest = seen.manifest
    assert (partition, manifest["capacity"], manifest["usable"], manifest["user_max_jobs"]) == ("gpu", 4, 2, 3)
    found = answer(seen, WaitRequest(1, 3600, partition, ME))
    quantiles = list(found["quantiles_s"].values())
    assert quantiles == sorted(quantiles) and quantiles[0] >= 0
    assert any(note.startswith("live: the outcomes of earlier jobs are from the log") for note in found["notes"])


def links_are_planned(commands: Commands) -> None:
    """`baton plan`: the waits of links behind the jobs of this queue; both usable nodes are held."""
    eyes = Eyes(commands, SlurmRequest(1, 3600, ME, account="science"), OPEN_SITE)
    eyes.look(SlurmTime(commands).now_s())
    found = live_waits(eyes, (3600, 7200))
    assert (found.futures, found.why) == (FUTURES, "")
    for wait_s in found.by_limit_s.values():
        assert len(wait_s) == FUTURES + 1 and wait_s[-1] > 0, "by limits it waits"
    terms = PlanTerms((3600, 7200), 600, 0.5, 600)
    own, one, best = outlooks([ChainWish(terms, lambda _: found, DAY_S, (3600,), AHEAD, (1,))])["plans"]
    assert best["lost_h_per_day"] <= one["lost_h_per_day"] < own["lost_h_per_day"]
    wide = live_waits(eyes, (3600, 7200), 2)
    assert wide.by_limit_s[3600].mean() > found.by_limit_s[3600].mean(), "two nodes are free later"
    of_nodes = {2: wide, 1: found}.__getitem__
    wish = ChainWish(replace(terms, shortens=True), of_nodes, DAY_S, (3600,), AHEAD, (2, 1), scaling=0.01)
    free = outlooks([wish])["plans"][-1]
    rigid = outlooks([replace(wish, terms=terms, nodes=(2,))])["plans"][-1]
    assert free["lost_h_per_day"] <= rigid["lost_h_per_day"] and rigid["nodes"] == 2


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

    forms_agree(live, commands)
    wait_is_answered(commands)
    links_are_planned(commands)

    live.hide("jobs")
    eyes = Eyes(commands, request)
    queue = eyes.look(int(time.time()))
    assert {job.user for job in queue.jobs} == {ME}
    found = eyes.sight(mine(eyes, jobs["mine"]))
    assert {"pending_jobs", "free_nodes", "start_estimate_h"} <= set(found.hidden)
    assert (found.observation["capacity_nodes"], found.observation["usable_nodes"]) == (4, 2)

    for words, hidden in (("nodes", "usable_nodes"), ("nodes,partitions", "capacity_nodes")):
        live.hide(words)
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
    live.daemon("slurmctld")
    live.wait(30, lambda: bool(eyes.look(int(time.time())).jobs), "the controller to answer again")


def pending(eyes: Eyes) -> list[SqueueJob]:
    """The pending jobs in the order of the snapshot, by priority and id, all of one tier."""
    assert eyes.queue is not None
    jobs = [job for job in eyes.queue.jobs if job.state == "PENDING"]
    return sorted(jobs, key=lambda job: (-job.priority, [int(part) for part in job.id.split("_")]))
