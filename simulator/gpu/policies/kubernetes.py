"""Kubernetes: pods one by one on the node with the best score; gangs and a queue with quotas on request.

Sources: the documentation of kube-scheduler (kubernetes.io: "Kubernetes Scheduler", "Scheduler Configuration", "Pod
Priority and Preemption"), of the Job controller, and of Kueue (kueue.sigs.k8s.io: "Cluster Queue", "Cohort",
"Preemption"). No paper defines this scheduler. Point by point, Kubernetes' rule and ours:

- Queue. Kubernetes: by priority, then by creation; a pod that does not fit lets others pass. Here: the same. Priorities
  are the trace's classes of service: LS and Guaranteed, then Burstable, then BE and all others.
- Filters. Kubernetes: NodeResourcesFit compares the requests of every resource, NodeAffinity the labels. Here: GPUs,
  CPUs, memory, and the GPU models that a pod names. If nodes of those models cannot hold a job, it runs on any.
- Scores. Kubernetes: LeastAllocated and BalancedAllocation of CPUs and memory, 0 to 100 points each. Here: the same, in
  whole points. `gpu_weight` (0) scores GPUs as well as CPUs and memory, and `pack` takes MostAllocated for
  LeastAllocated. GPUs alone are scored where the trace lacks CPUs and memory. Scores of images, taints and spread
  services are left out, because a trace has none.
- Ties. Kubernetes: one of the best nodes at random, and of a large cluster only a sample of nodes. Here: the first of
  all nodes.
- Part of a GPU. Kubernetes: a GPU is whole (`share` 0). Here: with `share` 1, as with a plugin that shares GPUs, a pod
  takes its thousandths of one device, the fullest that can hold them.
- Preemption (`preempt`). Kubernetes: a pod stops pods of lower priority on one node: the node where the highest
  priority among the stopped pods is lowest. Ties: the least sum of their priorities, then the fewest of them, then the
  node whose stopped pod of highest priority started last. Here: the same, and the whole job of a stopped pod stops, is
  created again at once, and pays for a restart.
- Jobs. Kubernetes ignores them: the placed pods of a job hold idle GPUs until its last pod is placed. Two jobs that
  each hold GPUs the other needs wait for each other. Here: the same, and a job gives up `timeout_s` after its first pod
  was placed. Its pods are deleted. After a back-off they are created again, behind the waiting pods. The back-off is 10
  s and doubles up to 360 s (as in the Job controller). The time-out is our choice, because Kubernetes has none.
- Gangs. Plugins (coscheduling, Volcano) place all pods of a job or none. Here: `gang` 1.
- Kueue. A job is admitted within the quota of its queue, or borrows what other queues of the cohort do not use. Jobs
  that borrow nothing come first, then priority, then creation. Here: `queue` 1, which includes gangs. Queues are the
  groups of the trace in one cohort, and quotas are GPUs. Kueue admits by quota alone. Here a job also needs a place for
  all of its pods, as with Kueue's topology-aware scheduling.
- Kueue's preemption. A job that does not fit, and asks for no more than the quota of its queue, can evict others.
  `reclaimWithinCohort` (`reclaim`) allows it to evict jobs of queues that borrow, and then it must not borrow itself.
  `withinClusterQueue` (`within`) allows it to evict jobs of lower priority of its own queue. Jobs are evicted one by
  one until it fits: those of borrowing queues first, then the lowest priority, then the latest admitted. Then those
  that turn out not to be needed are kept, the last chosen first. Here: the same, for whole jobs; if it still does not
  fit, none stops. 0: `Never` (Kueue's default), 1: `LowerPriority`, 2: `Any` (only `reclaim`). Above 0, both include
  `queue` and switch `preempt` off: kube-scheduler ignores the priorities of Kueue's workloads. An evicted job keeps its
  place in the order and pays for a restart. Our reading: it borrows nothing before the next decision, `round_s` later.
  `borrowWithinCohort`, fair sharing and `LowerOrNewerEqualPriority` are left out.

Our reading: decisions happen every `round_s`. Pods of one job are tried together.
"""

from __future__ import annotations

import math

from simulator.gpu.algorithms.placement import summed
from simulator.gpu.cohort import ANY, LOWER_PRIORITY, NEVER, Cohort, quota_gpus
from simulator.gpu.pods import Pod, PodNodes, Scoring
from simulator.gpu.round_policy import NOBODY, GpuJob, Placed, View
from simulator.gpu.scheduler import RoundScheduler, check_choice, check_seconds
from simulator.metrics import PODS_HELD
from traces.counted import counted
from traces.errors import InputError

BACKOFF_S, MOST_BACKOFF_S = 10.0, 360.0
_Shape = tuple[object, ...]


class Kubernetes:
    """Pods in order of priority and creation: with `gang` or `queue` a job at a time, else each pod separately."""

    pause_s: float | None = None
    guests = NOBODY
    settled = True  # a decision remains valid until a job arrives or ends, or until `wake_s`

    def __init__(
        self,
        round_s: float = 1.0,
        gang: bool = False,
        timeout_s: float = 600.0,
        queue: bool = False,
        share: bool = True,
        preempt: bool = True,
        pack: bool = False,
        gpu_weight: float = 0.0,
        reclaim: float = NEVER,
        within: float = NEVER,
    ) -> None:
        check_seconds("kubernetes", round_s=round_s, timeout_s=timeout_s)
        check_choice("kubernetes", NEVER, LOWER_PRIORITY, ANY, reclaim=reclaim)
        check_choice("kubernetes", NEVER, LOWER_PRIORITY, within=within)
        self._evicts = reclaim > NEVER or within > NEVER
        queue = queue or self._evicts
        self.round_s, self.timeout_s, self.preempt = round_s, timeout_s, preempt and not self._evicts
        self.gang, self.uses_quotas, self.shares_gpus = gang or queue, queue, share
        self.wake_s = math.inf
        self.timeouts = self.stopped = self.borrowed = self.evicted = 0
        self.displaced = 0  # jobs of which pods were deleted for others, whole or not
        self.idle_gpu_s = 0.0  # GPU seconds held by pods of incomplete jobs
        self._policies = reclaim, within
        self._scoring = Scoring(pack, gpu_weight)
        self._nodes: PodNodes | None = None
        self._present: dict[int, GpuJob] = {}
        self._running: set[int] = set()
        self._since_s: dict[int, float] = {}  # incomplete job -> when its first pod was placed
        self._created_s: dict[int, float] = {}  # job -> when its pods are created again
        self._tries: dict[int, int] = {}
        self._gone: set[int] = set()  # jobs that Kueue evicted in this decision; it may have started them again
        self._last_s = 0.0

    def decide(self, view: View) -> dict[int, Placed]:
        """As `simulator.gpu.round_policy.RoundPolicy`."""
        nodes = self._nodes = self._nodes or PodNodes(view.machine, self._scoring)
        self._present = {job.number: job for job in view.jobs}
        for number in [number for number in nodes.pods if number not in self._present]:
            nodes.remove(number)
        self._running &= set(self._present)
        for job in view.jobs:
            if job.number in nodes.pods and job.number not in self._running:
                held = len(nodes.pods[job.number]) * (job.pod_gpus * job.gpu_milli / 1000)
                self.idle_gpu_s += (view.now_s - self._last_s) * held
                if view.now_s - self._since_s[job.number] >= self.timeout_s:
                    self._give_up(nodes, job, view.now_s)
        self._last_s, self._gone = view.now_s, set()
        if self.uses_quotas:
            self._admit(nodes, view)
        else:
            self._pass(nodes, view.now_s)
        self.wake_s = self._next_s(view.now_s)
        return {number: _gpus_on(nodes.pods[number]) for number in self._running}

    def said(self) -> list[str]:
        """Return the assumptions and counts of the run as sentences for the user."""
        lines = []
        if self.uses_quotas:
            lines.append(f"kubernetes: the queue let {counted(self.borrowed, 'job')} start on borrowed quota")
        if self.evicted:
            lines.append(f"kubernetes: Kueue evicted {counted(self.evicted, 'job')} for others")
        if self.stopped:
            lines.append(f"kubernetes: pods of higher priority stopped {counted(self.stopped, 'job')}")
        if self.gang:
            return [*lines, "kubernetes: with gang, a job holds nothing until all of its pods fit"]
        return [
            *lines,
            f"{PODS_HELD}{self.idle_gpu_s / 3600:,.0f} GPU hours idle, and jobs gave up "
            f"{counted(self.timeouts, 'time')} after {self.timeout_s:g} s",
        ]

    def _created(self, job: GpuJob) -> float:
        return self._created_s.get(job.number, job.submit_s)

    def _order(self, job: GpuJob) -> tuple[float, float, int]:
        return -job.priority, self._created(job), job.number

    def _queue(self, now_s: float) -> list[GpuJob]:
        """Return the jobs with pods that wait, by priority and creation."""
        waiting = [job for number, job in self._present.items() if number not in self._running]
        return sorted((job for job in waiting if self._created(job) <= now_s), key=self._order)

    def _next_s(self, now_s: float) -> float:
        """Return when a job gives up, is created again, or may borrow again, if nothing else happens before."""
        pods = self._nodes.pods if self._nodes else {}
        ends = [self._since_s[number] + self.timeout_s for number in pods if number not in self._running]
        waiting = (at for number, at in self._created_s.items() if number in self._present and at > now_s)
        again = [now_s + self.round_s] if self._gone and self._evicts else []
        return min([*ends, *waiting, *again], default=math.inf)

    def _give_up(self, nodes: PodNodes, job: GpuJob, now_s: float) -> None:
        """Delete the pods of an incomplete job, to be created again after the back-off."""
        nodes.remove(job.number)
        self.timeouts += 1
        tries = self._tries[job.number] = self._tries.get(job.number, 0) + 1
        self._created_s[job.number] = now_s + min(MOST_BACKOFF_S, BACKOFF_S * 2 ** (tries - 1))

    def _try(self, nodes: PodNodes, job: GpuJob, now_s: float, failed: set[_Shape]) -> bool:
        """Place the pods of the job that wait; return whether it is whole then. Gangs are placed whole or not at all.

        `failed` has the shapes of pods, or of gangs, that found no place in this decision, in which room only shrinks
        for them.
        """
        before = list(nodes.pods.get(job.number, ()))
        shape = (job.pods if self.gang else 1, job.pod_gpus, job.gpu_milli, job.need, job.accepts, job.priority)
        stopped: dict[int, list[Pod]] = {}
        while shape not in failed and len(nodes.pods.get(job.number, ())) < job.pods:
            if nodes.place(job, now_s):
                continue
            victims = nodes.victims(job) if self.preempt else []
            if not victims:
                failed.add(shape)
            for victim in victims:
                stopped[victim.number] = nodes.pods[victim.number]
                nodes.remove(victim.number)
        if len(nodes.pods.get(job.number, ())) < job.pods and self.gang:
            nodes.remove(job.number)
            for number, pods in stopped.items():
                nodes.restore(number, pods)
            return False
        for number in stopped:
            self._created_s[number] = now_s
            self.displaced += 1
            self.stopped += number in self._running
            self._running.discard(number)
        if not before and job.number in nodes.pods:
            self._since_s[job.number] = now_s
        if len(nodes.pods.get(job.number, ())) < job.pods:
            return False
        self._running.add(job.number)
        return True

    def _pass(self, nodes: PodNodes, now_s: float) -> None:
        """Try the waiting jobs in order; once more after a preemption, which can free more than was needed."""
        before = -1
        while before != self.displaced:
            before, failed = self.displaced, set[_Shape]()
            for job in self._queue(now_s):
                self._try(nodes, job, now_s, failed)

    def _admit(self, nodes: PodNodes, view: View) -> None:
        """Start jobs within the quotas; try again after an eviction, which can free more than was needed."""
        before = -1
        while before != self.evicted:
            before = self.evicted
            self._cycles(nodes, view)

    def _cycles(self, nodes: PodNodes, view: View) -> None:
        """Try each waiting job once: in each cycle the first job of each group, those that borrow nothing first.

        A job that was evicted in this decision must not borrow, or two could evict each other without end.
        """
        cohort = Cohort(view.machine.quotas, (self._present[number] for number in self._running), *self._policies)
        failed, queues = set[_Shape](), dict[str, list[GpuJob]]()
        for job in reversed(self._queue(view.now_s)):
            queues.setdefault(job.group, []).append(job)
        while queues:
            heads = [queue[-1] for queue in queues.values()]
            borrow = {job.number: cohort.borrows(job.group, job) for job in heads}
            for job in sorted(heads, key=lambda job: (borrow[job.number], self._order(job))):
                if quota_gpus(job) > cohort.total + 1e-9:
                    raise InputError(
                        f"kubernetes: job {job.number} asks for {quota_gpus(job):g} GPUs, but the quotas add up to "
                        f"{cohort.total:g}: raise a quota or leave the job out"
                    )
                queues[job.group].pop()
                may_borrow = job.number not in self._gone
                if cohort.has_room(job, may_borrow) and self._try(nodes, job, view.now_s, failed):
                    cohort.admit(job)
                    self.borrowed += borrow[job.number]
                elif self._evicts and self._evict_for(nodes, cohort, job, view.now_s):
                    failed.clear()  # an eviction can free more than was needed
            queues = {group: queue for group, queue in queues.items() if queue}

    def _evict_for(self, nodes: PodNodes, cohort: Cohort, job: GpuJob, now_s: float) -> bool:
        """Start the job in place of others by Kueue's rules; return whether that is possible, else stop none."""
        admitted_s = {number: nodes.pods[number][0].since_s for number in self._running}
        for candidates, may_borrow in cohort.attempts(job, admitted_s):
            may_borrow &= job.number not in self._gone
            targets = self._targets(nodes, cohort, job, candidates, may_borrow, now_s)
            if targets:
                stopped = {other.number for other in targets}
                self._gone |= stopped
                self._running -= stopped
                self._running.add(job.number)
                self.borrowed += cohort.borrows(job.group, job)
                cohort.admit(job)
                self.evicted += len(targets)
                return True
        return False

    @staticmethod
    def _targets(
        nodes: PodNodes, cohort: Cohort, job: GpuJob, candidates: list[GpuJob], may_borrow: bool, now_s: float
    ) -> list[GpuJob]:
        """Evict as many of `candidates` as needed to place the job, and return them; [] if all are not enough."""

        def fits() -> bool:
            return cohort.has_room(job, may_borrow) and _place_whole(nodes, job, now_s)

        gone: list[tuple[GpuJob, list[Pod]]] = []

        def restore(other: GpuJob, pods: list[Pod]) -> None:
            nodes.restore(other.number, pods)
            cohort.admit(other)

        def remove(other: GpuJob) -> None:
            nodes.remove(other.number)
            cohort.evict(other)

        for other in candidates:
            if other.group == job.group or cohort.borrows(other.group):
                gone.append((other, nodes.pods[other.number]))
                remove(other)
                if fits():
                    break
        else:
            for other, pods in reversed(gone):
                restore(other, pods)
            return []
        kept: list[GpuJob] = []
        for other, pods in gone[-2::-1]:
            nodes.remove(job.number)
            restore(other, pods)
            if fits():
                kept.append(other)
            else:
                remove(other)
                fits()
        return [other for other, _ in gone if other not in kept]


def _place_whole(nodes: PodNodes, job: GpuJob, now_s: float) -> bool:
    """Place all pods of the job or none; return whether it could."""
    for _ in range(job.pods):
        if not nodes.place(job, now_s):
            nodes.remove(job.number)
            return False
    return True


def _gpus_on(pods: list[Pod]) -> Placed:
    """Return the GPUs on each node of the pods of one job."""
    return summed({pod.node: pod.job.pod_gpus} for pod in sorted(pods, key=lambda pod: pod.node))


SCHEDULER = RoundScheduler(Kubernetes)
