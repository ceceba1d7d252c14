"""Chains on a real Slurm with a fast clock; agents killed, daemons away: no link is lost or runs twice."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest

from tests.agent.lab import artifact
from tests.live.audit import Audit, audit, last_line
from tests.live.chains import Killer, figures, links_kept
from tests.live.clock import FastClock
from tests.live.keeping import Kept, workplace
from tests.live.mishaps import Course, mishaps
from tests.live.slurm import OWN, Cluster, Slurm

pytestmark = [pytest.mark.live, pytest.mark.slow]

IS_FULL = os.environ.get("BATON_LIVE") == "full"
RATE = 300.0
LINKS, AT_ONCE = (10, 1) if IS_FULL else (2, 2)  # AT_ONCE: mishaps
NODES = 4  # of eight processors: jobs of one share them, so that no link waits
CYCLE_S = 300.0
LIMIT_H = 1
SPREAD_H = LIMIT_H / 2  # from the first chain's begin to the last one's, so that handovers meet every mishap
SETTINGS = {  # seconds of the fast clock: none may end before a process has had its time
    "SlurmctldTimeout": "3600", "SlurmdTimeout": "36000", "MessageTimeout": "1800", "TCPTimeout": "1800",
    "BatchStartTimeout": "3600", "KillWait": "30", "MinJobAge": "172800", "SlurmdDebug": "error",
    "UnkillableStepTimeout": "7200", "PreemptType": "preempt/none", "PreemptMode": "OFF",
    "SchedulerParameters": "bf_interval=30,bf_continue,max_sched_time=120,bf_max_time=1800,bf_yield_interval=10000000",
}  # fmt: skip


@pytest.fixture(scope="module")
def fast(version: str) -> Iterator[Slurm]:
    """A Slurm of four nodes on a clock 300 times as fast."""
    with Slurm.running(Cluster(nodes=NODES, settings=SETTINGS), FastClock(RATE), version) as cluster:
        yield cluster


def test_chains_survive_kills_and_mishaps(fast: Slurm, record_property: Callable[[str, object], None]) -> None:
    """Half of the chains under a policy, half of them reactive; agents of the first are killed, mishaps meet all."""
    script = f"#!/bin/sh\n#SBATCH --time={LIMIT_H}:00:00 --nodes=1 --ntasks=1\nexec sleep 3600\n"
    place = workplace(fast, "chains", script)
    artifact(place / "released", trained_on={"capacity": NODES})
    artifact(place / "reactive", lead_h=0.0, trained_on={"capacity": NODES})
    chains, kills = (4, 50) if IS_FULL else (4, 5) if fast.version == OWN else (3, 2)
    kept = [Kept(fast, place, f"chain{number}", LINKS, CYCLE_S) for number in range(chains)]
    peers = [Kept(fast, place, f"reactive{number}", LINKS, CYCLE_S, "reactive") for number in range(chains)]
    assert fast.clock is not None
    whole_h = LINKS * LIMIT_H
    killer = Killer(fast.clock, kills, 0.8 * whole_h, int(os.environ.get("BATON_SEED", "1")))
    course: Course | None = None  # from when all chains have begun: a new one is refused where it cannot run
    waiting, running = [one for pair in zip(kept, peers, strict=True) for one in pair], list[Kept]()
    started, next_s = time.monotonic(), fast.clock.now()
    try:
        while waiting or any(one.status() is None for one in running) or course is None or not course.is_over:
            assert time.monotonic() - started < 6 * whole_h * 3600 / RATE + 120, _logs(running)
            if waiting and fast.clock.now() >= next_s:
                running.append(waiting.pop(0))
                running[-1].start()
                next_s += SPREAD_H * 3600 / (2 * chains)
            killer.look([one for one in running if one in kept])
            if course is not None:
                course.look()
            elif not waiting and all(one.has_begun() for one in running):
                course = Course(fast.clock, mishaps(fast, place), AT_ONCE, every_h=(whole_h - 0.5) / 7 * AT_ONCE)
            time.sleep(0.05)
    finally:
        for one in running:
            one.end()
    assert killer.left == 0 and sum(one.kills for one in kept) == kills
    wrong = audit(fast, [*kept, *peers])
    assert wrong == Audit(), f"{wrong}\n{_logs([*kept, *peers])}"
    found, reactive = figures(links_kept(kept)), figures(links_kept(peers))
    assert found["links"] == reactive["links"] == chains * (LINKS - 1)
    assert found["overlap_h"] > reactive["overlap_h"] == 0
    said = f"Slurm {fast.version}: {last_line(found, reactive, kills, wrong)}, while {', '.join(course.names)}"
    record_property("said", said)


def _logs(kept: list[Kept]) -> str:
    return "\n".join(one.log() for one in kept)
