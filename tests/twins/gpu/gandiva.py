"""The twin of Gandiva in plain Python: slices, pairs, moves and growth, each computed directly from the rule.

It equals `simulator.gpu.policies.gandiva` with all of its switches, on nodes of any sizes and types, for gangs with and
without profiles, elastic and rigid, that fit the machine.
"""

from __future__ import annotations

from math import ceil

from simulator.gpu.policies.gandiva import TRIED
from simulator.gpu.profiles.scaling import packed_share
from simulator.gpu.round_policy import GpuMachine
from tests.twins.gpu.job import PlainGpuJob
from tests.twins.gpu.rounds import Placed, best_fit, holds, less


class PlainGandiva:
    """The scheduler with its state between rounds."""

    def __init__(
        self,
        machine: GpuMachine,
        round_s: float,
        pause_s: float | None,
        least_together: float,
        slices: bool,
        migrates: bool,
        grows: bool,
        tries: bool = True,
    ) -> None:
        self.machine, self.round_s, self.pause_s, self.least_together = machine, round_s, pause_s, least_together
        self.slices, self.migrates, self.grows = slices, migrates, grows
        self.tries = tries
        self.trials: set[tuple[frozenset[int], str]] = set()  # two jobs on a GPU type
        self.guests: dict[int, int] = {}
        self.settled = False
        self.had_slice: dict[int, float] = {}  # job -> its last slice
        self.home: dict[int, Placed] = {}  # job -> its place then, without grown GPUs

    def decide(self, there: list[PlainGpuJob], now: float) -> dict[int, Placed]:
        """Decide as `tests.twins.gpu.rounds.PlainPolicy` requires."""
        by_number = {job.number: job for job in there}
        for guest, host in self.guests.items():
            if guest in by_number and host in by_number:
                self.trials.add((frozenset((guest, host)), self._type(by_number[host].placed)))
        order = sorted(there, key=self._turn)
        running: list[PlainGpuJob] = []
        for job in order:
            if sum(other.gpus for other in running) + job.gpus <= self.machine.total:
                running.append(job)
        waiting = [job for job in order if job not in running]
        placed = self._places(running)
        self._pack(waiting, running, placed)
        for job in there:
            if job.number in placed:
                self.had_slice[job.number], self.home[job.number] = now, placed[job.number]
        self.settled = not waiting
        if self.grows and not waiting:
            self._grow(order, placed)
        return placed

    def _turn(self, job: PlainGpuJob) -> tuple[float, float, int]:
        """Rank a job: longest time without a slice first; without slices, jobs with own GPUs first."""
        waits = not job.placed or job.number in self.guests
        return self.had_slice.get(job.number, -1.0) if self.slices else float(waits), job.submit, job.number

    def _places(self, running: list[PlainGpuJob]) -> dict[int, Placed]:
        """Place each job where it was, or on the fewest nodes, or anywhere."""
        free = self.machine.gpus.tolist()
        fewest = {job.number: ceil(job.gpus / self.machine.widest) for job in running}
        claims: dict[int, Placed] = {}  # jobs that reclaim their old GPUs before any earlier job does
        for job in running:
            home = self.home.get(job.number)
            goes_back = home and (len(home) == fewest[job.number] or not self.migrates)
            if home and goes_back and holds(less(free, *claims.values()), home):
                claims[job.number] = home
        placed: dict[int, Placed] = {}
        for job in running:
            claim = claims.pop(job.number, None)
            left = less(free, *placed.values())
            if claim and holds(left, claim):
                placed[job.number] = claim
                continue
            for room in (less(left, *claims.values()), left):
                found = best_fit(room, job.gpus)
                if found and len(found) <= fewest[job.number]:
                    placed[job.number] = found
                    break
        for job in running:
            if job.number not in placed:
                left = less(free, *placed.values())
                home = self.home.get(job.number)
                found = home if home and holds(left, home) else best_fit(left, job.gpus)
                assert found is not None, "those that run fit the machine"
                placed[job.number] = found
        return placed

    def _pack(self, waiting: list[PlainGpuJob], running: list[PlainGpuJob], placed: dict[int, Placed]) -> None:
        """Pair waiting with running jobs of as many GPUs, always the pair with the first rank."""
        self.guests = {}
        guests, hosts = list(waiting[:TRIED]), list(running)
        while True:
            pairs = []
            for guest in guests:
                for host in hosts:
                    rank = self._rank(guest, host, self._type(placed[host.number]))
                    if guest.gpus == host.gpus and rank:
                        pairs.append((rank, guest.number, host.number))
            if not pairs:
                return
            _, guest_number, host_number = min(pairs)
            placed[guest_number], self.guests[guest_number] = placed[host_number], host_number
            guests = [job for job in guests if job.number != guest_number]
            hosts = [job for job in hosts if job.number != host_number]

    def _rank(self, guest: PlainGpuJob, host: PlainGpuJob, kind: str) -> tuple[int, float] | None:
        """Rank a pair: those that progress well, best first, then those that were never tried; None: never again."""
        progress = _together(guest, host, kind)
        if self.tries and progress and (frozenset((guest.number, host.number)), kind) not in self.trials:
            return (1, 0.0) if self.least_together < 2.0 else None
        return (0, -progress) if progress > self.least_together else None

    def _type(self, placed: Placed) -> str:
        return self.machine.types[min(placed)]

    def _grow(self, order: list[PlainGpuJob], placed: dict[int, Placed]) -> None:
        """Double the GPUs of elastic jobs: with the extra GPUs that they had, if these are free, else with any."""
        for job in order:
            base = placed[job.number]
            free = less(self.machine.gpus.tolist(), *placed.values())
            had: Placed = {}
            if holds([job.placed.get(node, 0) for node in range(len(free))], base):
                had = {node: gpus - base.get(node, 0) for node, gpus in job.placed.items() if gpus > base.get(node, 0)}
            extra = had if had and holds(free, had) else best_fit(free, job.gpus)
            if job.elastic and extra:
                placed[job.number] = {node: base.get(node, 0) + extra.get(node, 0) for node in {**base, **extra}}


def _together(one: PlainGpuJob, other: PlainGpuJob, kind: str) -> float:
    """Return the combined progress of both jobs on GPUs of type `kind` relative to one alone."""
    if one.model is None or other.model is None:
        return 0.0
    return packed_share(one.model, other.model, kind, one.gpus) + packed_share(other.model, one.model, kind, one.gpus)
