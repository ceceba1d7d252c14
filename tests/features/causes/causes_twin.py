"""The causes of waits in plain loops: each second of each job's wait by itself, from the definitions.

Left out are what short waits cannot show: own jobs inferred from how jobs follow each other, closed queues and inferred
limits. They have tests of their own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.features.resources.in_service_twin import in_service

Amounts = tuple[int, int]  # GPUs, CPUs


@dataclass(frozen=True)
class Job:
    """A job that ran. gpus, cpus: of each of its nodes; on: the nodes. Instants in seconds."""

    submit: int
    eligible: int
    start: int
    end: int
    gpus: int
    cpus: int
    on: tuple[int, ...]
    partition: str
    user: str | None

    @property
    def asks(self) -> tuple[int, int, int]:
        """Nodes, GPUs and CPUs in all."""
        return len(self.on), len(self.on) * self.gpus, len(self.on) * self.cpus


@dataclass(frozen=True)
class Pending:
    """A job that waits from second 0 until the log ends: it shows the machine there."""

    partition: str = "p"
    asks: tuple[int, int, int] = (0, 1, 0)


@dataclass(frozen=True)
class Log:
    """A log and what is declared of its machine.

    listed: node -> GPUs and CPUs, of a machine list. quota: GPUs that the jobs of partition p may hold. window: seconds
    after which an idle node is out of service.
    """

    jobs: list[Job]
    pending: Pending | None
    listed: dict[int, Amounts]
    quota: int
    window: int
    ends: int

    @property
    def runs(self) -> list[Job]:
        """Jobs that held something."""
        return [job for job in self.jobs if job.end > job.start]

    @property
    def first(self) -> int:
        """The first start."""
        return min(job.start for job in self.runs)

    @property
    def until(self) -> int:
        """The last instant of the log."""
        return max(max(job.submit, job.start, job.end) for job in self.jobs)

    @property
    def whole_from(self) -> int:
        """The first start; the first end where `ends` runs should have been over by then, as long as runs are."""
        first_end = min(job.end for job in self.runs)
        lengths = [job.end - job.start for job in self.runs]
        expected = 0.0
        for job in self.runs:
            if job.start < first_end:
                expected += sum(length < first_end - job.start for length in lengths) / len(lengths)
        return first_end if expected >= self.ends else self.first

    def held_by_group(self, second: int) -> int:
        """GPUs that the jobs of partition p hold."""
        return sum(job.asks[1] for job in self.runs if job.partition == "p" and job.start <= second < job.end)

    def held_by(self, user: str | None, partition: str, second: int) -> tuple[int, int, int]:
        """Nodes, GPUs and CPUs that a user's jobs of a partition hold."""
        mine = [job for job in self.runs if (job.user, job.partition) == (user, partition)]
        live = [job.asks for job in mine if job.start <= second < job.end]
        return sum(ask[0] for ask in live), sum(ask[1] for ask in live), sum(ask[2] for ask in live)

    def queue(self, second: int, partition: str | None) -> list[tuple[int, int, int]]:
        """What the eligible jobs in the queue of a partition, or of all, ask for."""
        asked = [
            job.asks for job in self.jobs
            if partition in (None, job.partition) and job.eligible <= second < job.start
        ]  # fmt: skip
        if self.pending and partition in (None, self.pending.partition) and 0 <= second < self.until:
            asked.append(self.pending.asks)
        return asked

    def users_waiting(self, second: int) -> int:
        """Users with an eligible job in the queue; a job without a user counts by itself."""
        users = [job.user for job in self.jobs if job.eligible <= second < job.start]
        unnamed = users.count(None) + (self.pending is not None and 0 <= second < self.until)
        return len({*users} - {None}) + unnamed

    def others_until(self, place: int) -> int:
        """Until when another user's job of the queue was before a job: eligible earlier and waiting, or as wide and
        started first."""
        me, found = self.jobs[place], [-1]
        for at, job in enumerate(self.jobs):
            if at == place or job.partition != me.partition or (job.user is not None and job.user == me.user):
                continue
            if (job.eligible, at) < (me.eligible, place):
                found.append(job.start)
            as_wide = all(theirs >= mine for theirs, mine in zip(job.asks, me.asks, strict=True))
            if as_wide and me.eligible < job.start < me.start:
                found.append(job.start)
        if self.pending and self.pending.partition == me.partition and (0, len(self.jobs)) < (me.eligible, place):
            found.append(self.until)
        return max(found)

    def own_until(self, place: int) -> int:
        """Until when a job of the same user that was eligible earlier waited in the queue."""
        me, found = self.jobs[place], [-1]
        for at, job in enumerate(self.jobs):
            same = me.user is not None and (job.user, job.partition) == (me.user, me.partition)
            if same and (job.eligible, at) < (me.eligible, place):
                found.append(job.start)
        return max(found)


class Nodes:
    """The machine node by node."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.runs_on = {n: [job for job in log.runs if n in job.on] for n in range(5)}
        self.known = {n for job in log.jobs for n in job.on} | set(log.listed)
        peak = {n: self._peak(n) for n in self.known}
        self.size = {n: self._size(n, peak) for n in self.known}

    def held(self, node: int, second: int) -> Amounts:
        """What jobs hold of a node."""
        live = [job for job in self.runs_on[node] if job.start <= second < job.end]
        return sum(job.gpus for job in live), sum(job.cpus for job in live)

    def _peak(self, node: int) -> Amounts:
        held = [self.held(node, second) for second in range(self.log.first, self.log.until)]
        return max((gpus for gpus, _ in held), default=0), max((cpus for _, cpus in held), default=0)

    def _size(self, node: int, peak: dict[int, Amounts]) -> Amounts:
        """As listed and never less than was held; CPUs that no list says are those of the largest node with as many
        GPUs."""
        if self.log.listed:
            return tuple(map(max, peak[node], self.log.listed.get(node, (0, 0))))  # type: ignore[return-value]
        gpus, cpus = peak[node]
        return gpus, max(peak[n][1] for n in self.known if peak[n][0] == gpus) if gpus else cpus

    def pool(self, partition: str) -> set[int]:
        """The nodes that a partition's jobs may use: those seen with them, and where these are few, those of partitions
        that share one."""
        named = {job.partition for job in self.log.jobs} | ({self.log.pending.partition} if self.log.pending else set())
        seen = {p: Counter(n for job in self.log.runs if job.partition == p for n in job.on) for p in "pq"}
        mine = seen[partition]
        if len(named) == 1 or not mine:
            return self.known
        once = sum(times == 1 for times in mine.values())
        if 1 - once / mine.total() >= 0.9:
            return set(mine)
        return set(mine).union(*(set(other) for other in seen.values() if set(other) & set(mine)))

    def state(self, node: int, second: int) -> str:
        """'in service', 'out' (of service) or 'taken' by a job that the log does not show."""
        runs = self.runs_on[node]
        if not runs:
            return "out"
        if any(job.start <= second < job.end for job in runs):
            return "in service"
        ended = [job.end for job in runs if job.end <= second]
        started = [job.start for job in runs if job.start > second]
        if not started and not self.log.pending:
            return "taken"
        begin = max(ended) if ended else self.log.first
        end = min(started) if started else self.log.until
        return "out" if end - begin > self.log.window else "in service"

    def free(self, node: int, second: int, in_service: bool) -> Amounts:
        """What is free on a node: in service alone, or as if it always were."""
        state = self.state(node, second)
        if state == "taken" or (state == "out" and in_service):
            return 0, 0
        held = self.held(node, second)
        return self.size[node][0] - held[0], self.size[node][1] - held[1]

    def fits(self, job: Job, second: int, in_service: bool) -> str:
        """'full', 'fragmented' or 'fits'. A node smaller than the job's share of it is of no use."""
        usable = [n for n in self.pool(job.partition) if self.size[n][0] >= job.gpus and self.size[n][1] >= job.cpus]
        free = [self.free(n, second, in_service) for n in usable]
        nodes, gpus, cpus = job.asks
        if sum(g for g, _ in free) < gpus or sum(c for _, c in free) < cpus:
            return "full"
        return "fits" if sum(g >= job.gpus and c >= job.cpus for g, c in free) >= nodes else "fragmented"

    def plenty(self, job: Job, second: int) -> bool:
        """Whether as much is free as all jobs in the queue ask for."""
        free = [self.free(n, second, in_service=True) for n in self.pool(job.partition)]
        asked = self.log.queue(second, job.partition)
        return all(sum(f[i] for f in free) >= sum(ask[i + 1] for ask in asked) for i in (0, 1))

    def is_mostly_own(self, job: Job, second: int, knows_cpus: bool) -> bool:
        """Whether the user's jobs of the partition hold half of what its nodes have."""
        pool = self.pool(job.partition)
        nodes, gpus, cpus = self.log.held_by(job.user, job.partition, second)
        if job.gpus:
            held, whole = gpus, sum(self.size[n][0] for n in pool)
        elif knows_cpus:
            held, whole = cpus, sum(self.size[n][1] for n in pool)
        else:
            held, whole = nodes, len(pool)
        return job.user is not None and whole > 0 and 2 * held >= whole


class Counts:
    """The whole machine by one amount: place 0 nodes, 1 GPUs, 2 CPUs in `asks`. whole: declared, or 0."""

    def __init__(self, log: Log, declared: tuple[int, int, int], day: int, pressed: int) -> None:
        self.log = log
        self.last = max(job.end for job in log.runs)  # what was in service then, still is
        span = range(log.first, self.last + 1)
        used = [{second: self.used(second, i) for second in span} for i in range(3)]
        # The nodes that are declared are not fewer because jobs, which may share them, hold more of them.
        self.whole = [
            max(declared[i], max(used[i].values())) if i or not declared[0] else declared[0] for i in range(3)
        ]
        waiting = {second: log.users_waiting(second) for second in span}
        self.there = [
            in_service(used[i], waiting, self.whole[i], bool(log.pending), day=day, pressed=pressed) for i in range(3)
        ]

    def used(self, second: int, i: int) -> int:
        """What runs hold."""
        return sum(job.asks[i] for job in self.log.runs if job.start <= second < job.end)

    def amount(self, job: Job) -> int:
        """What a job is asked about: GPUs, else CPUs, else nodes."""
        return 1 if job.gpus else 2 if job.cpus else 0

    def free(self, i: int, second: int, in_service: bool) -> int:
        """What is free: of what is in service, or of all."""
        whole = max(self.whole[i], self.used(second, i))
        there = min(self.there[i][min(second, self.last)], whole) if in_service else whole
        return there - self.used(second, i)

    def fits(self, job: Job, second: int, in_service: bool) -> str:
        """'full' or 'fits': whatever is enough is taken to fit."""
        i = self.amount(job)
        return "full" if self.free(i, second, in_service) < job.asks[i] else "fits"

    def plenty(self, job: Job, second: int) -> bool:
        """Whether as much is free as all jobs in the queue ask for."""
        i = self.amount(job)
        return self.free(i, second, in_service=True) >= sum(ask[i] for ask in self.log.queue(second, None))

    def is_mostly_own(self, job: Job, second: int, knows_cpus: bool) -> bool:
        """Whether the user's jobs of the partition hold half of the machine."""
        i = 1 if job.gpus else 2 if knows_cpus else 0
        held = self.log.held_by(job.user, job.partition, second)[i]
        return job.user is not None and self.whole[i] > 0 and 2 * held >= self.whole[i]


def cause(log: Log, machine: Nodes | Counts, place: int, second: int, knows_cpus: bool) -> str:
    """The first cause that holds for a waiting job in one second."""
    job = log.jobs[place]
    if second < job.eligible:
        return "held"
    if second < log.whole_from:
        return "unknown"
    if job.partition == "p" and job.gpus and log.held_by_group(second) + job.asks[1] > log.quota:
        return "own_limit"
    now = machine.fits(job, second, in_service=True)
    if now != "fits":
        if machine.is_mostly_own(job, second, knows_cpus):
            return "own_jobs"
        were_all_in_service = machine.fits(job, second, in_service=False)
        return {"full": "cluster_full", "fits": "nodes_down", "fragmented": "fragmented"}[were_all_in_service]
    if second < log.others_until(place) and not machine.plenty(job, second):
        return "behind"
    return "own_jobs" if second < log.own_until(place) else "unknown"


def causes(log: Log, machine: Nodes | Counts, knows_cpus: bool) -> list[Counter[str]]:
    """Of each job, the seconds of each cause."""
    return [
        Counter(cause(log, machine, place, second, knows_cpus) for second in range(job.submit, job.start))
        for place, job in enumerate(log.jobs)
    ]
