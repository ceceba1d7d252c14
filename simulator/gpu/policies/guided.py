"""First come, first served with the guidelines of the Philly study, each of which can be switched on alone.

Jeon et al., "Analysis of large-scale multi-tenant GPU clusters for DNN training workloads" (ATC 2019), whose section on
design implications asks for them. With all off this is a queue in order of arrival in which a job that does not fit
lets others pass, and which spreads a gang over nodes as soon as enough GPUs are free anywhere.

- `hold_s`: a gang waits so long for a place on as few nodes as it needs, before it is spread ("hold out for locality").
- `small_share`: so much of the nodes takes jobs of at most `SMALL` GPUs alone, so that they do not break up the others;
  where those nodes are full small jobs go elsewhere all the same ("dedicate servers to small jobs").
- `defragment`: where a waiting gang finds no whole place though enough GPUs are free, small jobs on one node are
moved away
  from it, each at the price of a restart ("migrate to defragment").
- `prerun_s`: a gang first has one GPU for so long, which is where many jobs fail ("pre-run on one GPU"). Which ones
fail is
  `failing`: the trace's own word where it has one, else those whose run time is at most `prerun_s`, a stated rule.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from simulator.gpu.algorithms.placement import Int64s, fewest_nodes, packed, take
from simulator.gpu.rounds import NOBODY, GpuJob, Placed, View, check_seconds
from traces.counted import counted
from traces.errors import InputError

SMALL = 2  # GPUs: stated


class Guided:
    """First come, first served, with those guidelines of the Philly study that are switched on.

    `failing` are numbers of jobs that end by themselves in the pre-run, whatever they ran for.
    """

    pause_s: float | None = None
    guests = NOBODY

    def __init__(
        self,
        round_s: float = 60.0,
        hold_s: float = 0.0,
        small_share: float = 0.0,
        defragment: bool = False,
        prerun_s: float = 0.0,
        failing: Collection[int] | None = None,
    ) -> None:
        check_seconds("guided", round_s=round_s, hold_s=hold_s, prerun_s=prerun_s)
        if not 0.0 <= small_share < 1.0:
            raise InputError(f"guided: share {small_share} of the nodes for small jobs: it must be in [0, 1)")
        self.round_s, self.hold_s, self.small_share = round_s, hold_s, small_share
        self.defragment, self.prerun_s = defragment, prerun_s
        self.failing = failing
        self.moves = 0
        self._prerun: dict[int, float] = {}  # gang -> when it got its one GPU

    def decide(self, view: View) -> dict[int, Placed]:
        """As `simulator.gpu.rounds.RoundPolicy`."""
        free = view.machine.gpus.copy()
        there = {job.number: job for job in view.jobs}
        placed = {job.number: job.placed for job in view.jobs if job.placed and not self._is_over(job, view.now_s)}
        for given in placed.values():
            take(free, given)
        left = int(free.sum())
        for job in view.jobs:
            if job.number in placed or left < (1 if self.prerun_s else job.gpus):
                continue
            found = self._found(job, free, view)
            fewest = fewest_nodes(job.gpus, view.machine.widest)
            if self.defragment and job.gpus > SMALL and found is not None and len(found) > fewest == 1:
                found = self._made_room(job, free, placed, there) or found
            if found is not None:
                placed[job.number] = found
                take(free, found)
                left -= sum(found.values())
        return placed

    def said(self) -> list[str]:
        """What was assumed, for the person who asked."""
        lines = []
        if self.defragment:
            lines.append(
                f"guided: {counted(self.moves, 'time')} a small job was moved so that a gang found a whole place"
            )
        if self.prerun_s and self.failing is None:
            lines.append(
                f"guided: gangs that ran {self.prerun_s:g} s or less are taken to be those that fail in a pre-run"
            )
        return lines

    def prepared(self, jobs: Sequence[GpuJob]) -> list[GpuJob]:
        """`jobs` as a pre-run shows them: gangs that fail in it are jobs of one GPU, with the run time they had."""
        return [
            GpuJob(job.number, job.submit_s, 1, job.run_s, job.group, job.model)
            if job.gpus > 1 and self.prerun_s > 0.0 and self._fails_early(job)
            else job
            for job in jobs
        ]

    def _fails_early(self, job: GpuJob) -> bool:
        return job.run_s <= self.prerun_s if self.failing is None else job.number in self.failing

    def _is_over(self, job: GpuJob, now_s: float) -> bool:
        """Whether a gang's turn on one GPU has passed."""
        return job.number in self._prerun and job.held == 1 and now_s - self._prerun[job.number] >= self.prerun_s

    def _found(self, job: GpuJob, free: Int64s, view: View) -> Placed | None:
        if self.prerun_s and job.gpus > 1 and job.number not in self._prerun:
            found = self._small(1, free)
            if found is not None:
                self._prerun[job.number] = view.now_s
            return found
        if job.gpus <= SMALL:
            return self._small(job.gpus, free)
        open_ = free.copy()
        open_[: self._dedicated(free)] = 0
        waited = view.now_s - job.submit_s
        fewest = fewest_nodes(job.gpus, view.machine.widest)
        return packed(open_, job.gpus, most_nodes=fewest if waited < self.hold_s else None)

    def _dedicated(self, free: Int64s) -> int:
        return round(self.small_share * len(free))

    def _small(self, gpus: int, free: Int64s) -> Placed | None:
        """On the nodes for small jobs, and elsewhere where those are full."""
        own = free.copy()
        own[self._dedicated(free) :] = 0
        return packed(own, gpus) or packed(free, gpus)

    def _made_room(
        self, job: GpuJob, free: Int64s, placed: dict[int, Placed], there: dict[int, GpuJob]
    ) -> Placed | None:
        """One node emptied of small jobs that fit elsewhere, if that makes a whole place; the fewest GPUs first."""
        on_node: dict[int, list[int]] = {}
        for number, given in placed.items():
            if len(given) == 1 and there[number].gpus <= SMALL and there[number].placed == given:
                on_node.setdefault(next(iter(given)), []).append(number)
        candidates = [
            (job.gpus - int(free[node]), node)
            for node, numbers in on_node.items()
            if free[node] < job.gpus <= free[node] + sum(there[number].gpus for number in numbers)
        ]
        for _, node in sorted(candidates):
            trial, moved = free.copy(), {}
            trial[node] = 0
            gained = int(free[node])
            for number in on_node[node]:
                if gained >= job.gpus:
                    break
                found = packed(trial, there[number].gpus)
                if found is not None:
                    moved[number] = found
                    take(trial, found)
                    gained += there[number].gpus
            if gained >= job.gpus:
                self.moves += len(moved)
                placed.update(moved)
                trial[node] = gained
                free[:] = trial
                return {node: job.gpus}
        return None
