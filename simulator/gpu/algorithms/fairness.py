"""Finish-time fairness: the rho of an app, and its bid for GPUs (Themis).

Mahajan et al., "Themis: Fair and efficient GPU cluster scheduling" (NSDI 2020), section 3.1: rho = T_sh / T_id. T_sh is
the time that an app takes on the shared cluster. T_id is the time that it would take alone on a 1/N share, with N apps
in contention. An app is one job or several trials of one search; it ends with its last trial.

Our reading where the paper leaves a choice: a gang that is k times wider than the 1/N share runs k times longer there.
An app gives its GPUs first to the trials with the least time left. An app that wins nothing in an auction is assumed to
wait one lease and then to continue with the 1/N share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class GangTrial(NamedTuple):
    """One gang of an app: its GPUs and remaining run time."""

    gpus: int
    run_s: float  # remaining run time on its own GPUs


def ideal_s(trials: Sequence[GangTrial], share_gpus: float) -> float:
    """Return the time of `trials` alone on `share_gpus` GPUs, s: that of the slowest gang or of all work, if longer."""
    if len(trials) == 1:  # its work on the share never takes longer than the gang itself
        return trials[0].run_s * max(1.0, trials[0].gpus / share_gpus)
    slowest = max(trial.run_s * max(1.0, trial.gpus / share_gpus) for trial in trials)
    work = sum(trial.run_s * trial.gpus for trial in trials)
    return max(slowest, work / share_gpus)


def rho(elapsed_s: float, left_s: float, alone_s: float) -> float:
    """Return the rho of an app that arrived `elapsed_s` ago, needs `left_s` more and would take `alone_s` alone."""
    return (elapsed_s + left_s) / alone_s


def left_s(trials: Sequence[GangTrial], gpus: int) -> float:
    """Return the time to the end of the last of `trials` on `gpus` GPUs, s: the longest, or all work if longer."""
    return max(max(trial.run_s for trial in trials), sum(trial.run_s * trial.gpus for trial in trials) / gpus)
