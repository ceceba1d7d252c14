"""First come, first served with the guidelines of the Philly study, each of which can be switched on separately.

Jeon et al., "Analysis of large-scale multi-tenant GPU clusters for DNN training workloads" (ATC 2019), recommend them
in the section on design implications. With all guidelines off, jobs are served in order of arrival, a job that does not
fit lets others pass, and a gang is spread over nodes as soon as enough GPUs are free anywhere.

- `hold_s`: time that a gang waits for a place on the fewest nodes before it is spread ("hold out for locality").
- `small_share`: share of the nodes that takes only jobs of at most `SMALL` GPUs, so these do not fragment the other
  nodes. If those nodes are full, small jobs still go elsewhere ("dedicate servers to small jobs").
- `defragment`: if a waiting gang finds no whole place although enough GPUs are free, the small jobs of one node are
  moved away, each at the cost of a restart ("migrate to defragment").
- `isolate`: gangs of over `SMALL` GPUs go on empty nodes and small jobs on nodes without a gang, while there are such
  nodes ("mitigate interference"). `interference` is the share of its speed that a job of several GPUs loses while
  another one uses a node of its own: 0 by default. The study measured 0.34, as we recall it (ResNet-50 on 2 GPUs).
- `prerun_s`: time that a gang first runs on one GPU, in which many jobs fail ("pre-run on one GPU"). `failing` lists
  the jobs that fail: those of the trace if it has them, else, by our rule, those with a run time of at most `prerun_s`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from simulator.gpu.algorithms.placement import fewest_nodes, packed, take
from simulator.gpu.rounds import NOBODY, GpuJob, Placed, View, check_seconds
from simulator.gpu.scheduler import RoundScheduler
from traces.arrays import Int64s
from traces.counted import counted
from traces.errors import InputError

SMALL = 2  # most GPUs of a small job: our choice
INTERFERENCE = 1.0 - 75.6 / 114.8  # images/s of ResNet-50 on 2 GPUs with and without neighbours (the study)


class Guided:
    """First come, first served, with the guidelines of the Philly study that are switched on.

    `failing` holds the numbers of jobs that end in the pre-run, whatever their run time.
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
        isolate: bool = False,
        interference: float = 0.0,
        failing: Collection[int] | None = None,
    ) -> None:
        check_seconds("guided", round_s=round_s, hold_s=hold_s, prerun_s=prerun_s)
        if not 0.0 <= small_share < 1.0:
            raise InputError(f"guided: share {small_share} of the nodes for small jobs: it must be in [0, 1)")
        if not 0.0 <= interference < 1.0:
            raise InputError(f"guided: interference of {interference}: it must be in [0, 1)")
        self.isolate, self.interference = isolate, interference
        self.round_s, self.hold_s, self.small_share = round_s, hold_s, small_share
        self.defragment, self.prerun_s = defragment, prerun_s
        self.failing = failing
        self.moves = 0
        self._prerun: dict[int, float] = {}  # gang -> start of its pre-run
        self._gangs_on = np.zeros(0, dtype=np.bool_)  # nodes with a gang of over SMALL GPUs

    def decide(self, view: View) -> dict[int, Placed]:
        """As `simulator.gpu.rounds.RoundPolicy`."""
        free = view.machine.gpus.copy()
        self._gangs_on = np.zeros(len(free), dtype=np.bool_)
        there = {job.number: job for job in view.jobs}
        placed = {job.number: job.placed for job in view.jobs if job.placed and not self._is_over(job, view.now_s)}
        for number, given in placed.items():
            take(free, given)
            self._gangs_on[list(given)] |= there[number].gpus > SMALL
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
                self._gangs_on[list(found)] |= job.gpus > SMALL
                left -= sum(found.values())
        return placed

    def interfered(self, placed: Mapping[int, Placed]) -> dict[int, float]:
        """Return the share of its speed that each job keeps which has a neighbour: both have several GPUs."""
        if not self.interference:
            return {}
        on_node: dict[int, list[int]] = {}
        for number, given in placed.items():
            if sum(given.values()) > 1:
                for node in given:
                    on_node.setdefault(node, []).append(number)
        crowded = [numbers for numbers in on_node.values() if len(numbers) > 1]
        return {number: 1.0 - self.interference for numbers in crowded for number in numbers}

    def said(self) -> list[str]:
        """Return the assumptions and counts of the run as sentences for the user."""
        lines = []
        if self.defragment:
            lines.append(
                f"guided: small jobs were moved {counted(self.moves, 'time')} to make a whole place for a gang"
            )
        if self.prerun_s and self.failing is None:
            lines.append(f"guided: gangs that ran {self.prerun_s:g} s or less are assumed to fail in a pre-run")
        return lines

    def prepared(self, jobs: Sequence[GpuJob]) -> list[GpuJob]:
        """Return `jobs` with the pre-run applied: gangs that fail in it become jobs of one GPU with their run time."""
        return [
            GpuJob(job.number, job.submit_s, 1, job.run_s, job.group, job.model)
            if job.gpus > 1 and self.prerun_s > 0.0 and self._fails_early(job)
            else job
            for job in jobs
        ]

    def _fails_early(self, job: GpuJob) -> bool:
        return job.run_s <= self.prerun_s if self.failing is None else job.number in self.failing

    def _is_over(self, job: GpuJob, now_s: float) -> bool:
        """Whether a gang's pre-run on one GPU is over."""
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
        if self.isolate:
            found = packed(np.where(open_ == view.machine.gpus, open_, 0), job.gpus, most_nodes=fewest)
            if found is not None:
                return found
        return packed(open_, job.gpus, most_nodes=fewest if waited < self.hold_s else None)

    def _dedicated(self, free: Int64s) -> int:
        return round(self.small_share * len(free))

    def _small(self, gpus: int, free: Int64s) -> Placed | None:
        """Place a small job on the nodes for small jobs, or elsewhere if those are full."""
        own = free.copy()
        own[self._dedicated(free) :] = 0
        quiet = np.where(self._gangs_on, 0, free) if self.isolate else free
        return packed(own, gpus) or packed(quiet, gpus) or packed(free, gpus)

    def _made_room(
        self, job: GpuJob, free: Int64s, placed: dict[int, Placed], there: dict[int, GpuJob]
    ) -> Placed | None:
        """Move the small jobs of one node elsewhere if that makes a whole place; try the fewest GPUs first."""
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


SCHEDULER = RoundScheduler(Guided)
