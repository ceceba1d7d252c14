"""Chains of jobs kept by agents on a real Slurm whose queue is busy: what interruption and overlap a policy really has.

    python -m tests.live.chains --artifact DIR --out FILE.json [--chains 10] [--links 4] [--rate 600] [--kills 0]

As root, after `make system`. Beside FILE.json the folder FILE gets the decision log of each chain. The background is
that of `tests.live.background` from its day 46 on, a day of it before the first chain. As many agents as
`--side-by-side` work at a time; one that is done makes room for the next. They are an ordinary
user's; at `--kills` random moments one of them is ended as by a crash and started again.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import random
import shutil
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agent.chains.state import ChainState, Folder
from tests.live.audit import audit
from tests.live.background import ACCOUNT, HISTORY_DAYS, USERS, Load, asked, between, cluster, submissions
from tests.live.clock import FastClock, ahead_of_others
from tests.live.keeping import USER, Kept, workplace
from tests.live.slurm import Slurm

LINK_H = 6
WARM_UP_S = 86_400
JOB = f"""#!/bin/sh
#SBATCH --time={LINK_H}:00:00 --nodes=1 --ntasks=1 --cpus-per-task=32 --gres=gpu:4 --account={ACCOUNT}
exec sleep 86400
"""


@dataclass(frozen=True)
class Link:
    """A link that went on from another: gap of their jobs in hours, interruption where positive, overlap where not."""

    chain: str
    link: int
    predecessor_end_s: int
    submit_s: int
    start_s: int

    @property
    def gap_h(self) -> float:
        """Start of the link less the end of the one before it, h."""
        return (self.start_s - self.predecessor_end_s) / 3600

    @property
    def unavoidable_h(self) -> float:
        """What of its wait is longer than a whole link, h: nobody who submits one link ahead could have saved it."""
        return max((self.start_s - self.submit_s) / 3600 - LINK_H, 0.0)


def links_of(name: str, state: ChainState) -> list[Link]:
    """The links of a chain behind its first one, from the attempts that ran to their limit."""
    ran = sorted((one for one in state.attempts if one.how == "TIMEOUT"), key=lambda one: one.link)
    return [
        Link(name, after.link, before.end_s, after.submit_s, after.start_s)
        for before, after in itertools.pairwise(ran)
        if before.end_s is not None and after.submit_s is not None and after.start_s is not None
    ]


def links_kept(kept: list[Kept]) -> list[Link]:
    """The links of all these chains."""
    states = ((one.name, Folder(one.state).load()) for one in kept)
    return [link for name, state in states if state is not None for link in links_of(name, state)]


def figures(links: list[Link]) -> dict[str, float]:
    """Means over the links, hours, with 95 % intervals from draws of whole chains."""
    gaps: dict[str, list[float]] = {}
    unavoidable: dict[str, list[float]] = {}
    for link in links:
        gaps.setdefault(link.chain, []).append(link.gap_h)
        unavoidable.setdefault(link.chain, []).append(link.unavoidable_h)
    chains = list(gaps.values())
    draws = np.random.default_rng(0).integers(0, len(chains), (2000, len(chains)))
    found: dict[str, float] = {"chains": len(chains), "links": len(links)}
    counts = np.array([len(one) for one in chains])
    for name, of_chains in (
        ("interruption_h", [np.maximum(one, 0) for one in chains]),
        ("overlap_h", [np.maximum(np.negative(one), 0) for one in chains]),
        ("unavoidable_h", [np.array(one) for one in unavoidable.values()]),
        ("zero_share", [np.array(one) <= 0 for one in chains]),
        ("within_10min_share", [np.array(one) <= 1 / 6 for one in chains]),
    ):
        sums = np.array([part.sum() for part in of_chains])
        means = sums[draws].sum(axis=1) / counts[draws].sum(axis=1)
        found |= {name: float(sums.sum() / counts.sum())}
        found |= {f"{name}_{end}": float(np.quantile(means, q)) for end, q in (("low", 0.025), ("high", 0.975))}
    return found


def keep_background(slurm: Slurm, load: Load, start_s: float, until: threading.Event) -> None:
    """Submit the background at its times, from `start_s` of the fast clock on."""
    clock = slurm.clock
    assert clock is not None
    from_s = int(HISTORY_DAYS * 86400)
    for job in between(submissions(load), from_s, int(load.days * 86400)):
        clock.sleep_until(start_s + job.submit_s)
        if until.is_set():
            return
        slurm.sbatch(*asked(job), script=f"sleep {job.run_s / clock.rate:.3f}")


class Killer:
    """Ends agents at `kills` random moments in the first `hours` of the fast clock, and starts them again."""

    def __init__(self, clock: FastClock, kills: int, hours: float, seed: int = 1) -> None:
        self._draw = random.Random(seed)
        self._clock = clock
        self._times = sorted(clock.now() + self._draw.uniform(0.1, hours) * 3600 for _ in range(kills))

    @property
    def left(self) -> int:
        """Kills that have not been made."""
        return len(self._times)

    def look(self, kept: list[Kept]) -> None:
        """Kill one of those that run, where a moment has come."""
        alive = [one for one in kept if one.status() is None]
        if alive and self._times and self._clock.now() >= self._times[0]:
            self._times.pop(0)
            self._draw.choice(alive).kill()


def run(
    artifact: Path,
    logs: Path,
    *,
    chains: int,
    links: int,
    side_by_side: int,
    rate: float,
    cycle_s: float,
    kills: int = 0,
) -> dict[str, Any]:
    """All chains, one after the other where there is no room; what came of them. Their decision logs go to `logs`.

    Over 50 lines: what is begun here is ended here, in one `try`.
    """
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with ahead_of_others(), tempfile.TemporaryDirectory(prefix="baton-chains-", dir=memory) as place:
        folder = Path(place)
        folder.chmod(0o755)
        clock = FastClock(rate)
        slurm = Slurm(folder, cluster(rate), clock)
        over, kept = threading.Event(), list[Kept]()
        try:
            slurm.up()
            for user in (one for one in USERS if one != USER):
                slurm.run("sacctmgr", "-i", "add", "user", user, f"Account={ACCOUNT}", "Cluster=live")
            work = workplace(slurm, "chains", JOB)
            shutil.copytree(artifact.resolve(), work / "released")
            start_s = clock.now() + 60
            background = threading.Thread(target=keep_background, args=(slurm, Load(), start_s, over), daemon=True)
            background.start()
            clock.sleep_until(start_s + WARM_UP_S)
            rounds = -(-chains // side_by_side)
            killer = Killer(clock, kills, rounds * links * LINK_H)
            next_s = clock.now()
            waiting = [Kept(slurm, work, f"chain{number:02d}", links, cycle_s) for number in range(chains)]
            while waiting or any(one.status() is None for one in kept):
                if waiting and clock.now() >= next_s and sum(one.status() is None for one in kept) < side_by_side:
                    kept.append(waiting.pop(0))
                    kept[-1].start()
                    next_s = clock.now() + 3600  # an hour between two first links
                killer.look(kept)
                time.sleep(0.05)
            over.set()
            background.join()
            return _told(kept, slurm, rate, cycle_s) | {"kills": kills - killer.left}
        finally:
            over.set()
            for one in kept:
                one.end()
            logs.mkdir(parents=True, exist_ok=True)
            for one in kept:
                with contextlib.suppress(FileNotFoundError):
                    shutil.copy(one.state / "decisions.jsonl", logs / f"{one.name}.jsonl")
            slurm.down()


def _told(kept: list[Kept], slurm: Slurm, rate: float, cycle_s: float) -> dict[str, Any]:
    found = links_kept(kept)
    wrong = audit(slurm, kept)
    jobs = slurm.run(
        "sacct", "-a", "-n", "-X", "-P", "-o", "JobName,Submit,Start,State", "-S", "2026-12-01", "-E", "now"
    )
    return {
        "rate": rate, "cycle_s": cycle_s, "policy": kept[0].name and _policy(kept[0].folder), **asdict(wrong),
        **figures(found), "all": [asdict(link) for link in found],
        "background": [line for line in jobs.splitlines() if line.startswith("background|")],
    }  # fmt: skip


def _policy(folder: Path) -> str:
    return str(json.loads((folder / "released" / "manifest.json").read_text())["policy"])


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--artifact", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--chains", type=int, default=10)
    parser.add_argument("--links", type=int, default=4)
    parser.add_argument("--side-by-side", type=int, default=5)
    parser.add_argument("--rate", type=float, default=300.0)
    parser.add_argument("--cycle", type=float, default=600.0)
    parser.add_argument("--kills", type=int, default=0)
    given = parser.parse_args()
    began = time.monotonic()
    found = run(
        given.artifact, given.out.with_suffix(""), chains=given.chains, links=given.links,
        side_by_side=given.side_by_side, rate=given.rate, cycle_s=given.cycle, kills=given.kills,
    )  # fmt: skip
    given.out.write_text(json.dumps(found, indent=1))
    short = {name: round(value, 3) for name, value in found.items() if isinstance(value, float)}
    print(
        f"{found['policy']}: {found['chains']} chains, {found['links']} links, {short}, "
        f"{time.monotonic() - began:.0f} s"
    )


if __name__ == "__main__":
    main()
