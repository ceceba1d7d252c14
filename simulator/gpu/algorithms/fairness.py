"""Finish-time fairness: rho of an app, and what it bids for GPUs (Themis).

Mahajan et al., "Themis: Fair and efficient GPU cluster scheduling" (NSDI 2020), section 3.1: rho = T_sh / T_id, the
time an app takes on the shared cluster over the time it would take alone on a 1/N share of it, with N apps in
contention. An app is one job or several trials of one search; it ends with its last trial.

Our reading where the paper leaves a choice: a gang that is wider than the 1/N share runs there as many times longer
as it is wider; an app gives its GPUs to the trials with the least left to run first; and an app that wins nothing in
an auction is taken to wait one lease and to go on with the 1/N share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class GangTrial(NamedTuple):
    """A gang of GPUs that runs for a time."""

    gpus: int
    run_s: float  # what is left of it, on its own GPUs


def ideal_s(trials: Sequence[GangTrial], share_gpus: float) -> float:
    """Seconds that `trials` take alone on `share_gpus` GPUs, s: the slowest gang, or all the work, whichever is
    longer.
    """
    if len(trials) == 1:  # its work on the share never takes longer than it does
        return trials[0].run_s * max(1.0, trials[0].gpus / share_gpus)
    slowest = max(trial.run_s * max(1.0, trial.gpus / share_gpus) for trial in trials)
    work = sum(trial.run_s * trial.gpus for trial in trials)
    return max(slowest, work / share_gpus)


def rho(elapsed_s: float, left_s: float, alone_s: float) -> float:
    """Finish-time fairness of an app that came `elapsed_s` ago, needs `left_s` more and would take `alone_s` alone."""
    return (elapsed_s + left_s) / alone_s


def bid(
    trials: Sequence[GangTrial], elapsed_s: float, alone_s: float, share_gpus: float, lease_s: float, free_gpus: int
) -> list[tuple[int, float]]:
    """(GPUs, 1 / rho with them) of nothing and of each number of GPUs that some of the waiting `trials` can use.

    Bundles are the sums of the trials with the least left, as long as `free_gpus` holds them; a bundle that is worth no
    more than a smaller one is not bid for.
    """
    left = ideal_s(trials, share_gpus)
    offers = [(0, 1.0 / rho(elapsed_s + lease_s, left, alone_s))]
    gpus, longest = 0, max(trial.run_s for trial in trials)
    work = sum(trial.run_s * trial.gpus for trial in trials)
    for trial in sorted(trials, key=lambda trial: trial.run_s):
        gpus += trial.gpus
        if gpus > free_gpus:
            break
        value = 1.0 / rho(elapsed_s, max(longest, work / gpus), alone_s)
        if value > offers[-1][1]:
            offers.append((gpus, value))
    return offers
