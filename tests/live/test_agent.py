"""Chains of jobs on a real Slurm with a fast clock, their agents killed at random: none is lost, none runs twice."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.state import Folder
from tests.agent.lab import artifact
from tests.conftest import skip_or_fail
from tests.live.clock import FastClock
from tests.live.keeping import Kept
from tests.live.slurm import Cluster, Slurm, missing

pytestmark = [pytest.mark.live, pytest.mark.slow]

IS_FULL = os.environ.get("BATON_LIVE") == "full"
RATE = 300.0
CHAINS, LINKS, KILLS = (4, 6, 50) if IS_FULL else (4, 2, 5)
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
        cluster = Slurm(Path(folder), Cluster(settings=SETTINGS), FastClock(RATE))
        try:
            cluster.up()
            yield cluster
        finally:
            cluster.down()


def test_chains_survive_the_death_of_their_agents(fast: Slurm, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(
        f"#!/bin/sh\n#SBATCH --time={LIMIT_H}:00:00 --nodes=1 --exclusive\nexec sleep 3600\n"
    )
    artifact(tmp_path / "released", trained_on={"capacity": 4})
    kept = [Kept(fast, tmp_path, f"chain{number}", LINKS, CYCLE_S) for number in range(CHAINS)]
    draw = random.Random(os.environ.get("BATON_SEED", "1"))
    whole_s = LINKS * LIMIT_H * 3600 / RATE  # seconds of the real clock
    times = sorted(draw.uniform(0.5, 0.8 * whole_s) for _ in range(KILLS))
    started = time.monotonic()
    try:
        for one in kept:
            one.start()
        while any(one.status() is None for one in kept):
            assert time.monotonic() - started < 6 * whole_s + 120, _logs(kept)
            if times and time.monotonic() - started >= times[0]:
                times.pop(0)
                alive = [one for one in kept if one.status() is None]
                draw.choice(alive).kill()
            time.sleep(0.05)
    finally:
        for one in kept:
            one.end()
    assert not times and sum(one.kills for one in kept) == KILLS
    jobs = _accounted(fast)
    for one in kept:
        _check(one, [job for job in jobs if job[1].startswith(f"{one.name}-")], _logs([one]))


def _check(one: Kept, jobs: list[list[str]], log: str) -> None:
    """Each link ran to its limit once; each job is known; each name was submitted once."""
    state = Folder(one.state).load()
    assert state is not None and one.status() == 0 and state.status == "done", log
    assert all(count == 1 for count in Counter(name for _, name, _ in jobs).values()), f"submitted twice: {jobs}\n{log}"
    known = {attempt.job_id: attempt for attempt in state.attempts if attempt.job_id}
    assert {job_id for job_id, _, _ in jobs} == set(known), f"lost: {jobs}\n{log}"
    ran = [known[job_id].link for job_id, _, how in jobs if how == "TIMEOUT"]
    assert sorted(ran) == list(range(1, LINKS + 1)), f"{jobs}\n{log}"
    others = [job_id for job_id, _, how in jobs if how != "TIMEOUT"]
    assert all(known[job_id].withdrawn for job_id in others), f"{jobs}\n{log}"


def _accounted(slurm: Slurm) -> list[list[str]]:
    """(id, name, state) of every job, as accounting has it."""
    command = ("sacct", "-n", "-P", "-X", "-o", "JobIDRaw,JobName,State", "-S", "2026-12-01", "-E", "2027-12-01")
    rows: list[list[str]] = []

    def settled() -> bool:
        rows[:] = [line.split("|") for line in slurm.run(*command).splitlines()]
        return all(row[2] not in ("RUNNING", "PENDING") for row in rows)

    slurm.wait(30, settled, "the accounting to catch up", every=0.5)
    return [[job_id, name, how.split()[0]] for job_id, name, how in rows]


def _logs(kept: list[Kept]) -> str:
    return "\n".join(one.log() for one in kept)
