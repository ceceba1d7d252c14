"""The twin of the flat schedulers in plain Python, written from their pages in docs/schedulers.

It shares no code with `simulator.flat.kernel` and `simulator.flat.schedulers`. Tests compare their results with its
results job by job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from simulator.workload import Workload


@dataclass
class _Job:
    number: int  # position in the workload: breaks ties
    submit: int
    size: int
    run: int  # time until it ends by itself or at its limit
    estimate: int
    cancel: int | None = None  # when it leaves the queue, if it waits then
    other: tuple[int, int] | None = None  # from when on it is planned with another run time, and that
    start: int = -1

    @property
    def end(self) -> int:
        return self.start + self.run

    def expected_end(self, now: int) -> int:
        return max(self.start + self.estimate, now)


class _Cluster:
    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.now = 0
        self.pending: list[_Job] = []
        self.running: list[_Job] = []
        self.changing: list[_Job] = []  # jobs whose limits change

    @property
    def free(self) -> int:
        return self.capacity - sum(job.size for job in self.running)

    def fits(self, job: _Job) -> bool:
        return job.size <= self.free

    def change_limits(self) -> None:
        for job in self.changing:
            if job.other is not None and job.start < 0 and job.other[0] <= self.now:
                job.estimate = job.other[1]

    def start(self, job: _Job) -> None:
        assert self.fits(job)
        job.start = self.now
        self.pending.remove(job)
        self.running.append(job)

    def expected_free(self, time: int) -> int:
        """Return the units free at `time` >= now if no other job starts and all jobs end as expected."""
        return self.free + sum(job.size for job in self.running if job.expected_end(self.now) <= time)


def simulate(
    workload: Workload,
    *,
    scheduler: str,
    capacity: int,
    estimate: str = "limit",
    pass_: str = "event",
    kill_at_limit: bool = False,
    cancel_s: Mapping[int, int] | None = None,
    limit_from: Mapping[int, tuple[int, int]] | None = None,
) -> list[int]:
    """Return the start of each job, s; arguments as for `simulator.flat.replay.simulate`, unchecked.

    cancel_s: by row, when a job is cancelled if it waits then; before the second's ends and submissions. limit_from: by
    row, a second, and the limit that a job which has not started then has from there on.
    """
    jobs = []
    for number in range(len(workload)):
        run, limit = int(workload.run_s[number]), int(workload.limit_s[number])
        other = (limit_from or {}).get(number)
        if kill_at_limit or scheduler == "mirage":
            run = min(run, other[1] if other else limit)
        planned = run if estimate == "exact" else limit
        cancel, submit = (cancel_s or {}).get(number), int(workload.submit_s[number])
        jobs.append(_Job(number, submit, int(workload.size[number]), run, planned, cancel, other))
    cluster = _Cluster(capacity)
    cluster.changing = [job for job in jobs if job.other is not None]
    if scheduler == "mirage":
        _run_by_ticks(jobs, cluster)
    else:
        _run_by_events(jobs, cluster, PASSES[scheduler], single=pass_ == "event")
    return [job.start for job in jobs]


def _run_by_events(jobs: list[_Job], cluster: _Cluster, schedule: _Pass, *, single: bool) -> None:
    arriving = list(jobs)
    while arriving or cluster.running:
        ends = sorted(cluster.running, key=lambda job: (job.end, job.number))
        cancels = [job.cancel for job in cluster.pending if job.cancel is not None]
        cluster.now = min([job.end for job in ends[:1]] + [job.submit for job in arriving[:1]] + cancels)
        cluster.change_limits()
        leaving = [job for job in cluster.pending if job.cancel == cluster.now]
        ending = [job for job in ends if job.end == cluster.now]
        coming = [job for job in arriving if job.submit == cluster.now]
        if single:
            ending, coming = [] if leaving else ending[:1], [] if leaving or ending else coming[:1]
        cluster.pending = [job for job in cluster.pending if job not in leaving]
        for job in ending:
            cluster.running.remove(job)
        for job in coming:
            arriving.remove(job)
            cluster.pending.append(job)
        schedule(cluster)


def _fifo(cluster: _Cluster) -> None:
    while cluster.pending and cluster.fits(cluster.pending[0]):
        cluster.start(cluster.pending[0])


def _sjf(cluster: _Cluster) -> None:
    cluster.pending.sort(key=lambda job: (job.estimate, job.number))
    _fifo(cluster)


def _easy(cluster: _Cluster) -> None:
    _fifo(cluster)
    if not cluster.pending:
        return
    head, now = cluster.pending[0], cluster.now
    instants = sorted({now, *(job.expected_end(now) for job in cluster.running)})
    shadow = next(instant for instant in instants if cluster.expected_free(instant) >= head.size)
    spare = cluster.expected_free(shadow) - head.size
    for job in cluster.pending[1:]:
        if not cluster.fits(job):
            continue
        if now + job.estimate <= shadow:
            cluster.start(job)
        elif job.size <= spare:
            spare -= job.size
            cluster.start(job)


def _conservative(cluster: _Cluster) -> None:
    now = cluster.now
    # (start, end, units) of each planned job; the units of a job that outlived its estimate count as free from now.
    plan = [(now, job.expected_end(now), job.size) for job in cluster.running]

    def planned_free(instant: int) -> int:
        return cluster.capacity - sum(size for start, end, size in plan if start <= instant < end)

    for job in list(cluster.pending):
        instants = sorted({now, *(end for _, end, _ in plan)})
        place = next(
            begin
            for begin in instants
            if planned_free(begin) >= job.size
            and all(
                planned_free(instant) >= job.size
                for instant in [start for start, _, _ in plan]
                if begin < instant < begin + job.estimate
            )
        )
        plan.append((place, place + job.estimate, job.size))
        if place == now and cluster.fits(job):
            cluster.start(job)


def _run_by_ticks(jobs: list[_Job], cluster: _Cluster) -> None:
    arriving = list(jobs)
    cluster.now = jobs[0].submit // 60 * 60 if jobs else 0
    while arriving or cluster.pending:
        cluster.change_limits()
        cluster.running = [job for job in cluster.running if job.end > cluster.now]
        coming = [job for job in arriving if job.submit <= cluster.now]
        arriving = arriving[len(coming) :]
        cluster.pending = [job for job in cluster.pending if job.cancel is None or job.cancel > cluster.now]
        # Smaller first: -(100 size / capacity + 7000 age / 7 d) at a common instant, times capacity * 604800 / 7000.
        cluster.pending = sorted(
            cluster.pending + coming, key=lambda job: (cluster.capacity * job.submit - 8640 * job.size, job.number)
        )
        if cluster.now % 600 == 0:
            _slotted_backfill(cluster)
        else:
            _fifo(cluster)
        cluster.now += 60


def _slotted_backfill(cluster: _Cluster) -> None:
    now, slots = cluster.now, 288
    timeline = [
        cluster.capacity - sum(job.size for job in cluster.running if job.start + job.estimate > now + 600 * slot)
        for slot in range(slots)
    ]
    for job in cluster.pending[:3000]:
        length = -(-job.estimate // 600)
        for first in range(slots):
            needed = range(first, min(first + length, slots))
            if all(timeline[slot] >= job.size for slot in needed):
                for slot in needed:
                    timeline[slot] -= job.size
                if first == 0:
                    cluster.start(job)
                break


_Pass = Callable[[_Cluster], None]
PASSES: dict[str, _Pass] = {  # the schedulers that make passes at events; the property tests run each of them
    "fifo": _fifo,
    "sjf": _sjf,
    "easy": _easy,
    "conservative": _conservative,
}
