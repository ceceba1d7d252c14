"""The twin of Themis in plain Python: it tries every outcome of an auction.

Apps are jobs without profiles, so a gang runs at speed 1 on any place. GPUs are the only resource.
"""

from __future__ import annotations

from itertools import product
from math import ceil, log

import numpy as np

from simulator.gpu.algorithms.placement import packed, take
from simulator.gpu.cluster import GpuCluster
from tests.twins.gpu.job import NEVER, PlainGpuJob

SAME = 1e-12  # tolerance for equal sums of logarithms


class PlainThemis:
    """The scheduler with its state between rounds."""

    pause_s: float | None = None
    settled = False

    def __init__(self, cluster: GpuCluster, round_s: float, lease_s: float, filter_share: float, seed: int) -> None:
        self.cluster, self.round_s, self.lease_s, self.filter_share = cluster, round_s, lease_s, filter_share
        self.guests: dict[int, int] = {}
        self.chance = np.random.default_rng(seed)
        self.lease_end: dict[int, float] = {}
        self.first_round: dict[int, int] = {}
        self.apps: list[int] = []  # number of apps at each round so far

    def decide(self, there: list[PlainGpuJob], now: float) -> dict[int, dict[int, int]]:
        """Return job -> {node: GPUs} until the next round; `there` in order of arrival, settled at `now`."""
        self.apps.append(len(there))
        for job in there:
            self.first_round.setdefault(job.number, len(self.apps) - 1)
        free = self.cluster.capacity[:, 0].copy()
        placed = {job.number: job.placed for job in there if job.placed and self.lease_end[job.number] > now}
        for given in placed.values():
            take(free, given)
        order = sorted(there, key=lambda job: -(now - job.submit + job.left) / self._alone(job, job.run))
        open_ = [job for job in order if job.number not in placed]
        if sum(job.gpus for job in open_) > free.sum():
            bidders = open_[: max(1, ceil((1.0 - self.filter_share) * len(open_)))]
            for job in self._winners(bidders, int(free.sum()), now):
                placed[job.number] = _place(job, free)
        rest = [job for job in open_ if job.number not in placed]
        for job in [job for job in rest if job.placed] + [job for job in rest if not job.placed]:
            if job.gpus <= free.sum():
                placed[job.number] = _place(job, free)
        for number in placed:
            if self.lease_end.get(number, 0.0) <= now:
                self.lease_end[number] = now + self.lease_s
        return placed

    def _alone(self, job: PlainGpuJob, run: float) -> float:
        """Return the seconds of `run` on a 1/N share; N is the mean of the apps in earlier rounds since its arrival."""
        since = self.apps[self.first_round[job.number] : -1] or self.apps[-1:]
        share = max(1.0, self.cluster.gpus / max(1.0, sum(since) / len(since)))
        return run * max(1.0, job.gpus / share)

    def _winners(self, bidders: list[PlainGpuJob], free: int, now: float) -> list[PlainGpuJob]:
        """Return the bidders who win their bundle in the best outcome and keep it."""
        values = []  # (value of nothing, value of the gang) of each bidder
        for job in bidders:
            age, alone = now - job.submit, self._alone(job, job.run)
            values.append(
                (log(alone / (age + self.lease_s + self._alone(job, job.left))), log(alone / (age + job.left)))
            )
        everyone = list(range(len(bidders)))
        best = _best(bidders, values, everyone, free)
        found = []
        for at in everyone:
            if not best[at]:
                continue
            others = [other for other in everyone if other != at]
            without = _best(bidders, values, others, free)
            paid = sum(values[other][best[other]] - values[other][without[other]] for other in others)
            if self.chance.random() < min(1.0, np.exp(paid)):
                found.append(bidders[at])
        return found


def _best(
    bidders: list[PlainGpuJob], values: list[tuple[float, float]], taking_part: list[int], free: int
) -> dict[int, bool]:
    """Return the winners with the largest sum of values; of equal sums, the one in which the last wins nothing."""
    best, most = dict.fromkeys(taking_part, False), -NEVER
    for wins in sorted(product((False, True), repeat=len(taking_part)), key=lambda wins: wins[::-1]):
        chosen = dict(zip(taking_part, wins, strict=True))
        is_bid = all(values[at][1] > values[at][0] for at in taking_part if chosen[at])
        total = sum(values[at][chosen[at]] for at in taking_part)
        if is_bid and sum(bidders[at].gpus for at in taking_part if chosen[at]) <= free and total > most + SAME:
            best, most = chosen, total
    return best


def _place(job: PlainGpuJob, free: np.ndarray[tuple[int], np.dtype[np.int64]]) -> dict[int, int]:
    """Place the job where it runs now if that is free, else packed; subtract from `free`."""
    stays = bool(job.placed) and all(free[node] >= gpus for node, gpus in job.placed.items())
    found = job.placed if stays else packed(free, job.gpus)
    assert found is not None
    take(free, found)
    return found
