"""Chains of jobs on a real Slurm with a fast clock, their agents killed at random: none is lost, none runs twice."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent.lab import artifact
from tests.conftest import skip_or_fail
from tests.live.audit import Audit, audit, last_line
from tests.live.chains import Killer, figures, links_kept
from tests.live.clock import FastClock
from tests.live.keeping import Kept, workplace
from tests.live.slurm import Cluster, Slurm, missing

pytestmark = [pytest.mark.live, pytest.mark.slow]

RATE = 300.0
CHAINS, LINKS, KILLS = 4, 2, 5  # tests.live.proof is the long form
NODES = 4  # of eight processors: jobs of one share them, so that no link waits
CYCLE_S = 300.0
LIMIT_H = 2
SETTINGS = {  # seconds of the fast clock: none may end before a process has had its time
    "SlurmctldTimeout": "3600", "SlurmdTimeout": "36000", "MessageTimeout": "1800", "TCPTimeout": "1800",
    "BatchStartTimeout": "3600", "KillWait": "30", "MinJobAge": "172800", "SlurmdDebug": "error",
    "UnkillableStepTimeout": "7200", "PreemptType": "preempt/none", "PreemptMode": "OFF",
    "SchedulerParameters": "bf_interval=30,bf_continue,max_sched_time=120,bf_max_time=1800,bf_yield_interval=10000000",
}  # fmt: skip


@pytest.fixture(scope="module")
def fast() -> Iterator[Slurm]:
    """A Slurm of four nodes on a clock 300 times as fast."""
    reason = missing(clock=True)
    if reason:
        skip_or_fail("slurm", reason)
    with tempfile.TemporaryDirectory(prefix="baton-slurm-") as folder:
        Path(folder).chmod(0o755)
        cluster = Slurm(Path(folder), Cluster(nodes=NODES, settings=SETTINGS), FastClock(RATE))
        try:
            cluster.up()
            yield cluster
        finally:
            cluster.down()


def test_chains_survive_the_death_of_their_agents(fast: Slurm, record_property: Callable[[str, object], None]) -> None:
    """Half of the chains under a policy, half of them reactive; agents of the first are killed."""
    script = f"#!/bin/sh\n#SBATCH --time={LIMIT_H}:00:00 --nodes=1 --ntasks=1\nexec sleep 3600\n"
    place = workplace(fast, "chains", script)
    artifact(place / "released", trained_on={"capacity": NODES})
    artifact(place / "reactive", lead_h=0.0, trained_on={"capacity": NODES})
    kept = [Kept(fast, place, f"chain{number}", LINKS, CYCLE_S) for number in range(CHAINS)]
    peers = [Kept(fast, place, f"reactive{number}", LINKS, CYCLE_S, "reactive") for number in range(CHAINS)]
    assert fast.clock is not None
    killer = Killer(fast.clock, KILLS, 0.8 * LINKS * LIMIT_H, int(os.environ.get("BATON_SEED", "1")))
    whole_s = LINKS * LIMIT_H * 3600 / RATE  # seconds of the real clock
    started = time.monotonic()
    try:
        for one in (*kept, *peers):
            one.start()
        while any(one.status() is None for one in (*kept, *peers)):
            assert time.monotonic() - started < 6 * whole_s + 120, _logs([*kept, *peers])
            killer.look(kept)
            time.sleep(0.05)
    finally:
        for one in (*kept, *peers):
            one.end()
    assert killer.left == 0 and sum(one.kills for one in kept) == KILLS
    wrong = audit(fast, [*kept, *peers])
    assert wrong == Audit(), f"{wrong}\n{_logs([*kept, *peers])}"
    found, reactive = figures(links_kept(kept)), figures(links_kept(peers))
    assert found["links"] == reactive["links"] == CHAINS * (LINKS - 1)
    assert found["overlap_h"] > reactive["overlap_h"] == 0
    record_property("said", last_line(found, reactive, KILLS, wrong))


def _logs(kept: list[Kept]) -> str:
    return "\n".join(one.log() for one in kept)
