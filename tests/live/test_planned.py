"""Chains that plan on a real Slurm with a fast clock, their agents killed: hand-overs, and no link lost or doubled."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from agent.chains.chain import make
from agent.chains.links import measured_restart_s
from agent.chains.look import ChainView, absorb
from agent.chains.state import ChainState, Folder, LinkAttempt
from agent.chains.submission import submit
from agent.slurm.commands import Commands
from agent.slurm.limits import read_limits
from agent.slurm.queue import read_queue
from agent.slurm.settings import read_partitions, read_settings
from tests.agent.lab import artifact
from tests.live.chains import Killer
from tests.live.clock import FastClock
from tests.live.keeping import Kept, workplace
from tests.live.slurm import OWN, Cluster, Slurm
from tests.live.test_agent import SETTINGS
from traces.counted import counted
from traces.units import HOUR_S

pytestmark = [pytest.mark.live, pytest.mark.slow]

IS_FULL = os.environ.get("BATON_LIVE") == "full"
RATE, CYCLE_S, LIMIT_H = 300.0, 150.0, 1
LINKS, CHAINS = (8, 3) if IS_FULL else (3, 2)
NODES = CHAINS + 1  # one more than links run
# A job that saves when it is signalled, and asks for another link; the file shows when which link saved. It prints a
# restart cost of 240 s, and 60 s of saving.
SCRIPT = f"""#!/bin/sh
#SBATCH --time={LIMIT_H}:00:00 --nodes=1 --ntasks=8 --signal=B:USR1@300 --open-mode=append
trap 'echo "$BATON_LINK $SLURM_JOB_ID" >> "$BATON_CHAIN_DIR/saved"; kill $!
echo "baton: job $SLURM_JOB_ID saved in 60 s"; exit 85' USR1
echo "baton: job $SLURM_JOB_ID resumed after 240 s"
sleep 3600 &
wait
"""
CLOSED = "PartitionName=closed Nodes=ALL AllowAccounts=nobody MaxTime=2-00:00:00 DefaultTime=01:00:00 State=UP"


@pytest.fixture(scope="module")
def fast(version: str) -> Iterator[Slurm]:
    """A Slurm that enforces limits, on a clock 300 times as fast."""
    ages = {"PriorityFlags": "ACCRUE_ALWAYS", "PriorityWeightAge": "100000", "PriorityMaxAge": "1-00:00:00"}
    settings = {**SETTINGS, **ages, "AccountingStorageEnforce": "limits", "MinJobAge": "172800"}
    cluster = Cluster(nodes=NODES, settings=settings, partitions=(*Cluster().partitions, CLOSED))
    with Slurm.running(cluster, FastClock(RATE), version) as slurm:
        place = workplace(slurm, "planned", SCRIPT)
        artifact(place / "released", trained_on={"capacity": NODES})
        yield slurm


def test_planned_chains_survive_kills(fast: Slurm, record_property: Callable[[str, object], None]) -> None:
    """A job holds the free node, another waits for all, so second links are queued; when both go, links are early."""
    assert fast.clock is not None
    place, plan = fast.folder / "planned", {"plan": "auto", "ask": "fixed", "restart_cost_s": 300.0}
    kept = [Kept(fast, place, f"plan{number}", LINKS, CYCLE_S, more=plan) for number in range(CHAINS)]
    kills = 100 if IS_FULL else 6 if fast.version == OWN else 3
    hours = 0.6 * LINKS * LIMIT_H
    holder = fast.sbatch("--time=90", "--exclusive", script="sleep 60")
    for one in kept:
        one.start()
    fast.wait(30, lambda: all(one.has_begun() for one in kept), "the chains to begin")
    wide = fast.sbatch("--time=90", "--exclusive", f"--nodes={NODES}")
    queued = ("squeue", "-h", "--states=PD", "-o", "%j")
    fast.wait(60, lambda: fast.run(*queued).count("plan") == CHAINS, "second links to be queued")
    fast.run("scancel", holder, wide)
    killer, started = Killer(fast.clock, kills, hours, seed=2), time.monotonic()
    try:
        while any(one.status() is None for one in kept):
            assert time.monotonic() - started < 4 * LINKS * LIMIT_H * 3600 / RATE + 60, "\n".join(
                one.log() for one in kept
            )
            killer.look(kept)
            time.sleep(0.05)
    finally:
        for one in kept:
            one.end()
    states = {one.name: _state(one) for one in kept}
    assert killer.left == 0 and {state.status for state in states.values()} == {"done"}, kept[0].log()
    handed = [_audited(fast, one, states[one.name]) for one in kept]
    assert sum(handed) >= 1, _logs(kept)
    assert {measured_restart_s(state) for state in states.values()} <= {240, 300}, states
    record_property(
        "said", f"Slurm {fast.version}: {CHAINS} planned chains, {counted(sum(handed), 'hand-over')}, {kills} kills"
    )


def test_a_link_of_a_job_that_never_saves_is_held_and_gains_priority(fast: Slurm) -> None:
    """By PriorityFlags=ACCRUE_ALWAYS: the link is submitted at once, and starts when the older one has ended."""
    kept = Kept(fast, fast.folder / "planned", "never", 2, CYCLE_S, more={"plan": "auto", "saves": "never"})

    def priority() -> int:
        queued = fast.run("squeue", "-h", "--states=PD", "-O", "Name:40,Reason:20,PriorityLong:20").splitlines()
        held = [line.split() for line in queued if line.startswith("never-") and "Dependency" in line]
        return int(held[0][2]) if held else 0

    kept.start()
    try:
        fast.wait(60, lambda: priority() > 0, "the second link to be held")
        begun = priority()
        fast.wait(30, lambda: priority() > begun, "the held link to gain priority")
        fast.wait(120, lambda: kept.status() is not None, "the end of the chain")
    finally:
        kept.end()
    first, second = _state(kept).attempts
    assert second.after == f"afterany:{first.job_id}" and not first.handed_to, kept.log()
    assert first.end_s is not None and second.start_s is not None and 0 <= second.start_s - first.end_s <= 600
    assert "PriorityFlags=ACCRUE_ALWAYS" in kept.log()


def test_a_link_that_can_live_with_less_fills_a_hole(fast: Slurm) -> None:
    """One node is taken for two hours, after which a job on all nodes is due: a link of 10 h gets less than 2 h."""
    (script := fast.folder / "hole.sh").write_text(SCRIPT)
    chain = make({"script": script, "links": 2, "plan": "auto", "time_min": "on"})
    holder = fast.sbatch("--time=120", "--exclusive", "--nodes=1", script="sleep 600")
    fast.wait(30, lambda: fast.run("squeue", "-h", "-j", holder, "-o", "%T").strip() == "RUNNING", "the holder to run")
    wide = fast.sbatch("--time=60", "--exclusive", f"--nodes={NODES}")
    commands, folder = Commands({**fast.real_env}), Folder(fast.folder / "hole")
    asked = LinkAttempt(1, 1, "hole-00000000-1.1", 0, limit_s=10 * HOUR_S, least_s=600)
    asked = replace(asked, job_id=submit(commands, chain, folder, asked, "", fast.real_env))
    state, seen = ChainState("00000000", "hole", str(script), 2, (asked,)), list[LinkAttempt]()

    def runs() -> bool:
        assert fast.clock is not None
        now_s = int(fast.clock.now())
        seen[:] = absorb(state, ChainView(now_s, read_queue(commands, now_s).jobs)).attempts
        return seen[0].is_running

    fast.wait(30, runs, "the link to run")
    (link,) = seen
    fast.run("scancel", holder, wide, link.job_id)
    assert link.start_s is not None and link.limit_s is not None and 600 <= link.limit_s < 7200
    assert link.end_s == link.start_s + link.limit_s, "the agent plans with what it got"


def test_what_a_plan_reads_of_limits_and_a_closed_partition(fast: Slurm) -> None:
    """MaxSubmitJobs and MaxWall of association and QOS; a partition of other accounts is refused in one line."""
    fast.run("sacctmgr", "-i", "modify", "user", "root", "set", "MaxSubmitJobs=2", "MaxWall=06:00:00")
    commands = Commands({**fast.env})
    settings, partitions = read_settings(commands), read_partitions(commands)
    limits = read_limits(commands, settings, partitions["gpu"], user="root", account="", qos="")[0]
    assert (limits.submitted, limits.wall_s) == (2, 21_600)
    fast.run("sacctmgr", "-i", "modify", "qos", "normal", "set", "MaxSubmitJobsPerUser=1", "MaxWall=05:00:00")
    limits = read_limits(commands, settings, partitions["gpu"], user="root", account="", qos="")[0]
    assert (limits.submitted, limits.wall_s) == (1, 18_000)
    place = fast.folder / "planned"
    refused = Kept(fast, place, "closed", 2, CYCLE_S, more={"plan": "auto", "options": ["--partition=closed"]})
    refused.start()
    assert refused.process is not None
    assert refused.process.wait(30) != 0
    why = "partition closed does not allow account science: AllowAccounts=nobody"
    assert refused.log().rstrip().endswith(f"{why}; choose another partition, --account or --qos")


def _logs(kept: list[Kept]) -> str:
    return "\n".join(one.log() for one in kept)


def _state(one: Kept) -> ChainState:
    state = Folder(one.state).load()
    assert state is not None
    return state


def _audited(slurm: Slurm, one: Kept, state: ChainState) -> int:
    """Hold a chain against the accounting; returns its number of hand-overs."""
    fields = "JobIDRaw,JobName,State,Start,End"
    rows: list[list[str]] = []

    def settled() -> bool:
        text = slurm.run("sacct", "-a", "-n", "-P", "-X", "-o", fields, "-S", "2026-12-01", "-E", "2027-12-01")
        rows[:] = [line.split("|") for line in text.splitlines() if f"|{one.name}-" in line]
        return all(row[2] not in ("RUNNING", "PENDING") for row in rows)

    slurm.wait(30, settled, "the accounting to catch up", every=0.5)
    by_id, known = {row[0]: row for row in rows}, {a.job_id for a in state.attempts if a.job_id}
    assert set(by_id) == known, f"jobs {set(by_id) ^ known} are not known to both"
    assert max(Counter(row[1] for row in rows).values()) == 1, rows
    saved = [line.split() for line in (_saved(one).read_text().splitlines() if _saved(one).exists() else [])]
    assert len({job_id for _, job_id in saved}) == len(saved), f"a job was asked to save twice: {saved}"
    by_name = {a.name: a for a in state.attempts}
    handed = [a for a in state.attempts if a.handed_to]
    for older in handed:
        newer = by_id[by_name[older.handed_to].job_id]
        assert newer[3] < by_id[older.job_id][4], f"{older.name} ended before {newer[1]} began: {rows}"
        assert older.job_id in {job_id for _, job_id in saved}, f"{older.name} did not save: {rows}"
    ran = [a for a in state.attempts if a.ran]
    assert {a.link for a in ran} == set(range(1, LINKS + 1)) and len(ran) == LINKS, state.attempts
    times = sorted(tuple(map(datetime.fromisoformat, by_id[a.job_id][3:])) for a in ran)
    gap_s, both_s, until = 0.0, 0.0, times[0][1]
    for start, end in times[1:]:
        gap_s += max((start - until).total_seconds(), 0)
        both_s += max((min(until, end) - start).total_seconds(), 0)
        until = max(until, end)
    journal = [json.loads(line) for line in (one.state / "decisions.jsonl").read_text().splitlines()]
    written = {line["successor_id"]: line for line in journal if line["event"] == "handover"}  # the last one of each
    assert HOUR_S * sum(line["interruption_h"] for line in written.values()) == pytest.approx(gap_s, abs=LINKS), written
    assert HOUR_S * sum(line["overlap_h"] for line in written.values()) == pytest.approx(both_s, abs=LINKS), written
    return len(handed)


def _saved(one: Kept) -> Path:
    return Folder(one.state).for_jobs / "saved"
