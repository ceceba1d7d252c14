"""Gavel's rounds: which jobs run in the next round, so that each receives its fraction of time on each GPU type.

Narayanan et al., "Heterogeneity-aware cluster scheduling policies for deep learning workloads" (OSDI 2020), section 5.
A job (or two jobs on the same GPUs) has a priority on each GPU type. It is the fraction of time there over the time
received there since the fractions were computed. Every round, the jobs of highest priority run.

Our reading follows the released program where the paper leaves a choice:

- GPU types are filled one after the other. A job that does not fit lets others pass, and GPUs that are left over go to
  jobs without a fraction of time there.
- The received time begins with half a round, so that in the first round only the fractions count.
- Ties go to the job that received less than its fractions so far, then to the larger fraction, then to the older job.
  Fractions have DECIMALS decimals, so that the solver's last digits decide nothing.
- Larger gangs are placed first. Among equals, first those whose nodes of the last round are free, which stay there.
  The others go to the fewest nodes.
- A job that arrives after the fractions were computed waits for the next ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from simulator.gpu.algorithms.placement import has_free, packed, take
from simulator.gpu.round_policy import GpuJob, GpuMachine, Placed, View, speed
from traces.arrays import Bools, Float64s, Int64s
from traces.errors import InputError

Members = tuple[int, ...]  # the number of one job, or of each of two jobs that share GPUs

DECIMALS = 6  # of the fractions


class ShareRounds:
    """The fractions of time in force, the time received, and the places of each round.

    New fractions are due when the jobs or the GPUs changed, at the earliest `reset_s` after the last. As in the
    released program, fractions that were computed at second 0 do not delay the next.
    """

    def __init__(self, round_s: float, reset_s: float) -> None:
        self.round_s, self.reset_s = round_s, reset_s
        self.guests: dict[int, int] = {}
        self.speeds: dict[int, Float64s] = {}  # job -> progress per second on the fewest nodes of each type, (types,)
        self.capacity: Float64s = np.zeros(0)  # (types,) GPUs of each type, in order of name
        self._nodes: list[Int64s] = []  # of each type
        self._shares: dict[Members, Float64s] = {}  # (types,) each
        self._able: dict[Members, Bools] = {}  # (types,) each
        self._deficit: dict[Members, Float64s] = {}  # (types,) time not received before the last reset, s
        self._received: dict[Members, Float64s] = {}  # (types,) time received since, s
        self._ran: dict[Members, int] = {}  # those of the last round, with the GPU type
        self._known: set[int] = set()  # the jobs at the last reset
        self._divided: Float64s = np.zeros(0)  # `capacity` then
        self._reset_s = -1.0
        self._since_s = 0.0

    def is_due(self, view: View) -> bool:
        """Settle the last round, and return whether new fractions of time are due.

        Raises InputError for a job that fits on no GPU type.
        """
        if not self._nodes:
            types = np.array(view.machine.types)
            self._nodes = [np.flatnonzero(types == kind) for kind in sorted(set(view.machine.types))]
        self.capacity = np.array([view.machine.gpus[own].sum() for own in self._nodes], dtype=np.float64)
        for members, kind in self._ran.items():
            if members in self._received:
                received = self._received[members].copy()
                received[kind] += view.now_s - self._since_s
                self._received[members] = received
        self._since_s = view.now_s
        before = self.speeds
        self.speeds = {job.number: before.get(job.number, np.zeros(0)) for job in view.jobs}
        for job in view.jobs:
            if not len(self.speeds[job.number]):
                self.speeds[job.number] = self._speeds(job, view.machine)
                if not self.speeds[job.number].any():
                    raise InputError(
                        f"job {job.number} asks for {job.gpus} GPUs, but no GPU type has more than "
                        f"{self.capacity.max():g}: leave the job out, or use another scheduler"
                    )
        is_early = self._reset_s > 0.0 and view.now_s < self._reset_s + self.reset_s
        is_other = self.speeds.keys() != self._known or not np.array_equal(self.capacity, self._divided)
        return not is_early and is_other

    def _speeds(self, job: GpuJob, machine: GpuMachine) -> Float64s:
        found = []
        for nodes in self._nodes:
            placed = packed(machine.gpus[nodes], job.gpus)
            at = None if placed is None else {int(nodes[index]): gpus for index, gpus in placed.items()}
            found.append(0.0 if at is None else speed(job, at, machine))
        return np.array(found)

    def reset(self, members: Sequence[Members], speed: Float64s, shares: Float64s, now_s: float) -> None:
        """Put new fractions of time in force; what was received until now no longer counts.

        `shares` (members, types) are the fractions, `speed` (members, types) is 0 where the members cannot run.
        """
        passed_s, none = now_s - self._reset_s, np.zeros(len(self.capacity))
        missed = {
            each: self._deficit[each] + own * passed_s - (self._received[each] - 0.5 * self.round_s)
            for each, own in self._shares.items()
        }
        self._deficit = {each: missed.get(each, none) for each in members}
        self._shares = dict(zip(members, np.round(shares, DECIMALS), strict=True))
        self._able = dict(zip(members, speed > 0.0, strict=True))
        self._received = dict.fromkeys(members, none + 0.5 * self.round_s)
        self._known, self._divided, self._reset_s = set(self.speeds), self.capacity, now_s

    def place(self, view: View, order: Sequence[int]) -> dict[int, Placed]:
        """Return the places of the next round; GPU types are filled in this `order`."""
        jobs = {job.number: job for job in view.jobs}
        there = [members for members in self._shares if all(number in jobs for number in members)]
        free = view.machine.gpus.copy()
        placed: dict[int, Placed] = {}
        self._ran, self.guests = {}, {}
        for kind in order:
            chosen: list[Members] = []
            left = int(self.capacity[kind])
            for members in sorted(there, key=lambda members: self._rank(members, kind)):
                gpus = jobs[members[0]].gpus
                if gpus <= left and self._able[members][kind] and not any(number in placed for number in members):
                    chosen.append(members)
                    placed.update({number: {} for number in members})
                    left -= gpus
            self._settle(chosen, jobs, self._nodes[kind], free, placed)
            self._ran.update(dict.fromkeys(chosen, kind))
        return placed

    def _rank(self, members: Members, kind: int) -> tuple[float, float, float]:
        share = float(self._shares[members][kind])
        return -share / float(self._received[members][kind]), -float(self._deficit[members][kind]), -share

    def _settle(
        self, chosen: list[Members], jobs: Mapping[int, GpuJob], nodes: Int64s, free: Int64s, placed: dict[int, Placed]
    ) -> None:
        """Give the gangs `chosen` for one GPU type their nodes."""
        own = set(nodes.tolist())
        for gpus in sorted({jobs[members[0]].gpus for members in chosen}, reverse=True):
            moving = []
            for members in (members for members in chosen if jobs[members[0]].gpus == gpus):
                before = jobs[members[0]].placed
                if before and own.issuperset(before) and has_free(free, before):
                    self._give(members, before, free, placed)
                else:
                    moving.append(members)
            for members in moving:
                found = packed(free[nodes], gpus) or {}
                self._give(members, {int(nodes[at]): count for at, count in found.items()}, free, placed)

    def _give(self, members: Members, where: Placed, free: Int64s, placed: dict[int, Placed]) -> None:
        take(free, where)
        placed.update({number: dict(where) for number in members})
        self.guests.update(dict.fromkeys(members[1:], members[0]))


def fastest_first(speeds: Mapping[int, Float64s]) -> list[int]:
    """Return the GPU types in order of the mean speed of all jobs there, the fastest first; ties by name."""
    return [int(kind) for kind in np.argsort(-np.mean(list(speeds.values()), axis=0), kind="stable")]
