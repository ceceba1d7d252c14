"""The slow twin of the `slurm` scheduler: docs/schedulers/slurm.md in obvious Python, section by section.

Written from that page and sharing no code with the kernel, which is tested against it job by job. This module is the
clock ("One second"); `reference_machine` holds jobs, nodes and placement, `reference_priority` the fair tree,
`reference_rules` limits, dependencies and what can never start, `reference_passes` the two passes and preemption.
"""

from __future__ import annotations

import math

import numpy as np

from simulator.slurm import world as w
from simulator.slurm.twin import rules
from simulator.slurm.twin.machine import Job, Machine
from simulator.slurm.twin.passes import backfill_pass, main_pass
from simulator.slurm.twin.priority import FairTree, static_priority

ALWAYS = -1  # free from the beginning


def simulate(world: w.World, *, free_from: int = ALWAYS, until: int = w.NEVER) -> w.Result:
    """What becomes of each job; arguments and result as those of the kernel's `run`, nothing checked."""
    controller = Controller(world, free_from, until)
    controller.run()
    jobs = controller.jobs
    for job in jobs:
        if job.state == w.PENDING and rules.never_satisfied(controller, job):
            job.reason = w.NEVER_SATISFIED
    placement = [job.held or [w.NONE] * job.nodes for job in jobs]
    return w.Result(
        start_s=np.array([job.start for job in jobs], np.int64),
        end_s=np.array([job.end for job in jobs], np.int64),
        state=np.array([job.state for job in jobs], np.int64),
        reason=np.array([job.reason for job in jobs], np.int64),
        restarts=np.array([job.restarts for job in jobs], np.int64),
        by_backfill=np.array([job.by_backfill for job in jobs], bool),
        placement_first=np.cumsum([0, *map(len, placement)], dtype=np.int64),
        placement=np.array([node for nodes in placement for node in nodes], np.int64),
    )


def _multiple_after(now: int, origin: int, period: int) -> int:
    """The first origin + k * period after `now`."""
    return origin + ((now - origin) // period + 1) * period


class Controller:
    """The clock and everything that a pass looks at."""

    def __init__(self, world: w.World, free_from: int, until: int) -> None:
        self.world, self.settings = world, world.settings
        self.free_from, self.until = free_from, until
        self.now = 0
        jobs = world.jobs
        self.jobs = [
            Job(
                row, int(jobs.submit_s[row]), int(jobs.eligible_s[row]), int(jobs.cancel_s[row]), int(jobs.run_s[row]),
                int(jobs.limit_s[row]), int(jobs.nodes[row]),
                (int(jobs.cpus_per_node[row]), int(jobs.memory_per_node_mb[row]), int(jobs.gpus_per_node[row])),
                int(jobs.gpu_type[row]),
                bool(jobs.exclusive[row])
                or (jobs.partition[row] != w.NONE and bool(world.partitions.exclusive[jobs.partition[row]])),
                int(jobs.partition[row]), int(jobs.qos[row]),
            )
            for row in range(len(jobs))
        ]  # fmt: skip
        self.machine = Machine(world)
        self.out: set[int] = set()  # nodes out of service because the capacity is lower than their number
        self.fair = FairTree(world)
        self.last_backfill = -math.inf
        self.last_main = -math.inf
        self.requested = False
        rules.find_unplaceable(self)
        for job in self.jobs:
            if job.state != w.UNPLACEABLE:
                job.static = static_priority(world, job)

    @property
    def running(self) -> list[Job]:
        return [job for job in self.jobs if job.state == w.RUNNING]

    def queue(self) -> list[Job]:
        """The jobs that a pass may start, in its order."""
        tier = self.world.partitions.priority_tier
        return sorted(
            (job for job in self.jobs if job.queued),
            key=lambda job: (-self.level(job.qos), -tier[job.partition], -job.priority, job.submit, job.row),
        )

    def level(self, qos: int) -> int:
        """Preemption level of a QOS."""
        below = np.flatnonzero(self.world.qos.preempts[qos]).tolist()
        return 1 + max(map(self.level, below)) if below else 0

    def run(self) -> None:
        second = self._next_second(-1)
        while second is not None and second <= self.until:
            self.now = second
            self._one_second()
            second = self._next_second(second)

    def _one_second(self) -> None:
        free = self.now >= self.free_from
        happened = self._outages_and_capacity()
        ended = self._ends()
        happened |= ended
        happened |= self._arrivals_and_timed_events()
        if (self.now - self.settings.origin_s) % self.settings.calc_period_s == 0:
            self._priorities()
        while True:
            if free:
                self._main_pass_if_due(ended)
            due = self.now >= self.last_backfill + self.settings.bf_interval_s
            if free and self.settings.backfill and due and (happened or any(job.queued for job in self.jobs)):
                self.last_backfill = self.now
                backfill_pass(self)
            ended = self._ends()
            if not ended:
                break

    def _outages_and_capacity(self) -> bool:
        outages, capacity = self.world.outages, self.world.capacity
        gone = bool((outages.begin_s == self.now).any())
        back = bool((outages.end_s == self.now).any())
        changed = np.flatnonzero(capacity.time_s == self.now)
        before = np.concatenate([[len(self.world.nodes)], capacity.nodes])
        rises = bool((capacity.nodes[changed] > before[changed]).any())
        self.requested |= back or rises
        self._meet_capacity()
        return gone or back or bool(changed.size)

    def _meet_capacity(self) -> None:
        """Bring the number of nodes out of service to what the capacity says, as far as idle nodes allow."""
        past = self.world.capacity.nodes[self.world.capacity.time_s <= self.now]
        wanted = len(self.world.nodes) - int(past[-1]) if len(past) else 0
        while len(self.out) > max(wanted, 0):
            self.out.remove(min(self.out))
        idle = [node for node, rows in enumerate(self.machine.running_on) if not rows and node not in self.out]
        while len(self.out) < wanted and idle:
            self.out.add(idle.pop())

    def _ends(self) -> bool:
        settings = self.settings
        ending = [job for job in self.running if self.recorded_end(job) + settings.completing_s <= self.now]
        for job in ending:
            state = w.TIMEOUT if job.run > job.limit else w.FAILED if self.world.jobs.failed[job.row] else w.COMPLETED
            self.leave(job, state, self.recorded_end(job))
        if ending:
            self._meet_capacity()
        return bool(ending)

    def recorded_end(self, job: Job) -> int:
        return job.start + min(job.run, job.limit + self.settings.over_time_limit_s + self.settings.kill_wait_s)

    def _main_pass_if_due(self, ended: bool) -> None:
        """At most one main pass: full where due, else limited; one over an empty queue is none."""
        settings = self.settings
        full = (self.now - settings.origin_s) % settings.sched_interval_s == 0 and self.last_main < self.now
        asked = self.requested and self.now >= self.last_main + settings.batch_sched_delay_s
        if not any(job.queued for job in self.jobs):
            return
        if full or asked:
            self.last_main, self.requested = self.now, False
        if full or asked or ended:
            main_pass(self, limited=not full)

    def leave(self, job: Job, state: int, end: int) -> None:
        """A running job leaves its nodes."""
        self.fair.charge(job, self.now, ends=True)
        self.machine.remove(job)
        job.state, job.end = state, end

    def preempt(self, job: Job) -> None:
        """A running job makes room: it ends now, or is submitted again."""
        mode = int(self.world.qos.preempt_mode[job.qos])
        self.leave(job, w.PREEMPTED, self.now)
        if mode == w.PREEMPT_REQUEUE:
            job.state, job.start, job.end, job.held, job.by_backfill = w.PENDING, w.NONE, w.NONE, [], False
            job.submit, job.eligible = self.now, self.now + self.settings.requeue_delay_s
            job.restarts += 1

    def _arrivals_and_timed_events(self) -> bool:
        happened = False
        for job in self.jobs:
            if job.state == w.FUTURE and job.submit == self.now:
                job.state, happened = w.PENDING, True
        for job in self.jobs:
            if job.state != w.PENDING:
                continue
            happened |= job.eligible == self.now
            if job.cancel == self.now:
                job.state, job.end, job.queued, happened = w.CANCELLED, self.now, False, True
        for job in self.jobs:
            if self.now < self.free_from and int(self.world.jobs.pinned_s[job.row]) == self.now:
                self._start_pinned(job)
                happened = True
        for job in self.jobs:
            if self._may_queue(job):
                job.queued, job.accrue, self.requested, happened = True, self.now, True, True
                self._set_priority(job)
        return happened

    def _start_pinned(self, job: Job) -> None:
        first, last = self.world.pinned_first[job.row : job.row + 2]
        nodes = self.world.pinned_nodes[first:last].tolist()
        if not nodes:
            members = set(np.flatnonzero(self.world.partitions.nodes[job.partition]).tolist())
            nodes = self.machine.place(job, members) or []
        if nodes:
            self.start(job, nodes, by_backfill=False)

    def start(self, job: Job, nodes: list[int], *, by_backfill: bool) -> None:
        self.machine.put(job, nodes)
        job.state, job.queued, job.start, job.end, job.held = w.RUNNING, False, self.now, w.NONE, sorted(nodes)
        job.expected_end, job.by_backfill = self.now + job.limit, by_backfill
        if job.first_start == w.NONE:
            job.first_start = self.now
        self.fair.begin(job.row, self.now)

    def _may_queue(self, job: Job) -> bool:
        waits = job.state == w.PENDING and not job.queued
        return waits and job.eligible <= self.now and rules.dependencies_hold(self, job)

    def _next_second(self, now: int) -> int | None:
        """The next second at which something happens; None where nothing can any more."""
        world, settings = self.world, self.settings
        fixed = [*world.outages.begin_s.tolist(), *world.outages.end_s.tolist(), *world.capacity.time_s.tolist()]
        for job in self.jobs:
            if job.state == w.FUTURE:
                fixed.append(job.submit)
            elif job.state == w.PENDING:
                fixed += [job.eligible, job.cancel]
                delays = world.dependencies
                for at in np.flatnonzero((delays.job == job.row) & (delays.kind == w.AFTER)):
                    parent = self.jobs[delays.parent[at]]
                    if parent.first_start != w.NONE:
                        fixed.append(parent.first_start + int(delays.delay_s[at]))
            elif job.state == w.RUNNING:
                fixed.append(self.recorded_end(job) + settings.completing_s)
            if now < self.free_from != -1:
                fixed.append(int(world.jobs.pinned_s[job.row]))
        if self.free_from != -1:
            fixed.append(self.free_from)
        later = [second for second in fixed if now < second < w.NEVER]
        self.now = now + 1
        if now >= 0 and any(self._may_queue(job) for job in self.jobs):
            return now + 1  # a start or an end of this second's passes satisfied a dependency
        passes: list[int] = []
        queued = any(job.queued for job in self.jobs)
        if queued and now >= self.free_from:
            passes.append(_multiple_after(now, settings.origin_s, settings.sched_interval_s))
            if self.requested:
                passes.append(max(now + 1, int(self.last_main) + settings.batch_sched_delay_s))
            if settings.backfill:
                passes.append(max(now + 1, int(self.last_backfill) + settings.bf_interval_s))
        if not later and not self.running and self._settled(now):
            return None
        if queued or (settings.weight_fairshare and now >= 0):
            passes.append(_multiple_after(now, settings.origin_s, settings.calc_period_s))
        return min(later + passes, default=None)

    def _settled(self, now: int) -> bool:
        """Whether, with nothing running and nothing to come, a full pass and a backfill pass have had their chance."""
        oldest = max((job.accrue for job in self.jobs if job.queued), default=None)
        if oldest is None:
            return True
        patience = self.settings.sched_interval_s + self.settings.bf_interval_s + self.settings.bf_min_age_reserve_s
        ends = [job.end for job in self.jobs if job.end != w.NONE]
        outages, capacity = self.world.outages, self.world.capacity
        machine = [*outages.begin_s.tolist(), *outages.end_s.tolist(), *capacity.time_s.tolist()]
        last_events = [oldest, self.free_from, *ends, *(second for second in machine if second <= now)]
        return bool(now > max(last_events) + 2 * patience)

    def _priorities(self) -> None:
        if self.settings.weight_fairshare:
            self.fair.calculate(self.running, self.now)
        for job in self.jobs:
            if job.queued:
                self._set_priority(job)

    def _set_priority(self, job: Job) -> None:
        settings = self.settings
        age = settings.weight_age * min(1.0, (self.now - job.accrue) / settings.max_age_s)
        fairshare = 0.0
        if settings.weight_fairshare:
            fairshare = settings.weight_fairshare * self.fair.factor[int(self.world.jobs.association[job.row])]
        job.priority = max(1, min(2**32 - 1, math.trunc(job.static + age + fairshare)))
