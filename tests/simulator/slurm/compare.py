"""Compare a simulated Slurm with a recorded one: step by step, and over a whole run.

The one-step comparison takes the recorded state before each recorded start and checks whether the simulator starts that
job too. Errors cannot accumulate, so it measures the rules. The free run measures the accumulated error: it uses only
submissions and run times from the first submission on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simulator.metrics import wait_distance
from simulator.slurm.world import NEVER, NONE, SlurmResult, SlurmWorld
from traces.arrays import Bools, Int64s

# (world, free_from, until) -> result: jobs with a pinned start before `free_from` start then, on their recorded nodes;
# from that second on the scheduler decides, and the run stops at `until`.
Simulate = Callable[[SlurmWorld, int, int], SlurmResult]


@dataclass(frozen=True)
class OneStep:
    """Outcome of the step-by-step comparison; arrays of shape (cases,), one case per recorded start.

    job: row of `SlurmWorld.jobs`. recorded_s: its recorded start. simulated_s: its simulated start from the state
    before, NONE if not within `tolerance_s`. begun: number of distinct (step, job) starts that the simulator makes
    within the tolerance. unmatched: number of those that the record does not make even within twice the tolerance.
    """

    job: Int64s
    recorded_s: Int64s
    simulated_s: Int64s
    tolerance_s: int
    begun: int
    unmatched: int

    @property
    def hits(self) -> Bools:
        """Return the cases in which the simulator starts the same job within the tolerance, shape (cases,)."""
        return np.asarray(self.simulated_s != NONE)

    @property
    def share(self) -> float:
        """Return the share of cases that are hits; NaN without cases."""
        return float(self.hits.mean()) if len(self.job) else float("nan")

    @property
    def unmatched_share(self) -> float:
        """Return the share of simulated starts that the record does not make soon; NaN without simulated starts."""
        return self.unmatched / self.begun if self.begun else float("nan")


def one_step(world: SlurmWorld, simulate: Simulate, tolerance_s: int, every: int = 1) -> OneStep:
    """Compare the starts in [t, t + `tolerance_s`) at each `every`-th second t with recorded starts.

    Each step begins from the recorded state before t. With the backfill interval as the tolerance, a step is one
    backfill pass, at t, and the main passes until the next one. `world.jobs.pinned_s` holds the recorded starts. All
    jobs that the record starts in one second are cases of one step, since a pass starts several at once. Raises
    ValueError for a world without recorded starts.
    """
    recorded = world.jobs.pinned_s
    instants = np.unique(recorded[recorded != NEVER])[::every]
    if not len(instants):
        raise ValueError("no job has a recorded start: `pinned_s` is NEVER throughout")
    cases: list[tuple[Int64s, Int64s]] = []
    begun = unmatched = 0
    for instant in instants:
        starts = simulate(world, int(instant), int(instant) + tolerance_s - 1).start_s
        soon = (starts >= instant) & (starts < instant + tolerance_s)
        begun += int(soon.sum())
        unmatched += int((soon & (recorded > instant + 2 * tolerance_s)).sum())
        job = np.flatnonzero(recorded == instant)
        cases.append((job, np.where(soon[job], starts[job], NONE)))
    jobs = np.concatenate([job for job, _ in cases])
    simulated = np.concatenate([start for _, start in cases])
    return OneStep(jobs, recorded[jobs], simulated, tolerance_s, begun, unmatched)


def free_run(world: SlurmWorld, result: SlurmResult) -> dict[str, float]:
    """Return `simulator.metrics.wait_distance` of a run and the record, over the jobs that started in both.

    A wait lasts from the job's eligibility (its submission, if later) to its start. Further figures are
    `relative_mean_wait`, the simulated mean over the recorded mean minus 1, and `only_recorded` and `only_simulated`,
    the jobs that started in only one of the two.
    """
    recorded, simulated = world.jobs.pinned_s, result.start_s
    in_record, in_run = recorded != NEVER, simulated != NONE
    both = in_record & in_run
    since = np.maximum(world.jobs.submit_s, world.jobs.eligible_s)[both]
    figures = relative(simulated[both] - since, recorded[both] - since)
    return figures | {
        "only_recorded": float((in_record & ~in_run).sum()),
        "only_simulated": float((in_run & ~in_record).sum()),
    }


def relative(wait_s: Int64s, reference_wait_s: Int64s) -> dict[str, float]:
    """Return `wait_distance` and `relative_mean_wait` of two runs of the same jobs, waits in s of shape (jobs,)."""
    figures = wait_distance(wait_s, reference_wait_s)
    reference = figures["recorded_mean_wait_s"]
    ratio = figures["simulated_mean_wait_s"] / reference - 1 if reference else float("nan")
    return figures | {"relative_mean_wait": ratio}
