"""The twin of the calibrated pass and its three clocks in plain Python: dicts and sorted lists, no arrays.

`informed_start` and `forked_start` receive only the records of the other jobs, so a job's own record cannot leak.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from simulator.recorded.follow import HORIZON_S, TICK_S
from simulator.recorded.forked import OUT_S
from simulator.recorded.record import NEVER
from simulator.recorded.run_times import LAST, LEAST, STEPS, WHOLE
from simulator.recorded.state import RecordedRules


@dataclass(frozen=True)
class PlainRecordedJob:
    """One job of the record; `start_s` is NEVER for a job cancelled in the queue."""

    row: int
    submit_s: int
    start_s: int
    end_s: int
    size: int
    limit_s: int
    user: int
    key: int

    @property
    def rank(self) -> tuple[int, int]:
        """Return its rank in the queue: a higher priority first, then the earlier row."""
        return (-self.key, self.row)

    def asks_no_more(self, other: PlainRecordedJob) -> bool:
        """Whether it has the same user as `other` and asks for neither more nodes nor a longer limit."""
        return self.user == other.user and self.size <= other.size and self.limit_s <= other.limit_s


Records = list[tuple[int, int, int, PlainRecordedJob]]  # second, kind, row, job


@dataclass
class PlainRecordedCluster:
    """The state of a recorded cluster: pending and running jobs, and what was inferred so far."""

    rules: RecordedRules
    pending: list[PlainRecordedJob] = field(default_factory=list)
    running: dict[PlainRecordedJob, int] = field(default_factory=dict)
    could_start: dict[PlainRecordedJob, int] = field(default_factory=dict)
    held: set[PlainRecordedJob] = field(default_factory=set)
    # Finished jobs that still count against their users' limits.
    counted: list[PlainRecordedJob] = field(default_factory=list)
    ceiling: int = NEVER
    first_s: int = 0  # utilities count waiting from here

    @property
    def busy(self) -> int:
        """Return the nodes that running jobs hold."""
        return sum(job.size for job in self.running)

    def over_limit(self, job: PlainRecordedJob, placed: list[PlainRecordedJob]) -> bool:
        """Whether the user's limits hold the job back, counting the jobs placed ahead of it."""
        own = [other for other in (*self.running, *self.counted, *placed) if other.user == job.user]
        nodes = sum(other.size for other in own)
        return len(own) >= self.rules.max_jobs or nodes + job.size > max(self.rules.max_nodes, job.size)

    def rank(self, job: PlainRecordedJob, now: int) -> tuple[int, int]:
        """Its place in the queue at `now`."""
        utility = (job.key + now - self.first_s) / job.limit_s
        scales = (0.0, 1.0, job.size ** (1 / 3), 1 / (max(math.ceil(math.log2(job.size)), 6) - 5))
        return (-int(1e6 * (utility * scales[self.rules.order])), job.row) if self.rules.order else job.rank

    def make_pass(
        self, now: int, usable: int, target: PlainRecordedJob | None = None
    ) -> tuple[bool, list[PlainRecordedJob]]:
        """Make a pass; return whether the target may start, and the queued jobs that may."""
        holds = [(now, max(start + job.limit_s, now + 1), job.size) for job, start in self.running.items()]
        starting: list[PlainRecordedJob] = []
        counted: list[PlainRecordedJob] = []
        queue = sorted([*self.pending, *([target] if target else [])], key=lambda job: self.rank(job, now))
        for at, job in enumerate(queue):
            if job in self.held:
                if self.rules.siblings and target and job.asks_no_more(target):
                    return False, starting
                continue
            if self.over_limit(job, counted):
                if job is target:
                    return False, starting
                self.could_start.pop(job, None)
                continue
            if len(counted) >= self.rules.depth:
                self._give_up(queue[at:], target)
                return False, starting
            if sum(other.user == job.user for other in counted) >= self.rules.user_depth:
                if job is target:
                    return False, starting
                self.could_start.pop(job, None)
                continue
            place = self.earliest(holds, now, usable, job)
            if job is target:
                return place == now, starting
            counted.append(job)
            if place is not None and place <= now + self.rules.plan_s:
                holds.append((place, place + job.limit_s, job.size))
            if place == now:
                starting.append(job)
                self.could_start.setdefault(job, now)
            else:
                self.could_start.pop(job, None)
            full = usable - sum(size for begin, _, size in holds if begin <= now) <= 0
            if full or (place != now and not self.rules.backfill):
                self._give_up(queue[at + 1 :], target)
                return False, starting
        return False, starting

    def _give_up(self, behind: list[PlainRecordedJob], target: PlainRecordedJob | None) -> None:
        """Note that the jobs behind the last planned one may not start."""
        if target is None:
            for other in behind:
                self.could_start.pop(other, None)

    @staticmethod
    def earliest(holds: list[tuple[int, int, int]], now: int, usable: int, job: PlainRecordedJob) -> int | None:
        """Return the first instant from now on at which enough nodes are free for the job's whole limit."""
        edges = sorted({now, *(time for begin, end, _ in holds for time in (begin, end))})
        for begin in edges:
            inside = [begin, *(edge for edge in edges if begin < edge < begin + job.limit_s)]
            if all(usable - sum(s for b, e, s in holds if b <= at < e) >= job.size for at in inside):
                return begin
        return None


def informed_start(others: list[PlainRecordedJob], job: PlainRecordedJob, rules: RecordedRules) -> int:
    """Predict the start of `job`; only its submission, size, limit, user and key are read."""
    twin = PlainRecordedCluster(rules)
    records = _records(others)
    levels: list[tuple[int, int]] = []  # (second, nodes busy after it)
    now = min([*(time for time, *_ in records), job.submit_s]) + 1
    while True:
        submitted = now > job.submit_s
        if submitted:  # jobs behind it cannot delay it
            twin.pending = [other for other in twin.pending if other.rank < job.rank]
        for time, kind, _, other in records:
            if time < now and not (submitted and kind == 1 and other.rank > job.rank):
                _happen(twin, time, kind, other)
        records = [record for record in records if record[0] >= now]
        levels.append((now - 1, twin.busy))
        if _look(twin, levels, now, job if submitted else None) and submitted:
            return now
        last = job.submit_s + HORIZON_S
        if submitted and (not records or now >= last):
            return now
        seconds = [time for time, *_ in records] + ([] if submitted else [job.submit_s])
        now = min([min(seconds) + 1, (now // TICK_S + 1) * TICK_S] + ([last] if submitted else []))


def forked_start(others: list[PlainRecordedJob], job: PlainRecordedJob, rules: RecordedRules) -> int:
    """Predict as `informed_start`, but simulate the others from the submission on; give up after the last record."""
    last = max([time for time, *_ in _records(others)] + [job.submit_s])
    starts, now = forked_starts(others, [job], rules, last + 1, is_recorded=True)
    return starts.get(job, now)


def forked_starts(
    others: list[PlainRecordedJob],
    submitted: list[PlainRecordedJob],
    rules: RecordedRules,
    until_s: int = NEVER,
    *,
    is_recorded: bool = False,
) -> tuple[dict[PlainRecordedJob, int], int]:
    """Return the starts of `submitted` (by rising submission), and the instant of the last pass.

    The simulation ends when the last of them starts or is given up. From the first submission on, the others are
    simulated. There is no pass after `until_s`. Jobs of the record may wait for held siblings, other jobs do not.
    """
    twin = PlainRecordedCluster(rules)
    records, levels, now = _follow(twin, others, submitted[0].submit_s)
    recorded = set(twin.running)  # the jobs that held nodes in the record at `now`
    back_s, last = submitted[0].submit_s + OUT_S, NEVER
    over_s = max((time for time, *_ in _records(others)), default=now)  # nothing after it is recorded
    ended = [job for job in others if job.start_s < NEVER and job.end_s < submitted[0].submit_s]
    coming, starts = list(submitted), dict[PlainRecordedJob, int]()
    while True:
        records, past = _split(records, now)
        for other in [other for other in twin.running if _end_s(other, twin.running[other], ended) < now]:
            del twin.running[other]
            twin.counted.append(other)
        twin.counted = [other for other in twin.counted if other.end_s >= now]  # whose end is not yet recorded
        _tell(twin, past, recorded, levels)
        for job in [job for job in coming if job.submit_s < now]:
            twin.pending.append(coming.pop(coming.index(job)))
            last = job.submit_s + HORIZON_S
        nodes = _most_in_use(levels, rules, min(now, over_s + 1))
        if now < back_s:
            nodes = min(nodes, twin.ceiling)
        placed = twin.make_pass(now, nodes)[1] if nodes > twin.busy else []
        for job in _start(twin, placed, now, [] if is_recorded else submitted):
            if job in submitted:
                starts[job] = now
        times = [_end_s(one, begun, ended) + 1 for one, begun in twin.running.items()]
        times += [records[0][0] + 1] if records else []
        times += [job.submit_s + 1 for job in coming] + [time for time in (back_s, last) if time > now]
        following = min((time for time in times if time < NEVER), default=NEVER)
        if submitted[-1] in starts or (not coming and now >= last) or following > min(until_s, NEVER - 1):
            return starts, now
        now = following


def _follow(
    twin: PlainRecordedCluster, others: list[PlainRecordedJob], until_s: int
) -> tuple[Records, list[tuple[int, int]], int]:
    """Follow the records before `until_s`; return the remaining ones, busy nodes by second, and the next instant."""
    records = _records(others)
    levels: list[tuple[int, int]] = []
    now = min([*(time for time, *_ in records), until_s]) + 1
    while now <= until_s:
        records, past = _split(records, now)
        for time, kind, _, other in past:
            _happen(twin, time, kind, other)
        levels.append((now - 1, twin.busy))
        _look(twin, levels, now, None)
        seconds = [time for time, *_ in records] + [until_s]
        now = min(min(seconds) + 1, (now // TICK_S + 1) * TICK_S)
    return records, levels, now


def _tell(
    twin: PlainRecordedCluster, past: Records, recorded: set[PlainRecordedJob], levels: list[tuple[int, int]]
) -> None:
    """Apply the visible events of the other jobs: arrivals, cancellations, starts of held jobs, and nodes in use."""
    for time, kind, _, other in past:
        if kind == 0:
            recorded.discard(other)
        elif kind == 1:
            twin.pending.append(other)
        elif kind == 2:
            recorded.add(other)
        if kind == 3 or (kind == 2 and other in twin.held):
            pended = other in twin.pending
            twin.pending = [one for one in twin.pending if one is not other]
            if kind == 2 and pended:
                twin.running[other] = time
        levels.append((time, sum(one.size for one in recorded)))


def _start(
    twin: PlainRecordedCluster, placed: list[PlainRecordedJob], now: int, unheld: list[PlainRecordedJob]
) -> list[PlainRecordedJob]:
    """Start and return the placed jobs that wait for no held sibling; jobs in `unheld` never wait for one."""
    started = []
    for one in sorted(placed, key=lambda one: one.rank):
        ahead = [held for held in twin.pending if held in twin.held and held.rank < one.rank]
        if one not in unheld and twin.rules.siblings and any(held.asks_no_more(one) for held in ahead):
            continue
        twin.pending = [other for other in twin.pending if other is not one]
        twin.running[one] = now
        started.append(one)
    return started


def _split(records: Records, now: int) -> tuple[Records, Records]:
    """Return the records at or after `now`, and those before it."""
    return [record for record in records if record[0] >= now], [record for record in records if record[0] < now]


def _end_s(job: PlainRecordedJob, begun: int, ended: list[PlainRecordedJob]) -> int:
    """Return its end: after its run time, not before its recorded end, but earlier if similar jobs run for less."""
    if begun >= job.start_s:
        return job.end_s + begun - job.start_s
    return min(job.end_s, begun + _longest_run_s(job, job.start_s - begun, ended))


def _longest_run_s(job: PlainRecordedJob, early_s: int, ended: list[PlainRecordedJob]) -> int:
    """Return the largest length at which cutting similar runs, each longer by `early_s`, does not raise their mean."""
    own = [other for other in ended if other.user == job.user]
    like = own if len(own) >= LEAST else ended
    if len(like) < LEAST:
        return job.limit_s
    last = sorted(like, key=lambda other: (other.end_s, other.row))[-LAST:]
    runs = sorted(min((other.end_s - other.start_s) * WHOLE // other.limit_s, WHOLE) for other in last)
    runs = [runs[int(len(runs) * (k + 0.5) / STEPS)] for k in range(STEPS)]
    early = max(min(early_s, job.limit_s) * WHOLE // job.limit_s, 1)
    low, high = 0, WHOLE + early  # bisection: cutting at `low` does not raise the mean
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(run + early, middle) for run in runs) <= sum(runs):
            low = middle
        else:
            high = middle - 1
    return low * job.limit_s // WHOLE


def _records(jobs: list[PlainRecordedJob]) -> Records:
    """Return (second, order within it, row, job) of each end, submission, start and cancellation."""
    records = []
    for job in jobs:
        ran = job.start_s < NEVER
        records += [(job.submit_s, 1, job.row, job), (job.start_s, 2, job.row, job)]
        records.append((job.end_s, 0 if ran else 3, job.row, job))
    return sorted((record for record in records if record[0] < NEVER), key=lambda record: record[:3])


def _happen(twin: PlainRecordedCluster, time: int, kind: int, job: PlainRecordedJob) -> None:
    if kind == 0:
        del twin.running[job]
    elif kind == 1:
        twin.pending.append(job)
    else:
        twin.pending = [other for other in twin.pending if other is not job]
        twin.could_start.pop(job, None)
        twin.held.discard(job)
        if kind == 2:
            if twin.rules.overtaken:
                _overtake(twin, time, job)
            twin.running[job] = time


def _overtake(twin: PlainRecordedCluster, time: int, job: PlainRecordedJob) -> None:
    for other in twin.pending:
        if other.rank < job.rank and other.user != job.user:
            could = twin.could_start.get(other, time) < time
            smaller = other.size <= job.size and other.limit_s <= job.limit_s
            if could or (smaller and not twin.over_limit(other, [])):
                twin.held.add(other)


def _look(twin: PlainRecordedCluster, levels: list[tuple[int, int]], now: int, target: PlainRecordedJob | None) -> bool:
    rules = twin.rules
    usable = _most_in_use(levels, rules, now)
    if twin.busy > twin.ceiling:
        twin.ceiling = NEVER
    if rules.stall_s:
        for job in twin.pending:
            if job not in twin.held and now - twin.could_start.get(job, now) >= rules.stall_s:
                twin.ceiling = min(twin.ceiling, twin.busy + job.size - 1)
    return twin.make_pass(now, min(usable, twin.ceiling), target)[0]


def _most_in_use(levels: list[tuple[int, int]], rules: RecordedRules, now: int) -> int:
    if not rules.window_s:
        return rules.nodes
    opened = now - rules.window_s
    level_before = [level for second, level in levels if second < opened][-1:]
    return max([0, *level_before, *(level for second, level in levels if second >= opened)])


def free_starts(jobs: list[PlainRecordedJob], rules: RecordedRules, usable: list[int]) -> dict[PlainRecordedJob, int]:
    """Return the start of each job that ran on `usable` nodes (one value every TICK_S from the first submission)."""
    twin = PlainRecordedCluster(rules)
    starts: dict[PlainRecordedJob, int] = {}
    first, last = jobs[0].submit_s, jobs[-1].submit_s + HORIZON_S
    now = twin.first_s = first
    while now <= last:
        for job in [job for job in twin.running if starts[job] + job.end_s - job.start_s <= now]:
            del twin.running[job]
        gone = {*starts, *(job for job in jobs if job.start_s == NEVER and job.end_s <= now)}
        twin.pending = [job for job in jobs if job.submit_s <= now and job not in gone]
        nodes = usable[min((now - first) // TICK_S, len(usable) - 1)]
        for job in twin.make_pass(now, nodes)[1]:
            if job.start_s < NEVER:
                starts[job] = twin.running[job] = now
        times = [job.submit_s for job in jobs] + [job.end_s for job in jobs if job.start_s == NEVER]
        times += [starts[job] + job.end_s - job.start_s for job in twin.running]
        if any(job not in starts for job in twin.pending):
            times.append(first + ((now - first) // TICK_S + 1) * TICK_S)
        now = min((time for time in times if time > now), default=last + 1)
    return starts
