"""The cohort of Kueue's queues: nominal quotas, who borrows, and whose jobs may be evicted for a job.

A queue within a cohort may use more than its nominal quota while the others use less of theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from simulator.gpu.round_policy import GpuJob

NEVER, LOWER_PRIORITY, ANY = 0.0, 1.0, 2.0  # Kueue's policies of preemption
_TINY = 1e-9


class Cohort:
    """The nominal quotas in GPUs by queue, and the GPUs that the admitted jobs of each queue use.

    `reclaim` is Kueue's `reclaimWithinCohort`, `within` its `withinClusterQueue`: NEVER, LOWER_PRIORITY, or ANY, which
    only `reclaim` can be.
    """

    def __init__(self, nominal: Mapping[str, float], admitted: Iterable[GpuJob], reclaim: float, within: float) -> None:
        self.nominal, self.total = nominal, sum(nominal.values())
        self.reclaim, self.within = reclaim, within
        self.used = dict.fromkeys(nominal, 0.0)
        self._admitted: dict[int, GpuJob] = {}
        for job in admitted:
            self.admit(job)

    def admit(self, job: GpuJob) -> None:
        """Count the job in its queue."""
        self._admitted[job.number] = job
        self.used[job.group] += quota_gpus(job)

    def evict(self, job: GpuJob) -> None:
        """Take the job out of its queue."""
        del self._admitted[job.number]
        self.used[job.group] -= quota_gpus(job)

    def borrows(self, queue: str, job: GpuJob | None = None) -> bool:
        """Return whether the queue uses more than its nominal quota, or would with `job` admitted to it."""
        more = 0.0 if job is None else quota_gpus(job)
        return self.used[queue] + more > self.nominal[queue] + _TINY

    def has_room(self, job: GpuJob, may_borrow: bool = True) -> bool:
        """Return whether the quota of the cohort has room for the job, and if it must not borrow, its queue's too."""
        if not may_borrow and self.borrows(job.group, job):
            return False
        return sum(self.used.values()) + quota_gpus(job) <= self.total + _TINY

    def attempts(self, job: GpuJob, admitted_s: Mapping[int, float]) -> list[tuple[list[GpuJob], bool]]:
        """Return what to try for a job that does not fit: jobs to evict one by one, and whether the job may borrow.

        Kueue's classic preemption. A job wider than the nominal quota of its queue evicts nobody. Jobs of borrowing
        queues come before jobs of its own queue, then the lowest priority, then the latest in `admitted_s` (job number
        -> second). A job that evicts from other queues must not borrow.
        """
        if quota_gpus(job) > self.nominal[job.group] + _TINY:
            return []

        def of_queues(own: bool, policy: float) -> list[GpuJob]:
            found = [
                other
                for other in self._admitted.values()
                if (other.group == job.group) == own
                and (own or self.borrows(other.group))
                and policy > NEVER
                and (policy == ANY or other.priority < job.priority)
            ]
            return sorted(found, key=lambda other: (other.priority, -admitted_s[other.number], -other.number))

        others, own = of_queues(False, self.reclaim), of_queues(True, self.within)
        is_below = self.used[job.group] < self.nominal[job.group] - _TINY
        first = [([*others, *own], False)] if others and is_below else []
        return [*first, (own, True)] if own else first


def quota_gpus(job: GpuJob) -> float:
    """Return the GPUs of the whole job, parts as parts."""
    return job.gpus * job.gpu_milli / 1000
