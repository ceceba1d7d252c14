"""Gandiva: jobs share GPUs in time slices and in pairs, move to where they run better, and grow into what is idle.

Xiao et al., "Gandiva: Introspective cluster scheduling for deep learning" (OSDI 2018). Where jobs want more GPUs than
there are, those that had no slice for the longest time come next; suspending and going on costs `pause_s` (migration
takes one to two seconds there). Where no GPU is left, a waiting job is packed with a running one of as many GPUs, if
both together do more than `least_together` of what one does alone. A job on more nodes than it needs moves as soon as
fewer can hold it. Where nobody waits, elastic jobs grow to twice what they asked for, and shrink when somebody comes.

Our reading: slices are decided for the whole cluster at once every `round_s` seconds (60 there), not per server, and
what two packed jobs do together is known from their profiles, where Gandiva tries it out.
"""

from __future__ import annotations

from simulator.gpu.algorithms.packing import pairs
from simulator.gpu.algorithms.placement import Int64s, fewest_nodes, packed, take
from simulator.gpu.profiles.scaling import packed_share
from simulator.gpu.rounds import Job, Placed, View, check_seconds

TRIED = 30  # waiting jobs that packing is tried for in one round


class Gandiva:
    """Time slices for everybody, pairs of jobs on the same GPUs, migration, growth into what is idle."""

    jobs_per_gpu = 2

    def __init__(self, round_s: float = 60.0, pause_s: float | None = 2.0, least_together: float = 1.2) -> None:
        check_seconds("gandiva", round_s=round_s, pause_s=pause_s)
        self.round_s, self.pause_s, self.least_together = round_s, pause_s, least_together
        self.packed_pairs = 0
        self._slice: dict[int, float] = {}  # when a job last had GPUs

    def decide(self, view: View) -> dict[int, Placed]:
        """As `simulator.gpu.rounds.RoundPolicy`."""
        self._slice = {job.number: self._slice.get(job.number, -1.0) for job in view.jobs}
        free = view.machine.gpus.copy()
        order = sorted(view.jobs, key=lambda job: (self._slice[job.number], job.submit_s, job.number))
        chosen, waiting, left = [], [], int(free.sum())
        for job in order:
            if job.gpus <= left:
                chosen.append(job)
                left -= job.gpus
            else:
                waiting.append(job)
        placed = self._place(chosen, free, view.machine.widest)
        waiting.extend(job for job in chosen if job.number not in placed)
        self._pack(waiting, [job for job in chosen if job.number in placed], placed)
        if not waiting:
            self._grow(chosen, free, placed)
        for number in placed:
            self._slice[number] = view.now_s
        return placed

    def said(self) -> list[str]:
        """What was assumed, for the person who asked."""
        return [f"gandiva: {self.packed_pairs} pairs of jobs were packed, by what their profiles say they do together"]

    def _place(self, jobs: list[Job], free: Int64s, widest: int) -> dict[int, Placed]:
        """Running jobs stay, unless fewer nodes can hold them now; then the others, the widest first."""
        placed: dict[int, Placed] = {}
        taken = free.copy()
        for job in jobs:
            base = _own(job)
            if base and all(taken[node] >= gpus for node, gpus in base.items()):
                placed[job.number] = base
                take(taken, base)
        for job in sorted(jobs, key=lambda job: (-job.gpus, job.number)):
            if job.number in placed:
                fewest = fewest_nodes(job.gpus, widest)
                base = placed[job.number]
                if len(base) == fewest:
                    continue
                take(taken, {node: -gpus for node, gpus in base.items()})
                found = packed(taken, job.gpus, most_nodes=len(base) - 1) or base
            else:
                found = packed(taken, job.gpus) or {}
            if found:
                placed[job.number] = found
                take(taken, found)
        free[:] = taken
        return placed

    def _pack(self, waiting: list[Job], running: list[Job], placed: dict[int, Placed]) -> None:
        tried = {job.number: job for job in waiting[:TRIED] if job.model is not None}
        sizes = {job.gpus for job in tried.values()}
        hosts = {job.number: job for job in running if job.model is not None and job.gpus in sizes}
        jobs = {**tried, **hosts}

        def together(a: int, b: int) -> float:
            one, other = jobs[a].model, jobs[b].model
            if (a in tried) == (b in tried) or one is None or other is None:
                return 0.0
            return packed_share(one, [other]) + packed_share(other, [one])

        for a, b in pairs([(number, job.gpus) for number, job in jobs.items()], together, self.least_together):
            guest, host = (a, b) if a in tried else (b, a)
            placed[guest] = dict(placed[host])
            self.packed_pairs += 1

    def _grow(self, jobs: list[Job], free: Int64s, placed: dict[int, Placed]) -> None:
        for job in jobs:
            if not job.elastic or job.number not in placed:
                continue
            base = placed[job.number]
            more = {node: gpus - base.get(node, 0) for node, gpus in job.placed.items()} if base == _own(job) else {}
            extra: Placed | None = {node: gpus for node, gpus in more.items() if gpus > 0}
            if not extra or any(free[node] < gpus for node, gpus in extra.items()):
                extra = packed(free, job.gpus)
            if extra is None:
                continue
            take(free, extra)
            placed[job.number] = {node: base.get(node, 0) + extra.get(node, 0) for node in {**base, **extra}}


def _own(job: Job) -> Placed:
    """Of what a job holds the first so many GPUs that it asked for; nothing where it holds fewer."""
    own: Placed = {}
    left = job.gpus
    for node, gpus in job.placed.items():
        if left > 0:
            own[node] = min(gpus, left)
            left -= own[node]
    return own if left == 0 else {}
