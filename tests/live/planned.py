"""Planned and reactive chains of the same work beside each other on a busy real Slurm: hours lost a day of work.

    python -m tests.live.planned --out FILE.json [--chains 10] [--work 24] [--side-by-side 4] [--rate 300]

As root, after `make system`. `--chains` of each kind begin in turn, an hour of the fast clock apart, on the background
of `tests.live.chains`. A job does no work and dies on SIGTERM, as one that has saved. Beside FILE.json the folder FILE
gets the decision logs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from agent.chains.links import promised_s, real
from agent.chains.state import Folder
from models.provisioning.policies.reactive import Reactive
from tests.agent.chains.test_keeper import rules
from tests.live.background import ACCOUNT, USERS, Load, cluster
from tests.live.chains import JOB, WARM_UP_S, keep_background
from tests.live.clock import FastClock, ahead_of_others
from tests.live.keeping import USER, Kept, workplace
from tests.live.proof import released
from tests.live.slurm import Slurm
from traces.units import DAY_S, HOUR_S

RESTART_S = 600
CYCLE_S = 600.0


def lost_of(one: Kept) -> dict[str, float]:
    """What a chain lost: hours of interruption and of restarts, of overlap, for a day of its work; and its links.

    Links that the agent withdrew are no runs. The hours for which they held nodes count as overlap.
    """
    state = Folder(one.state).load()
    assert state is not None
    runs = sorted((a for a in real(state) if a.ran), key=lambda a: a.start_s or 0)
    held = sorted(
        (a for a in state.attempts if a.start_s is not None and a.end_s is not None), key=lambda a: a.start_s or 0
    )
    until_s, interrupted_s, overlap_s, restarts = runs[0].start_s or 0, 0, 0, -1
    for run in held:
        start_s, end_s = run.start_s or 0, run.end_s or 0
        overlap_s += max(min(until_s, end_s) - start_s, 0)
        if run in runs:
            interrupted_s += max(start_s - until_s, 0)
            until_s, restarts = max(until_s, end_s), restarts + (end_s > until_s)
    work_s = promised_s(rules(restart_s=RESTART_S), runs)
    lost_s = interrupted_s + restarts * RESTART_S
    asked_h = [(a.limit_s or 0) / HOUR_S for a in runs]
    per_day = DAY_S / HOUR_S / work_s
    return {
        "lost_h_per_day": lost_s * per_day, "interrupted_h_per_day": interrupted_s * per_day,
        "overlap_h_per_day": overlap_s * per_day, "restarts_per_day": restarts * DAY_S / work_s,
        "work_h": work_s / HOUR_S, "links": len(runs), "mean_limit_h": float(np.mean(asked_h)),
        "handed_over": sum(bool(a.handed_to) for a in runs), "is_done": float(state.status == "done"),
    }  # fmt: skip


def keep_all(slurm: Slurm, waiting: list[Kept], side_by_side: int) -> list[Kept]:
    """Keep the chains until the last is over; at most so many at a time."""
    assert slurm.clock is not None
    kept, next_s = list[Kept](), slurm.clock.now()
    try:
        while waiting or any(one.status() is None for one in kept):
            free = sum(one.status() is None for one in kept) < side_by_side
            if waiting and free and slurm.clock.now() >= next_s:
                kept.append(waiting.pop(0))
                kept[-1].start()
                next_s = slurm.clock.now() + HOUR_S
            time.sleep(0.05)
    finally:
        for one in kept:
            one.end()
    return kept


def compare(out: Path, *, chains: int, work_h: float, side_by_side: int, rate: float) -> dict[str, Any]:
    """All chains on one Slurm; by kind, what each chain lost."""
    with ahead_of_others(), tempfile.TemporaryDirectory(prefix="baton-planned-") as place:
        folder = Path(place)
        folder.chmod(0o755)
        clock, over = FastClock(rate), threading.Event()
        slurm = Slurm(folder, cluster(rate), clock)
        try:
            slurm.up()
            for user in (one for one in USERS if one != USER):
                slurm.run("sacctmgr", "-i", "add", "user", user, f"Account={ACCOUNT}", "Cluster=live")
            work = workplace(slurm, "chains", JOB)
            released(Reactive(), work / "released")
            start_s = clock.now() + 60
            background = threading.Thread(target=keep_background, args=(slurm, Load(), start_s, over), daemon=True)
            background.start()
            clock.sleep_until(start_s + WARM_UP_S)
            both: dict[str, Any] = {"work_h": work_h, "restart_cost_s": RESTART_S}
            more = {"plan": both | {"plan": "auto"}, "reactive": both}
            waiting = [
                Kept(slurm, work, f"{kind}{n}", 100, CYCLE_S, more=more[kind]) for n in range(chains) for kind in more
            ]
            kept = keep_all(slurm, waiting, side_by_side)
            return {kind: [lost_of(one) for one in kept if one.name.startswith(kind)] for kind in more}
        finally:
            over.set()
            out.mkdir(parents=True, exist_ok=True)
            for state in (folder / "chains/state").glob("*"):
                with contextlib.suppress(FileNotFoundError):
                    shutil.copy(state / "decisions.jsonl", out / f"{state.name}.jsonl")
            slurm.down()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--chains", type=int, default=10, help="of each kind")
    parser.add_argument("--work", type=float, default=24.0, help="hours of each chain")
    parser.add_argument("--side-by-side", type=int, default=4)
    parser.add_argument("--rate", type=float, default=300.0)
    given = parser.parse_args()
    found = compare(
        given.out.with_suffix(""), chains=given.chains, work_h=given.work, side_by_side=given.side_by_side,
        rate=given.rate,
    )  # fmt: skip
    load = os.getloadavg()
    given.out.write_text(json.dumps(found | {"load": load}, indent=1))
    for kind, rows in found.items():
        means = {name: round(float(np.mean([row[name] for row in rows])), 3) for name in rows[0]}
        print(f"{kind}: {len(rows)} chains, means {means}")
    plan, reactive = (np.array([row["lost_h_per_day"] for row in found[kind]]) for kind in ("plan", "reactive"))
    drawn = np.random.default_rng(0).integers(0, len(plan), (2, 2000, len(plan)))
    shares = plan[drawn[0]].mean(axis=1) / reactive[drawn[1]].mean(axis=1)
    low, high = np.quantile(shares, (0.025, 0.975))
    print(
        f"plan loses {plan.mean() / reactive.mean():.2f} [{low:.2f}, {high:.2f}] of reactive's hours a day, load {load}"
    )


if __name__ == "__main__":
    main()
