"""An outside program: FIFO, EASY and conservative backfill written from their published definition alone.

It shares no code and no data structure with the simulator and reads SWF by itself: jobs are tuples, the running ones
stand in a heap and in a sorted list of expected ends, and the conservative plan is a list of (time, processors free
from then on). The text:

    Queue first come first served by (submit, job id). fifo is strict. easy holds one reservation, for the head, made
    anew at each pass from start + estimate; a candidate starts if it fits now and either ends by the shadow time (<=)
    or fits in the spare at the shadow time, which shrinks as it is used. conservative rebuilds the whole profile in
    queue order at every pass. A pass after each single event, ends before submits within a second, or one after all
    events of an instant. A job runs its recorded time even past its request; its expected end is then now.

    python -m tests.simulator.flat.by_the_text TRACE.swf.gz fifo|easy|conservative limit|exact event|instant [jobs]
"""

from __future__ import annotations

import bisect
import gzip
import heapq
import sys
from pathlib import Path

SCHEDULERS = ("fifo", "easy", "conservative")
Job = tuple[int, int, int, int, int]  # submit, id, processors, run, request


def jobs_of(text: str) -> list[Job]:
    """Jobs with a run time, in queue order; processors requested, else allocated; request, else the run time."""
    jobs = []
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith(";"):
            field = [int(float(word)) for word in line.split()]
            size = field[7] if field[7] > 0 else field[4]
            if field[3] >= 0 and size > 0:
                jobs.append((field[1], field[0], size, field[3], field[8] if field[8] > 0 else max(field[3], 1)))
    return sorted(jobs)


def max_procs(text: str) -> int:
    for line in text.splitlines():
        name, _, value = line.lstrip("; ").partition(":")
        if name.strip() == "MaxProcs":
            return int(value)
    raise ValueError("the header has no MaxProcs")


class Machine:
    def __init__(self, jobs: list[Job], processors: int, algorithm: str, exact: bool) -> None:
        self.jobs, self.idle, self.exact = jobs, processors, exact
        self.schedule = {"fifo": self.fifo, "easy": self.easy, "conservative": self.conservative}[algorithm]
        self.queue: list[int] = []
        self.ends: list[tuple[int, int]] = []  # heap of (end, job)
        self.expected: list[tuple[int, int]] = []  # sorted (expected end, job)
        self.began = [-1] * len(jobs)

    def estimate(self, job: int) -> int:
        return self.jobs[job][3 if self.exact else 4]

    def launch(self, job: int, now: int) -> None:
        self.idle -= self.jobs[job][2]
        self.began[job] = now
        heapq.heappush(self.ends, (now + self.jobs[job][3], job))
        bisect.insort(self.expected, (now + self.estimate(job), job))

    def retire(self) -> None:
        _, job = heapq.heappop(self.ends)
        self.idle += self.jobs[job][2]
        del self.expected[bisect.bisect_left(self.expected, (self.began[job] + self.estimate(job), job))]

    def run(self, each_event: bool) -> list[int]:
        arrived = 0
        while arrived < len(self.jobs) or self.ends:
            next_end = self.ends[0][0] if self.ends else float("inf")
            next_submit = self.jobs[arrived][0] if arrived < len(self.jobs) else float("inf")
            now = int(min(next_end, next_submit))
            if each_event:
                if next_end == now:
                    self.retire()
                else:
                    self.queue.append(arrived)
                    arrived += 1
            else:
                while self.ends and self.ends[0][0] == now:
                    self.retire()
                while arrived < len(self.jobs) and self.jobs[arrived][0] == now:
                    self.queue.append(arrived)
                    arrived += 1
            self.schedule(now)
        return self.began

    def fifo(self, now: int) -> None:
        while self.queue and self.jobs[self.queue[0]][2] <= self.idle:
            self.launch(self.queue.pop(0), now)

    def easy(self, now: int) -> None:
        self.fifo(now)
        if len(self.queue) < 2 or not self.idle:
            return
        wanted = self.jobs[self.queue[0]][2]
        then = self.idle
        shadow = None
        for end, job in self.expected:
            when = max(end, now)
            if shadow is not None and when > shadow:
                break
            then += self.jobs[job][2]
            if shadow is None and then >= wanted:
                shadow = when
        assert shadow is not None
        spare = then - wanted
        waiting = [self.queue[0]]
        for job in self.queue[1:]:
            size = self.jobs[job][2]
            if size <= self.idle and now + self.estimate(job) <= shadow:
                self.launch(job, now)
            elif size <= self.idle and size <= spare:
                spare -= size
                self.launch(job, now)
            else:
                waiting.append(job)
        self.queue = waiting

    def conservative(self, now: int) -> None:
        if not self.queue or min(self.jobs[job][2] for job in self.queue) > self.idle:
            return  # whatever the plan says, nobody can start
        plan = [[now, self.idle]]
        for end, job in self.expected:
            if end > plan[-1][0]:
                plan.append([end, plan[-1][1]])
            plan[-1][1] += self.jobs[job][2]
        waiting = []
        for place, job in enumerate(self.queue):
            if not self.idle:
                waiting += self.queue[place:]
                break
            size, length = self.jobs[job][2], self.estimate(job)
            first = self.earliest(plan, size, length)
            begin = plan[first][0]
            self.reserve(plan, first, size, length)
            if begin == now and size <= self.idle:
                self.launch(job, now)
            else:
                waiting.append(job)
        self.queue = waiting

    @staticmethod
    def earliest(plan: list[list[int]], size: int, length: int) -> int:
        """The first step of the plan at which the job could begin and stay."""
        for first, (begin, free) in enumerate(plan):
            if free < size:
                continue
            for time, later in plan[first + 1 :]:
                if time >= begin + length:
                    return first
                if later < size:
                    break
            else:
                return first
        raise AssertionError("larger than the machine")

    @staticmethod
    def reserve(plan: list[list[int]], first: int, size: int, length: int) -> None:
        end = plan[first][0] + length
        after = bisect.bisect_left(plan, end, key=lambda step: step[0])
        if after == len(plan) or plan[after][0] != end:
            plan.insert(after, [end, plan[after - 1][1]])
        for step in plan[first:after]:
            step[1] -= size


def starts_of(jobs: list[Job], processors: int, algorithm: str, estimate: str, each: str) -> list[int]:
    """The start of each job, in queue order."""
    return Machine(jobs, processors, algorithm, estimate == "exact").run(each == "event")


if __name__ == "__main__":
    path, algorithm, estimate, each, *most = sys.argv[1:]
    content = gzip.decompress(Path(path).read_bytes()).decode()
    jobs = jobs_of(content)[: int(most[0]) if most else None]
    print("job_id,start")
    for job, start in zip(jobs, starts_of(jobs, max_procs(content), algorithm, estimate, each), strict=True):
        print(f"{job[1]},{start}")
