"""First come, first served with the guidelines of the Philly study, each of which can be switched on separately.

Jeon et al., "Analysis of large-scale multi-tenant GPU clusters for DNN training workloads" (ATC 2019), recommend them
in section 5, on design implications. With all guidelines off, jobs are served in order of arrival, and a job that does
not fit lets others pass. A gang is spread over nodes as soon as enough GPUs are free anywhere.

- `hold_s`: time that a gang waits for a place on the fewest nodes before it is spread ("hold out for locality").
- `small_share`: share of the nodes that takes only jobs of at most `SMALL` GPUs, which then do not fragment the other
  nodes. If the share is full, small jobs still go elsewhere ("dedicate servers to small jobs").
- `defragment`: if a gang would be spread although one node could hold it, the small jobs of one node move away
  ("migrate to defragment"). Each pays for a restart. With `hold_s`, a gang waits first.
- `isolate`: gangs of over `SMALL` GPUs go on empty nodes, and small jobs on nodes without a gang, while such nodes
  exist ("mitigate interference"). `interference` (0) is the share of its speed that a job of several GPUs loses while
  another such job uses one of its nodes. The study measured 0.34, as we recall it (ResNet-50 on 2 GPUs).
- `prerun_s`: time that a gang first runs on one GPU, in which many jobs fail ("pre-run on one GPU"). The last
  `pool_nodes` nodes then take only pre-runs, which wait for a place there (the study's "pool of cheaper VMs"). With 0,
  a pre-run takes any GPU. A job whose first attempt fails within `prerun_s` (`fails_s`) fails in the pre-run; its
  retries run at full size. Our reading: if no job declares `fails_s`, gangs with a run time of at most `prerun_s` fail.
- `no_retry`: a job ends at its first failure that no retry cures (`hopeless_s`), and its later attempts do not run
  ("stop retrying"). The log's errors decide which failures these are (`is_hopeless` of the table `failures`).

Our reading: a gang that is too wide for the nodes open to gangs may use all nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from simulator.gpu.algorithms.placement import fewest_nodes, packed, take
from simulator.gpu.round_policy import NOBODY, GpuJob, Placed, View
from simulator.gpu.scheduler import RoundScheduler, check_range, check_seconds
from traces.arrays import Int64s
from traces.counted import counted
from traces.errors import InputError

SMALL = 2  # most GPUs of a small job: our choice
INTERFERENCE = 1.0 - 75.6 / 114.8  # images/s of ResNet-50 on 2 GPUs with and without neighbours (the study)


class Guided:
    """First come, first served, with the guidelines of the Philly study that are switched on."""

    pause_s: float | None = None
    guests = NOBODY
    settled = True  # a decision remains valid until a job arrives or ends, or until `wake_s`

    def __init__(
        self,
        round_s: float = 60.0,
        hold_s: float = 0.0,
        small_share: float = 0.0,
        defragment: bool = False,
        prerun_s: float = 0.0,
        pool_nodes: int = 0,
        no_retry: bool = False,
        isolate: bool = False,
        interference: float = 0.0,
    ) -> None:
        check_seconds("guided", round_s=round_s, hold_s=hold_s, prerun_s=prerun_s)
        check_range("guided", below=1.0, small_share=small_share, interference=interference)
        check_range("guided", pool_nodes=pool_nodes)
        self.isolate, self.interference = isolate, interference
        self.round_s, self.hold_s, self.small_share = round_s, hold_s, small_share
        self.defragment, self.prerun_s, self.no_retry = defragment, prerun_s, no_retry
        self.pool_nodes = pool_nodes if prerun_s else 0
        self.wake_s = np.inf
        self.moves = 0
        self.stopped = 0  # jobs that `no_retry` ends
        self.caught = 0  # gangs that fail in the pre-run
        self._is_assumed = False  # whether run times decide which gangs fail
        self._prerun: dict[int, float] = {}  # gang -> end of its pre-run
        self._fails_s: dict[int, float] = {}  # gang that is retried after a failure in its pre-run -> length of it
        self._gangs_on = np.zeros(0, dtype=np.bool_)  # nodes with a gang of over SMALL GPUs

    def decide(self, view: View) -> dict[int, Placed]:
        """As `simulator.gpu.round_policy.RoundPolicy`."""
        free = view.machine.gpus.copy()
        if self.pool_nodes >= len(free):
            raise InputError(
                f"guided: pool_nodes of {self.pool_nodes} leaves no other node of {counted(len(free), 'node')}"
            )
        self._gangs_on = np.zeros(len(free), dtype=np.bool_)
        self.wake_s = np.inf
        there = {job.number: job for job in view.jobs}
        placed = {job.number: job.placed for job in view.jobs if job.placed and not self._is_over(job, view.now_s)}
        for number, given in placed.items():
            take(free, given)
            if self.isolate and there[number].gpus > SMALL:
                self._gangs_on[list(given)] = True
        left = int(free.sum())
        refused: set[tuple[int, bool, bool]] = set()  # requests without a place: free GPUs only become fewer
        for job in view.jobs:
            if not left:
                break
            if job.number in placed or left < (1 if self.prerun_s else job.gpus):
                continue
            request = job.gpus, self._insists(job, view.now_s), self._starts_alone(job)
            if request in refused:
                continue
            found = self._found(job, free, view)
            fewest = fewest_nodes(job.gpus, view.machine.widest)
            is_spread = found is not None and len(found) > fewest == 1 and job.gpus > SMALL
            if self.defragment and is_spread and (room := self._made_room(job, free, placed, there)) is not None:
                found = room
                refused.clear()
            if found is None:
                refused.add(request)
                continue
            placed[job.number] = found
            take(free, found)
            if self.isolate and job.gpus > SMALL:
                self._gangs_on[list(found)] = True
            left -= sum(found.values())
        self._set_wake(view, placed)
        return placed

    def _set_wake(self, view: View, placed: Mapping[int, Placed]) -> None:
        """Set the next instant at which time alone changes the decision: a pre-run ends, or a gang gives up waiting."""
        if self.prerun_s:
            ends = (self._prerun[number] for number in placed if number in self._prerun)
            self.wake_s = min((end_s for end_s in ends if end_s > view.now_s), default=np.inf)
        if self.hold_s:
            waiting = (job for job in view.jobs if job.number not in placed and self._insists(job, view.now_s))
            self.wake_s = min(self.wake_s, min((job.submit_s + self.hold_s for job in waiting), default=np.inf))

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
        if self.prerun_s and self._is_assumed:
            lines.append(f"guided: gangs that ran {self.prerun_s:g} s or less are assumed to fail in a pre-run")
        if self.prerun_s:
            lines.append(f"guided: {counted(self.caught, 'gang')} failed in a pre-run")
        if self.no_retry:
            lines.append(f"guided: {counted(self.stopped, 'job')} ended at a failure that no retry cures")
        return lines

    def prepared(self, jobs: Sequence[GpuJob]) -> list[GpuJob]:
        """Return `jobs` with the pre-run and the rule of retries applied.

        A job that is not retried runs until its first hopeless failure. A gang whose only attempt fails in the pre-run
        becomes a job of one GPU with its run time. One that is retried runs the rest at full size.
        """
        self._is_assumed = all(job.fails_s is None for job in jobs)
        return [self._prepared(job) for job in jobs]

    def _prepared(self, job: GpuJob) -> GpuJob:
        if self.no_retry and job.hopeless_s is not None and job.hopeless_s < job.run_s:
            self.stopped += 1
            job = replace(job, run_s=job.hopeless_s)
        fails_s = job.run_s if self._is_assumed else job.fails_s
        if job.gpus == 1 or fails_s is None or not 0.0 < fails_s <= self.prerun_s:
            return job
        self.caught += 1
        if fails_s >= job.run_s:
            return replace(job, gpus=1, pod_gpus=1, elastic=False, batch=None, work=None)
        self._fails_s[job.number] = fails_s
        return replace(job, run_s=job.run_s - fails_s)

    def _starts_alone(self, job: GpuJob) -> bool:
        """Whether a gang's pre-run on one GPU comes next."""
        return self.prerun_s > 0.0 and job.gpus > 1 and job.number not in self._prerun

    def _is_over(self, job: GpuJob, now_s: float) -> bool:
        """Whether a gang's pre-run on one GPU is over."""
        return job.number in self._prerun and job.held == 1 and now_s >= self._prerun[job.number]

    def _insists(self, job: GpuJob, now_s: float) -> bool:
        """Whether a gang takes no place but one on the fewest nodes."""
        return job.gpus > SMALL and now_s - job.submit_s < self.hold_s

    def _found(self, job: GpuJob, free: Int64s, view: View) -> Placed | None:
        if self._starts_alone(job):
            found = self._alone(free)
            if found is not None:
                self._prerun[job.number] = view.now_s + self._fails_s.get(job.number, self.prerun_s)
            return found
        if job.gpus <= SMALL:
            return self._small(job.gpus, free)
        open_ = self._left_to_gangs(job, free, view)
        fewest = fewest_nodes(job.gpus, view.machine.widest)
        if self.isolate:
            found = packed(np.where(open_ == view.machine.gpus, open_, 0), job.gpus, most_nodes=fewest)
            if found is not None:
                return found
        return packed(open_, job.gpus, most_nodes=fewest if self._insists(job, view.now_s) else None)

    def _dedicated(self, free: Int64s) -> int:
        return round(self.small_share * len(free))

    def _left_to_gangs(self, job: GpuJob, free: Int64s, view: View) -> Int64s:
        """Return `free` on the nodes that a gang may use: all, if the job is too wide for those left to gangs."""
        first, end = self._dedicated(free), len(free) - self.pool_nodes
        if int(view.machine.gpus[first:end].sum()) < job.gpus:
            return free
        open_ = np.zeros_like(free)
        open_[first:end] = free[first:end]
        return open_

    def _alone(self, free: Int64s) -> Placed | None:
        """Place a pre-run: in the pool, if there is one."""
        if not self.pool_nodes:
            return self._small(1, free)
        pool = np.zeros_like(free)
        pool[-self.pool_nodes :] = free[-self.pool_nodes :]
        return packed(pool, 1)

    def _small(self, gpus: int, free: Int64s) -> Placed | None:
        """Place a small job on the nodes for small jobs, or elsewhere outside the pool if those are full."""
        first, end = self._dedicated(free), len(free) - self.pool_nodes
        if first and (found := packed(free[:first], gpus)) is not None:
            return found
        if self.isolate:
            quiet = np.where(self._gangs_on, 0, free)[:end]
            if (found := packed(quiet, gpus)) is not None:
                return found
        return packed(free[:end], gpus)

    def _made_room(
        self, job: GpuJob, free: Int64s, placed: dict[int, Placed], there: dict[int, GpuJob]
    ) -> Placed | None:
        """Move the small jobs of one node elsewhere if that makes a whole place; try the fewest GPUs first."""
        on_node: dict[int, list[int]] = {}
        for number, given in placed.items():
            job_there = there[number]
            if list(given.values()) == [job_there.gpus] and job_there.gpus <= SMALL and job_there.placed == given:
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
                found = packed(trial[: len(trial) - self.pool_nodes], there[number].gpus)
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
