"""Themis: auction free GPUs for a lease among the apps with the worst finish-time fairness.

Mahajan et al., "Themis: Fair and efficient GPU cluster scheduling" (NSDI 2020). An app holds GPUs until its lease ends.
Then they are offered, with all free GPUs, to the (1 - f) fraction of apps with the largest rho. Each app bids its value
for each number of GPUs, the auction maximises the product of the values, and a hidden payment makes truthful bids best.
Remaining GPUs go to the other apps, first to those that can continue on their GPUs. f = 0.8; the lease of 20 minutes is
the paper's as we recall it.

There are two levels: the auction gives GPUs to an app, which first runs the trials with the least time left. An app is
a job, or several jobs if `trials` says so. Our reading: N, the apps in contention, is the mean number of apps since the
app arrived. The time left is known; Themis gets it from the tuning framework. A gang keeps its whole bundle with the
probability that the payment leaves it (decision 33).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from simulator.gpu.algorithms.auction import auction, worst_off
from simulator.gpu.algorithms.fairness import GangTrial, bid, ideal_s, rho
from simulator.gpu.algorithms.placement import packed, take
from simulator.gpu.rounds import NOBODY, GpuJob, Placed, View, check_seconds
from simulator.gpu.scheduler import RoundScheduler
from traces.arrays import Int64s
from traces.errors import InputError


class Themis:
    """Auctions of free GPUs, for a lease, among the apps with the worst finish-time fairness.

    `trials` maps a job that is one trial of several to its app; every other job is its own app.
    """

    pause_s: float | None = None
    guests = NOBODY

    def __init__(
        self,
        round_s: float = 360.0,
        lease_s: float = 1200.0,
        filter_share: float = 0.8,
        seed: int = 0,
        trials: Mapping[int, int] | None = None,
    ) -> None:
        check_seconds("themis", round_s=round_s, lease_s=lease_s)
        if not 0.0 <= filter_share < 1.0:
            raise InputError(f"themis: filter f of {filter_share}: it must be in [0, 1)")
        self.round_s, self.lease_s, self.filter_share = round_s, lease_s, filter_share
        self.trials = {} if trials is None else dict(trials)
        self._chance = np.random.default_rng(seed)
        self._lease_end_s: dict[int, float] = {}  # job -> end of its lease
        self._came_s: dict[int, float] = {}  # app -> its arrival
        self._app_s = 0.0  # total app seconds; a round counts the apps present at its beginning
        self._there = 0  # number of apps at the last tick
        self._seen: dict[int, tuple[float, float]] = {}  # app -> the first tick with it, and the app seconds then
        self._whole: dict[int, list[GangTrial]] = {}  # app -> its trials as they arrived, including ended ones
        self._known: set[int] = set()  # numbers of known jobs
        self._last_s = 0.0

    def decide(self, view: View) -> dict[int, Placed]:
        """As `simulator.gpu.rounds.RoundPolicy`."""
        apps = self._apps(view)
        placed = {
            job.number: job.placed
            for job in view.jobs
            if job.placed and self._lease_end_s.get(job.number, 0.0) > view.now_s
        }
        free = view.machine.gpus.copy()
        for given in placed.values():
            take(free, given)
        waiting = {app: [job for job in jobs if job.number not in placed] for app, jobs in apps.items()}
        waiting = {app: jobs for app, jobs in waiting.items() if jobs}
        order = self._worst_first(apps, view)
        if sum(job.gpus for jobs in waiting.values() for job in jobs) > int(free.sum()):
            self._auction(waiting, order, view, free, placed)
        self._leftovers([job for app in order if app in waiting for job in _shortest_first(waiting[app])], free, placed)
        for number in placed:
            if self._lease_end_s.get(number, 0.0) <= view.now_s:
                self._lease_end_s[number] = view.now_s + self.lease_s
        return placed

    def said(self) -> list[str]:
        """Return the assumptions of the run as sentences for the user."""
        return ["themis: the time left of a job is known; an app is one job unless the trace groups jobs"]

    def _apps(self, view: View) -> dict[int, list[GpuJob]]:
        self._app_s += (view.now_s - self._last_s) * self._there
        apps: dict[int, list[GpuJob]] = {}
        for job in view.jobs:
            app = self.trials.get(job.number, job.number)
            apps.setdefault(app, []).append(job)
            if job.number not in self._known:
                self._known.add(job.number)
                self._came_s.setdefault(app, job.submit_s)
                self._seen.setdefault(app, (view.now_s, self._app_s))
                self._whole.setdefault(app, []).append(GangTrial(job.gpus, job.run_s))
        self._last_s, self._there = view.now_s, len(apps)
        return apps

    def _share(self, app: int, apps: int, view: View) -> float:
        """Return the GPUs of a 1/N share, at least 1; N is the mean number of apps in the rounds since its arrival."""
        first_s, app_s = self._seen[app]
        mean = (self._app_s - app_s) / (view.now_s - first_s) if view.now_s > first_s else float(apps)
        return max(1.0, view.machine.total / max(1.0, mean))

    def _worst_first(self, apps: Mapping[int, list[GpuJob]], view: View) -> list[int]:
        """Return the apps by rho, largest first, as if each had its requested GPUs from now on."""
        numbers = list(apps)
        rhos = [
            rho(
                view.now_s - self._came_s[app],
                max(job.left_s for job in apps[app]),
                ideal_s(self._whole[app], self._share(app, len(apps), view)),
            )
            for app in numbers
        ]
        return [numbers[position] for position in worst_off(rhos, 0.0)]

    def _auction(
        self,
        waiting: Mapping[int, list[GpuJob]],
        order: list[int],
        view: View,
        free: Int64s,
        placed: dict[int, Placed],
    ) -> None:
        """Auction the free GPUs to the apps with the largest rho, and place the bundles that they keep."""
        bidders = [app for app in order if app in waiting]
        bidders = bidders[: max(1, int(np.ceil((1.0 - self.filter_share) * len(bidders))))]
        bids, capacity = [], int(free.sum())
        for app in bidders:
            share = self._share(app, len(order), view)
            bids.append(
                bid(
                    [GangTrial(job.gpus, job.left_s) for job in waiting[app]],
                    view.now_s - self._came_s[app],
                    ideal_s(self._whole[app], share),
                    share,
                    self.lease_s,
                    capacity,
                )
            )
        outcome = auction(bids, capacity)
        for app, won, kept in zip(bidders, outcome.gpus, outcome.kept, strict=True):
            if won == 0 or self._chance.random() >= kept:
                continue
            for job in _shortest_first(waiting[app]):
                if job.gpus > won:
                    break
                won -= job.gpus
                self._leftovers([job], free, placed)

    def _leftovers(self, jobs: list[GpuJob], free: Int64s, placed: dict[int, Placed]) -> None:
        """Give free GPUs to `jobs`: first to those that can continue on their GPUs, then in order, packed."""
        left = int(free.sum())
        for job in [*(job for job in jobs if job.placed), *jobs]:
            if job.number in placed or left < job.gpus:
                continue
            stays = job.placed and all(free[node] >= gpus for node, gpus in job.placed.items())
            found = job.placed if stays else packed(free, job.gpus)
            if found is not None:
                placed[job.number] = found
                take(free, found)
                left -= job.gpus


def _shortest_first(jobs: list[GpuJob]) -> list[GpuJob]:
    return sorted(jobs, key=lambda job: (job.left_s, job.number))


SCHEDULER = RoundScheduler(Themis)
