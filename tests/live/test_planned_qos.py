"""Plans that choose the QOS of a link, or leave the choice of several partitions to Slurm, on a busy real Slurm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from agent.chains.state import Folder, LinkAttempt
from agent.check import qos_choice
from agent.sight import SlurmRequest
from agent.slurm import commands
from agent.slurm.commands import Commands
from agent.slurm.limits import read_limits
from agent.slurm.settings import read_partitions, read_settings
from pipelines.cli import main
from tests.agent.lab import artifact
from tests.live.clock import FastClock
from tests.live.keeping import USER, Kept, workplace
from tests.live.slurm import Cluster, Slurm
from tests.live.test_agent import SETTINGS
from traces.units import HOUR_S

pytestmark = [pytest.mark.live, pytest.mark.slow]

RATE, CYCLE_S = 300.0, 150.0
SCRIPT = "#!/bin/sh\n#SBATCH --time=01:00:00 --nodes=1 --ntasks=8\nexec sleep 3600\n"
PARTITIONS = (
    "PartitionName=day Nodes=n1 Default=YES MaxTime=1-00:00:00 DefaultTime=01:00:00 State=UP DefMemPerCPU=1000",
    "PartitionName=week Nodes=n[2-3] MaxTime=7-00:00:00 DefaultTime=01:00:00 State=UP DefMemPerCPU=1000",
    "PartitionName=closed Nodes=n1 AllowQos=normal MaxTime=1-00:00:00 DefaultTime=01:00:00 State=UP DefMemPerCPU=1000",
)
WEIGHT = 100_000


@pytest.fixture(scope="module")
def busy(version: str) -> Iterator[Slurm]:
    """A Slurm of three nodes on a clock 300 times as fast: one job runs in `day`, ten of four hours wait for it."""
    counts = {"PriorityWeightQOS": str(WEIGHT), "PriorityWeightAge": "0", "PriorityWeightJobSize": "0"}
    settings = {**SETTINGS, **counts, "AccountingStorageEnforce": "limits,qos"}
    with Slurm.running(Cluster(nodes=3, settings=settings, partitions=PARTITIONS), FastClock(RATE), version) as slurm:
        place = workplace(slurm, "chains", SCRIPT)
        artifact(place / "released", trained_on={"capacity": 3})
        for name, priority in (("short", "60"), ("top", "100"), ("other", "5")):
            slurm.run("sacctmgr", "-i", "add", "qos", name, f"Priority={priority}")
        slurm.run("sacctmgr", "-i", "modify", "qos", "normal", "set", "Priority=10")
        slurm.run("sacctmgr", "-i", "modify", "qos", "short", "set", "MaxWall=02:00:00", "UsageFactor=2")
        slurm.run("sacctmgr", "-i", "modify", "user", USER, "set", "QOS=normal,short", "DefaultQOS=normal")
        slurm.sbatch("--time=60", "--exclusive", script="sleep 12")
        for _ in range(10):
            slurm.sbatch("--time=240", "--exclusive", script="sleep 48")
        yield slurm


def test_a_plan_chooses_the_qos_that_starts_sooner(busy: Slurm) -> None:
    """Under QOS short a link of up to 2 h is next; under normal it waits for 40 h."""
    link, decision = _first_link(busy, "choice", limits=[HOUR_S, 2 * HOUR_S, 4 * HOUR_S], qos_choice=["short"])
    assert link.qos == "short" and (link.limit_s or 0) <= 2 * HOUR_S, decision
    assert busy.run("squeue", "-h", "-j", link.job_id, "-o", "%q %P").split() == ["short", "day"]
    compared = {(one["qos"], one["limit_s"] // HOUR_S) for one in decision["candidates"]}
    assert {("", 4), ("short", 2)} <= compared and ("short", 4) not in compared, decision
    assert "under QOS short (its usage counts 2 times)" in decision["reason"]
    user = Commands({**busy.env})
    table = read_limits(user, read_settings(user), read_partitions(user)["day"], user=USER, account="science", qos="")[
        1
    ]
    shown = busy.run("squeue", "-h", "--states=PD", "-O", "QOS:20,PriorityLong:20,UserName:20").splitlines()
    priority = {line.split()[0]: int(line.split()[1]) for line in shown}
    assert table.own == "normal" and set(table.by_name) == {"normal", "short"}
    assert priority["short"] - priority["normal"] == pytest.approx(table.shift(WEIGHT, "short", "normal"), abs=2), shown
    busy.run("scancel", link.job_id)


def test_the_plan_of_a_script_compares_the_qos(
    busy: Slurm, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`baton plan`, asked by the same user: links of two hours under QOS short lose less than any under normal."""
    script = busy.folder / "chains" / "plan.sh"
    script.write_text(SCRIPT)
    monkeypatch.setattr(commands, "Commands", partial(Commands, {**busy.env}))
    with pytest.raises(SystemExit) as stopped:
        main(["plan", str(script), "--user", USER, "--limits", "1h,2h,4h", "--qos-choice", "short", "--json"])
    out, err = capfd.readouterr()
    assert not stopped.value.code, err
    found = json.loads(out)
    own, one, best = found["plans"]
    assert found["futures"] == 16 and (own["qos"], one["qos"], best["qos"]) == ("", "short", "short"), found
    assert best["limit_s"] == 2 * HOUR_S and best["first_start_s"] + 8 * HOUR_S < own["first_start_s"]
    assert " under QOS short, " in found["recommendation"]


def test_a_qos_that_takes_no_further_job_is_not_chosen(busy: Slurm) -> None:
    """With MaxSubmitJobs=1, and a job of QOS short queued, a link has the script's QOS."""
    busy.run("sacctmgr", "-i", "modify", "qos", "short", "set", "MaxSubmitJobsPerUser=1")
    own = Kept(busy, busy.folder / "chains", "own", 1, CYCLE_S, more={"plan": "auto", "options": ["--qos=short"]})
    own.start()
    busy.wait(60, lambda: own.has_begun() and any(one.job_id for one in _links(own)), "a job of QOS short")
    try:
        link, decision = _first_link(busy, "full", limits=[HOUR_S], qos_choice=["short"])
    finally:
        own.end()
    assert link.qos == "" and {one["qos"] for one in decision["candidates"]} == {""}, decision
    shown = busy.run("squeue", "-h", "-o", "%i %q", "-j", link.job_id).split()
    assert shown == [link.job_id, "normal"]
    busy.run("scancel", link.job_id, _links(own)[0].job_id)
    busy.run("sacctmgr", "-i", "modify", "qos", "short", "set", "MaxSubmitJobsPerUser=-1")


def test_of_several_partitions_the_longer_limit_counts_and_the_free_nodes(busy: Slurm) -> None:
    """`day` is taken and `week` is free: a link asks for four days and starts at once."""
    lists = {"options": ["--partition=day,week"], "limits": [HOUR_S, 12 * HOUR_S, 96 * HOUR_S]}
    link, decision = _first_link(busy, "list", **lists)
    assert link.limit_s == 96 * HOUR_S, decision
    best = next(one for one in decision["candidates"] if one["limit_s"] == link.limit_s)
    assert best["interruption_h"] < 0.5, "its futures have the nodes of both"
    busy.wait(
        30, lambda: busy.run("squeue", "-h", "-j", link.job_id, "-o", "%T %P").split() == ["RUNNING", "week"], "it"
    )
    busy.run("scancel", link.job_id)


@pytest.mark.parametrize(
    ("choice", "options", "why"),
    [
        ("top", "", f"user {USER} may not use QOS top; allowed: normal, short"),
        ("short", "closed", "partition closed does not allow QOS short: AllowQos=normal"),
    ],
)
def test_a_qos_that_is_refused(busy: Slurm, choice: str, options: str, why: str) -> None:
    user = Commands({**busy.env})
    with pytest.raises(ValueError, match=why):
        qos_choice(user, read_partitions(user), SlurmRequest(1, HOUR_S, USER, options), [choice])
    text = qos_choice(user, read_partitions(user), SlurmRequest(1, HOUR_S, USER), ["short"])
    assert text == "a planned link has normal or short (priority +50000, at most 2 h, usage x2)"


def _links(kept: Kept) -> tuple[LinkAttempt, ...]:
    state = Folder(kept.state).load()
    assert state is not None
    return state.attempts


def _first_link(slurm: Slurm, name: str, **values: Any) -> tuple[LinkAttempt, dict[str, Any]]:
    """The first link of a planned chain, once Slurm has its job, and the decision about it."""
    kept = Kept(
        slurm, slurm.folder / "chains", name, 2, CYCLE_S, more={"plan": "auto", "restart_cost_s": 300, **values}
    )
    kept.start()
    try:
        slurm.wait(60, lambda: kept.has_begun() and any(one.job_id for one in _links(kept)), kept.log())
    except TimeoutError as error:
        raise TimeoutError(kept.log()) from error
    finally:
        kept.end()
    lines = (kept.state / "decisions.jsonl").read_text().splitlines()
    decision = next(event for line in lines if (event := json.loads(line))["event"] == "decision")
    return _links(kept)[0], decision
