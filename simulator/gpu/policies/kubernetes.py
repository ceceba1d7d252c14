"""Kubernetes: pods one by one on the node with the best score; gangs and a queue with quotas on request.

Sources: the documentation of kube-scheduler (kubernetes.io: "Kubernetes Scheduler", "Scheduler Configuration", "Pod
Priority and Preemption"), of the Job controller, and of Kueue (kueue.sigs.k8s.io: "Cluster Queue", "Cohort"). No paper
defines this scheduler. Point by point, Kubernetes' rule and ours:

- Queue. Kubernetes: by priority, then by creation; a pod that does not fit lets others pass. Here: the same. Priorities
  are the trace's classes of service: LS and Guaranteed, then Burstable, then BE and all others.
- Filters. Kubernetes: NodeResourcesFit compares the requests of every resource, NodeAffinity the labels. Here: GPUs,
  CPUs, memory, and the GPU models that a pod names. If nodes of those models cannot hold a job, it runs on any.
- Scores. Kubernetes: LeastAllocated and BalancedAllocation of CPUs and memory, 0 to 100 points each. Here: the same, in
  whole points; `gpu_weight` lets GPUs count beside CPUs and memory (0), and `pack` takes MostAllocated for
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
  was placed. Its pods are deleted and created again, behind the waiting pods, after a back-off of 10 s that doubles up
  to 360 s (as in the Job controller). The time-out is our choice, because Kubernetes has none.
- Gangs. Plugins (coscheduling, Volcano) place all pods of a job or none. Here: `gang` 1.
- Kueue. A job is admitted within the quota of its queue, or borrows what other queues of the cohort do not use. Jobs
  that borrow nothing come first, then priority, then creation. Here: `queue` 1, which includes gangs. Queues are the
  groups of the trace in one cohort, quotas are GPUs, and nothing lent is taken back (Kueue's default). Kueue admits by
  quota alone, and here a job also needs a place for all of its pods.

Our reading: decisions happen every `round_s`. Pods of one job are tried together.
"""

from __future__ import annotations

import math

from simulator.gpu.pods import Pod, PodNodes, Scoring
from simulator.gpu.rounds import NOBODY, GpuJob, Placed, View, check_seconds
from simulator.gpu.scheduler import RoundScheduler
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
    ) -> None:
        check_seconds("kubernetes", round_s=round_s, timeout_s=timeout_s)
        self.round_s, self.timeout_s, self.preempt = round_s, timeout_s, preempt
        self.gang, self.uses_quotas, self.shares_gpus = gang or queue, queue, share
        self.wake_s = math.inf
        self.timeouts = self.stopped = self.borrowed = 0
        self.displaced = 0  # jobs of which pods were deleted for others, whole or not
        self.idle_gpu_s = 0.0  # GPU seconds held by pods of incomplete jobs
        self._scoring = Scoring(pack, gpu_weight)
        self._nodes: PodNodes | None = None
        self._present: dict[int, GpuJob] = {}
        self._running: set[int] = set()
        self._since_s: dict[int, float] = {}  # incomplete job -> when its first pod was placed
        self._created_s: dict[int, float] = {}  # job -> when its pods are created again
        self._tries: dict[int, int] = {}
        self._last_s = 0.0

    def decide(self, view: View) -> dict[int, Placed]:
        """As `simulator.gpu.rounds.RoundPolicy`."""
        nodes = self._nodes = self._nodes or PodNodes(view.machine, self._scoring)
        self._present = {job.number: job for job in view.jobs}
        for number in [number for number in nodes.pods if number not in self._present]:
            nodes.remove(number)
        self._running &= set(self._present)
        for job in view.jobs:
            if job.number in nodes.pods and job.number not in self._running:
                held = len(nodes.pods[job.number]) * _gpus_of_pod(job)
                self.idle_gpu_s += (view.now_s - self._last_s) * held
                if view.now_s - self._since_s[job.number] >= self.timeout_s:
                    self._give_up(job, view.now_s)
        self._last_s = view.now_s
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
        """Return when a job gives up or is created again, if nothing else happens before."""
        pods = self._nodes.pods if self._nodes else {}
        ends = [self._since_s[number] + self.timeout_s for number in pods if number not in self._running]
        waiting = (at for number, at in self._created_s.items() if number in self._present and at > now_s)
        return min([*ends, *waiting], default=math.inf)

    def _give_up(self, job: GpuJob, now_s: float) -> None:
        """Delete the job's pods, to be created again after the back-off."""
        self._delete(job)
        self.timeouts += 1
        tries = self._tries[job.number] = self._tries.get(job.number, 0) + 1
        self._created_s[job.number] = now_s + min(MOST_BACKOFF_S, BACKOFF_S * 2 ** (tries - 1))

    def _delete(self, job: GpuJob) -> None:
        if self._nodes:
            self._nodes.remove(job.number)
        self._running.discard(job.number)

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
        """Start jobs within the quotas: in each cycle the first job of each group, those that borrow nothing first."""
        quotas, failed = view.machine.quotas, set[_Shape]()
        used = dict.fromkeys(quotas, 0.0)
        for number in self._running:
            job = self._present[number]
            used[job.group] += job.pods * _gpus_of_pod(job)
        queues: dict[str, list[GpuJob]] = {}
        for job in reversed(self._queue(view.now_s)):
            queues.setdefault(job.group, []).append(job)
        while queues:
            heads = [queue[-1] for queue in queues.values()]
            borrow = {job.number: used[job.group] + _gpus(job) > quotas[job.group] + 1e-9 for job in heads}
            for job in sorted(heads, key=lambda job: (borrow[job.number], self._order(job))):
                if _gpus(job) > sum(quotas.values()) + 1e-9:
                    raise InputError(
                        f"kubernetes: job {job.number} asks for {_gpus(job):g} GPUs, but the quotas add up to "
                        f"{sum(quotas.values()):g}: raise a quota or leave the job out"
                    )
                queues[job.group].pop()
                is_open = sum(used.values()) + _gpus(job) <= sum(quotas.values()) + 1e-9
                if is_open and self._try(nodes, job, view.now_s, failed):
                    used[job.group] += _gpus(job)
                    self.borrowed += borrow[job.number]
            queues = {group: queue for group, queue in queues.items() if queue}


def _gpus_of_pod(job: GpuJob) -> float:
    return job.pod_gpus * job.gpu_milli / 1000


def _gpus(job: GpuJob) -> float:
    """Return the GPUs of the whole job, parts as parts."""
    return job.pods * _gpus_of_pod(job)


def _gpus_on(pods: list[Pod]) -> Placed:
    """Return the GPUs on each node of the pods of one job."""
    placed: Placed = {}
    for pod in sorted(pods, key=lambda pod: pod.node):
        placed[pod.node] = placed.get(pod.node, 0) + pod.job.pod_gpus
    return placed


SCHEDULER = RoundScheduler(Kubernetes)
