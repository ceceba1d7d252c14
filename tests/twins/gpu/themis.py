"""The twin of Themis in plain Python: it tries every outcome of an auction and every way to place it.

GPUs are the only resource. The twin equals `simulator.gpu.policies.themis` on nodes of any sizes and types, for jobs
with and without profiles and for apps of several jobs, in auctions of up to 12 apps.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import ceil, exp, log
from typing import NamedTuple

import numpy as np

from simulator.gpu.round_policy import GpuMachine
from tests.twins.gpu.job import PlainGpuJob
from tests.twins.gpu.rounds import Placed, best_fit, holds, less, speed

SAME = 1e-6  # bundles whose logarithms of value are this close are the same: the earlier wins
Parts = list[tuple[str | None, int]]  # (GPU type, GPUs on a node) of each part


class _Wish(NamedTuple):
    parts: list[Parts]  # of each job
    jobs: list[PlainGpuJob]
    speeds: list[float]
    gain: float  # logarithm of its value over that of nothing


class PlainThemis:
    """The scheduler with its state between rounds."""

    pause_s: float | None = None
    settled = False

    def __init__(self, machine: GpuMachine, round_s: float, lease_s: float, filter_share: float, seed: int) -> None:
        self.machine, self.round_s, self.lease_s, self.filter_share = machine, round_s, lease_s, filter_share
        self.guests: dict[int, int] = {}
        self.chance = np.random.default_rng(seed)
        self.lease_end: dict[int, float] = {}
        self.first_round: dict[int, int] = {}
        self.apps: list[int] = []  # number of apps at each round so far
        self.everyone: dict[int, PlainGpuJob] = {}

    def decide(self, there: list[PlainGpuJob], now: float) -> dict[int, Placed]:
        """Return job -> {node: GPUs} until the next round; `there` in order of arrival, settled at `now`."""
        self.everyone.update({job.number: job for job in there})
        apps = list(dict.fromkeys(_app(job) for job in there))
        self.apps.append(len(apps))
        for app in apps:
            self.first_round.setdefault(app, len(self.apps) - 1)
        self.free = self.machine.gpus.tolist()
        placed = {job.number: job.placed for job in there if job.placed and self.lease_end[job.number] > now}
        self.free = less(self.free, *placed.values())
        by_left = sorted(there, key=lambda job: (job.left, job.number))
        jobs = {app: [job for job in by_left if _app(job) == app and job.number not in placed] for app in apps}
        left = {app: max(job.left for job in there if _app(job) == app) for app in apps}
        order = sorted(apps, key=lambda app: -(now - self._came(app) + left[app]) / self._alone(app))
        bidders = [app for app in order if jobs[app]]
        bidders = bidders[: max(1, ceil((1.0 - self.filter_share) * len(bidders) - 1e-9))]
        if sum(self.free):
            running = [(_app(job), job.left / job.speed) for job in there if job.number in placed]
            wishes = []
            for at, app in enumerate(bidders):
                running_s = max([0.0, *(left_s for own, left_s in running if own == app)])
                wishes.append(self._wishes(app, jobs[app], running_s, now, SAME * (2.0 - at / len(bidders))))
            self._give(self._winners(wishes), placed)
            self._rest([job for app in order for job in jobs[app]], placed)
        for number in placed:
            if self.lease_end.get(number, 0.0) <= now:
                self.lease_end[number] = now + self.lease_s
        return placed

    def _came(self, app: int) -> float:
        return min(job.submit for job in self.everyone.values() if _app(job) == app)

    def _share(self, app: int) -> float:
        """Return the GPUs of a 1/N share; N is the mean of the apps in earlier rounds since its arrival."""
        since = self.apps[self.first_round[app] : -1] or self.apps[-1:]
        return max(1.0, self.machine.total / max(1.0, sum(since) / len(since)))

    def _alone(self, app: int) -> float:
        """Return the seconds of the whole app on its share."""
        whole = [(job.gpus, job.run) for job in self.everyone.values() if _app(job) == app]
        return _on_share(whole, self._share(app))

    def _wishes(self, app: int, jobs: list[PlainGpuJob], running: float, now: float, same: float) -> list[_Wish]:
        """Return what an app bids for, nothing first."""
        age, alone, share = now - self._came(app), self._alone(app), self._share(app)
        later = max(running, _on_share([(job.gpus, job.left) for job in jobs], share))
        nothing = alone / (age + self.lease_s + later)
        wishes = [_Wish([], [], [], 0.0)]
        able = max([n for n in range(len(jobs) + 1) if sum(job.gpus for job in jobs[:n]) <= sum(self.free)])
        counts = [n for n in range(1, able + 1) if n == able or n & (n - 1) == 0]
        for parts, speeds in self._ways(jobs) if able else []:
            took = [job.left / rate for job, rate in zip(jobs, speeds, strict=True)]
            work = sum(job.gpus * run for job, run in zip(jobs, took, strict=True))
            most = nothing
            for n in counts:
                value = alone / (age + max(running, max(took), work / sum(job.gpus for job in jobs[:n])))
                if value > most:
                    most = value
                    gain = log(value) - log(nothing) - same * len(wishes)
                    wishes.append(_Wish(parts[:n], jobs[:n], speeds[:n], gain))
        return wishes

    def _ways(self, jobs: list[PlainGpuJob]) -> list[tuple[list[Parts], list[float]]]:
        """Return the ways to place all jobs, each with the parts and the speed of every job."""
        anywhere: list[Parts] = [[(None, 1)] * job.gpus for job in jobs]
        if all(job.model is None for job in jobs):
            return [(anywhere, [1.0] * len(jobs))]
        ways: list[tuple[list[Parts], list[float]]] = []
        for kind in dict.fromkeys(self.machine.types):
            nodes = [node for node, own in enumerate(self.machine.types) if own == kind and self.free[node]]
            level, deepest, least = 0, 0, dict[int, float]()
            while nodes and level <= deepest:
                parts, speeds = list[Parts](), list[float]()
                for job, plain in zip(jobs, anywhere, strict=True):
                    widest = max(self.free[node] for node in nodes)
                    fewest = ceil(job.gpus / widest)
                    levels = 0
                    while fewest * 2**levels < job.gpus:
                        levels += 1
                    deepest = max(deepest, levels)
                    on = min(job.gpus, fewest * 2 ** min(level, levels))
                    sizes = [job.gpus // on + (at < job.gpus % on) for at in range(on)]
                    if min(level, levels) == 0:
                        sizes = [widest] * (job.gpus // widest) + [job.gpus % widest] * (job.gpus % widest > 0)
                    if len(sizes) > len(nodes):
                        sizes = [1] * job.gpus
                    at = nodes[: len(sizes)]
                    place = dict.fromkeys(at, 1) | {at[0]: job.gpus - len(at) + 1}
                    parts.append(plain if job.model is None else [(kind, size) for size in sizes])
                    rate = 1.0 if job.model is None else speed(job, place, self.machine)
                    least[job.number] = min(rate, least.get(job.number, rate))
                    speeds.append(least[job.number])
                if all((parts, speeds) != way for way in ways):
                    ways.append((parts, speeds))
                level += 1
        return ways

    def _winners(self, wishes: list[list[_Wish]]) -> list[_Wish]:
        """Return the bundles that are won in the best outcome and kept."""
        everyone = list(range(len(wishes)))
        best = self._best(wishes, everyone)
        found = []
        for at in everyone:
            if not best[at]:
                continue
            others = [other for other in everyone if other != at]
            without = self._best(wishes, others)
            paid = sum(wishes[other][best[other]].gain - wishes[other][without[other]].gain for other in others)
            if self.chance.random() < min(1.0, exp(paid)):
                found.append(wishes[at][best[at]])
        return found

    def _best(self, wishes: list[list[_Wish]], taking_part: list[int]) -> dict[int, int]:
        """Return the bundle of each app in the outcome with the largest sum of gains among those that fit."""
        outcomes = product(*(range(len(wishes[at])) for at in taking_part))
        gains = [
            (sum(wishes[at][index].gain for at, index in zip(taking_part, chosen, strict=True)), chosen)
            for chosen in outcomes
        ]
        for _, chosen in sorted(gains, key=lambda found: -found[0]):
            parts = [own for at, index in zip(taking_part, chosen, strict=True) for own in wishes[at][index].parts]
            if _held(parts, self.free, self.machine.types, every=True) is not None:
                return dict(zip(taking_part, chosen, strict=True))
        raise AssertionError("nothing for everybody always fits")

    def _give(self, won: list[_Wish], placed: dict[int, Placed]) -> None:
        """Place what was won; a job stays where it is if that is as fast and everything else still fits."""
        gangs = [gang for wish in won for gang in zip(wish.jobs, wish.parts, wish.speeds, strict=True)]
        stays = {
            job.number: job.placed
            for job, _, rate in gangs
            if job.placed and holds(self.free, job.placed) and speed(job, job.placed, self.machine) >= rate
        }
        moving = [(job, parts) for job, parts, _ in gangs if job.number not in stays]
        found = _held([parts for _, parts in moving], less(self.free, *stays.values()), self.machine.types)
        if found is None:
            stays, moving = {}, [(job, parts) for job, parts, _ in gangs]
            found = _held([parts for _, parts in moving], self.free, self.machine.types, every=True)
            assert found is not None
        given = stays | {job.number: place for (job, _), place in zip(moving, found, strict=True)}
        self.free = less(self.free, *given.values())
        placed.update({job.number: given[job.number] for job, _, _ in gangs})

    def _rest(self, jobs: list[PlainGpuJob], placed: dict[int, Placed]) -> None:
        """Give the remaining GPUs: first to jobs that can stay, then in order at the fastest place."""
        waiting = [job for job in jobs if job.number not in placed]
        for job in [job for job in waiting if job.placed] + [job for job in waiting if not job.placed]:
            if job.gpus > sum(self.free):
                continue
            if job.placed and holds(self.free, job.placed):
                found = job.placed
            else:
                kinds = list(dict.fromkeys(self.machine.types)) if job.model is not None else []
                masks = [[kind] for kind in kinds] + [kinds or self.machine.types]
                nodes = list(zip(self.free, self.machine.types, strict=True))
                places = [best_fit([gpus * (own in mask) for gpus, own in nodes], job.gpus) for mask in masks]
                found = max([place for place in places if place], key=lambda place: speed(job, place, self.machine))
            placed[job.number] = found
            self.free = less(self.free, found)


def _app(job: PlainGpuJob) -> int:
    return job.number if job.app is None else -1 - job.app


def _on_share(trials: Sequence[tuple[int, float]], share: float) -> float:
    """Return the seconds of gangs (GPUs, seconds) on `share` GPUs: the slowest gang, or all their work."""
    slowest = max(run * max(1.0, gpus / share) for gpus, run in trials)
    return slowest if len(trials) == 1 else max(slowest, sum(gpus * run for gpus, run in trials) / share)


def _held(gangs: list[Parts], free: list[int], types: list[str], *, every: bool = False) -> list[Placed] | None:
    """Place the parts of all gangs: the largest first, best fit; `every` tries every other way before it gives up."""
    large = sorted((-size, at, str(kind)) for at, parts in enumerate(gangs) for kind, size in parts if size > 1)
    open_, placed = list(free), [Placed() for _ in gangs]
    asked: dict[str | None, int] = {}
    for parts in gangs:
        for kind, size in parts:
            asked[kind] = asked.get(kind, 0) + size
    there = {kind: sum(gpus for gpus, own in zip(free, types, strict=True) if own == kind) for kind in types}
    if sum(asked.values()) > sum(free) or any(asked[kind] > there[kind] for kind in asked if kind is not None):
        return None

    def place(at: int) -> bool:
        if at == len(large):
            return True
        negative, gang, kind = large[at]
        able = [node for node in range(len(open_)) if types[node] == kind and open_[node] >= -negative]
        for node in sorted(able, key=lambda node: (node in placed[gang], open_[node], node))[: None if every else 1]:
            before = placed[gang].copy()
            open_[node] += negative
            placed[gang][node] = placed[gang].get(node, 0) - negative
            if place(at + 1):
                return True
            open_[node] -= negative
            placed[gang] = before
        return False

    if not place(0):
        return None
    for is_any in (False, True):
        for at, parts in enumerate(gangs):
            ones = [kind for kind, size in parts if size == 1 and (kind is None) == is_any]
            if ones:
                mask = [gpus if is_any or own == ones[0] else 0 for gpus, own in zip(open_, types, strict=True)]
                found = best_fit(mask, len(ones))
                assert found is not None
                open_ = less(open_, found)
                placed[at] = {node: placed[at].get(node, 0) + found.get(node, 0) for node in {**placed[at], **found}}
    return placed
