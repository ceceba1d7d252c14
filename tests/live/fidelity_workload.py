"""A generated workload for the comparison with a real Slurm: the same jobs, second for second, from the same seed.

Jobs of six users in three accounts, on two overlapping partitions, under three QOS: one GPU to eight nodes, arrays
with throttles, chains of dependencies, begin times, holds, nice values, jobs that fail, that run into their limit and
that are cancelled while they queue. Arrivals come in waves, so that the queue fills and empties.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

ACCOUNTS = {"physics": 50, "vision": 30, "language": 20}  # account -> Fairshare
USERS = {  # Debian's own users, so that none has to be made on the machine: user -> (account, Fairshare)
    "daemon": ("physics", 2),
    "bin": ("physics", 1),
    "games": ("vision", 1),
    "man": ("vision", 1),
    "news": ("language", 3),
    "uucp": ("language", 1),
}
# nodes, GPUs a node, share of the submissions
SIZES = ((1, 1, 0.38), (1, 2, 0.18), (1, 4, 0.22), (2, 4, 0.12), (4, 4, 0.08), (8, 4, 0.02))
LIMITS_MIN = (5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 360, 480, 720)
CPUS_PER_GPU = 8


@dataclass(frozen=True)
class Plan:
    """Size of a workload: at least `jobs` jobs submitted over `hours` simulated hours, at `load` times the GPUs.

    No job runs longer than `longest_s`.
    """

    jobs: int
    hours: float
    load: float
    seed: int
    longest_s: int = 9000


FULL = Plan(jobs=1060, hours=4, load=1.8, seed=2)
SHORT = Plan(jobs=100, hours=0.25, load=2.0, seed=7, longest_s=900)


@dataclass(frozen=True)
class Submission:
    """One `sbatch`, and what is done to the job later.

    submit_s, cancel_s, release_s: simulated seconds from the start of the run, None where it does not apply.
    run_s: simulated seconds that each task would run without a limit.
    depends: (kind, index of an earlier submission) or None; `singleton` has index -1.
    gpu_type: the type of GPU asked for, "" for any.
    """

    index: int
    submit_s: int
    user: str
    partition: str
    qos: str
    nodes: int
    gpus_per_node: int
    limit_min: int
    run_s: int
    exit_code: int = 0
    name: str = "job"
    depends: tuple[str, int] | None = None
    tasks: int = 1
    throttle: int = 0
    begin_after_s: int = 0
    nice: int = 0
    cancel_s: int | None = None
    release_s: int | None = None
    gpu_type: str = ""


def generate(plan: Plan) -> list[Submission]:
    """The submissions of a plan, array tasks counted as jobs, for 16 nodes of 4 GPUs."""
    rng = np.random.default_rng(plan.seed)
    drafts: list[Submission] = []
    total = 0
    while total < plan.jobs:
        drafts.append(_draft(rng, len(drafts)))
        total += drafts[-1].tasks
    arrivals = _arrivals(rng, len(drafts), plan.hours * 3600)
    asked = sum(d.tasks * d.nodes * d.gpus_per_node * min(d.run_s, d.limit_min * 60) for d in drafts)
    scale = plan.load * plan.hours * 3600 * 64 / asked
    return [_finish(rng, draft, int(at), scale, plan.longest_s) for draft, at in zip(drafts, arrivals, strict=True)]


def _arrivals(rng: np.random.Generator, count: int, seconds: float) -> np.ndarray:
    """Sorted submit times (float64, seconds): a third in bursts within a minute, the rest in waves of four hours."""
    weight = 1 + 0.8 * np.sin(2 * np.pi * np.arange(0, seconds, 60) / 14_400)
    minute = rng.choice(len(weight), size=count, p=weight / weight.sum())
    at = minute * 60 + rng.uniform(0, 60, count)
    for start in rng.choice(count, size=count // 30, replace=False):
        members = rng.choice(count, size=10)
        at[members] = np.minimum(at[start] + rng.uniform(0, 60, 10), seconds)
    return np.sort(at)


def _draft(rng: np.random.Generator, index: int) -> Submission:
    """A submission before its run time is scaled to the load and before its submit time is known."""
    nodes, gpus, _ = SIZES[rng.choice(len(SIZES), p=[share for *_, share in SIZES])]
    user = str(rng.choice(list(USERS), p=(0.3, 0.2, 0.15, 0.15, 0.15, 0.05)))
    short = nodes <= 4 and rng.random() < 0.3
    qos = str(rng.choice(("normal", "high", "scavenger"), p=(0.7, 0.12, 0.18)))
    if qos == "high" and nodes * gpus > 8:
        qos = "normal"  # above its MaxTRESPU it would never start
    if qos == "scavenger" and nodes * gpus > 16:
        qos = "normal"
    array = rng.random() < 0.06 and nodes == 1
    tasks = int(rng.integers(4, 13)) if array else 1
    return Submission(
        index=index,
        submit_s=0,
        user=user,
        partition="short" if short else "gpu",
        qos=qos,
        nodes=int(nodes),
        gpus_per_node=int(gpus),
        limit_min=720,
        run_s=int(np.clip(rng.lognormal(np.log(600), 1.1) / (4 if array else 1), 60, 14_400)),
        tasks=tasks,
        throttle=int(rng.integers(1, 5)) if array and rng.random() < 0.7 else 0,
    )


def _finish(rng: np.random.Generator, draft: Submission, submit_s: int, scale: float, longest_s: int) -> Submission:
    """The draft with its run time at the load asked for, a limit, and what else happens to it."""
    run_s = int(np.clip(draft.run_s * scale, 60, min(longest_s, 6900 if draft.partition == "short" else 9_000)))
    reach = run_s * rng.choice((1.05, 1.5, 3.0, 8.0), p=(0.25, 0.35, 0.25, 0.15)) / 60
    longest = 120 if draft.partition == "short" else 720
    limit_min = next((limit for limit in LIMITS_MIN if limit >= reach), longest)
    kind = rng.random()
    extra: dict[str, Any] = {}
    if draft.index > 20 and draft.tasks == 1:
        earlier = draft.index - int(rng.integers(1, 15))
        if kind < 0.04:
            extra = {"depends": ("afterany", earlier)}
        elif kind < 0.08:
            extra = {"depends": ("afterok", earlier)}
        elif kind < 0.12:
            extra = {"depends": ("singleton", -1), "name": f"chain{draft.index % 3}"}
        elif kind < 0.15:
            extra = {"begin_after_s": int(rng.integers(300, 5400))}
        elif kind < 0.16:
            extra = {"release_s": submit_s + int(rng.integers(300, 3600))}
        elif kind < 0.19:
            extra = {"cancel_s": submit_s + int(rng.integers(60, 2400))}
    fate = rng.random()
    if fate < 0.06:
        extra |= {"exit_code": 3}
    elif fate < 0.11:
        run_s = limit_min * 60 + 3600  # runs into its limit
        while limit_min > min(30, longest_s // 60):
            limit_min //= 2
    nice = int(rng.choice((0, 200, 1000), p=(0.92, 0.05, 0.03)))
    changed = {"submit_s": submit_s, "run_s": run_s, "limit_min": min(limit_min, longest), "nice": nice, **extra}
    return Submission(**(draft.__dict__ | changed))
