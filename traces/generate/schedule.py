"""A small EASY backfill scheduler over whole nodes, which gives the generated jobs their start times and nodes.

The queue is sorted by eligible time minus priority, at 21 points per hour. All jobs age at the same rate, so the order
of two waiting jobs never changes. The head of the queue gets a reservation based on time limits. Another job may start
earlier if it fits now, and either ends by its limit before the reservation or leaves enough nodes free. A pass runs at
every event and tries at most `LOOK_AHEAD` queued jobs. A failed node stays down for a few hours.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left, insort
from dataclasses import dataclass, field

import numpy as np

from traces.arrays import Int64s
from traces.generate.workload import (
    DEPENDS,
    FOLLOWS,
    FREE,
    NODE_FAIL,
    REQUEUE_HOLD_S,
    REQUEUED,
    THROTTLED,
    GeneratedDemand,
)

LOOK_AHEAD = 100
PRIORITY_POINTS_AN_HOUR = 21
BY_SUBMIT, BY_MAIN, BY_BACKFILL = range(3)
_END, _REPAIR, _ARRIVE, _CANCEL = range(4)
NEVER = -1


@dataclass
class Schedule:
    """The schedule of the records: arrays (records,), times in epoch seconds, -1 for never.

    The nodes of record j are `node_list[first_node[j] : first_node[j] + nodes[j]]`.
    """

    submit_s: Int64s
    eligible_s: Int64s
    start_s: Int64s
    end_s: Int64s  # end of the run, or of a record cancelled while pending
    started_by: Int64s
    first_node: Int64s  # offset of its nodes in `node_list`, -1 if it never started
    node_list: Int64s


@dataclass
class _Cluster:
    """The state of the run, in lists and arrays, because numpy's item access is slow in a loop."""

    free_nodes: list[int]
    repair_s: int
    queue: list[tuple[int, int]] = field(default_factory=list)  # (key, record), sorted
    running: list[tuple[int, int]] = field(default_factory=list)  # (end by limit, record), sorted
    events: list[tuple[int, int, int]] = field(default_factory=list)  # (time, kind, record or node)


def schedule(jobs: GeneratedDemand, *, nodes: int, until_s: int, repair_s: int = 4 * 3600) -> Schedule:
    """Run the queue until `until_s`. Later starts and ends stay undecided: their entries are -1 or after `until_s`."""
    return _Run(jobs, nodes, repair_s).run(until_s)


class _Run:
    def __init__(self, jobs: GeneratedDemand, nodes: int, repair_s: int) -> None:
        self.count = len(jobs)
        self.size, self.limit, self.runtime, self.link, self.outcome, self.patience, self.priority = (
            array("q", column.tolist())
            for column in (
                jobs.nodes,
                jobs.limit_s,
                jobs.run_s,
                jobs.link,
                jobs.outcome,
                jobs.patience_s,
                jobs.priority,
            )
        )
        self.submit = array("q", jobs.submit_s.tolist())
        never = array("q", [NEVER]) * self.count
        self.eligible, self.start, self.end, self.by, self.first = (array("q", never) for _ in range(5))
        self.node_list = array("q")
        self.next = array("q", never)
        for record in np.flatnonzero(jobs.previous >= 0).tolist():
            self.next[int(jobs.previous[record])] = record
        order = np.argsort(jobs.submit_s, kind="stable")
        self.arrivals: list[int] = order[jobs.link[order] == FREE].tolist()
        self.cluster = _Cluster(list(range(nodes)), repair_s)

    def run(self, until_s: int) -> Schedule:
        events, arrivals, position = self.cluster.events, self.arrivals, 0
        far = until_s + 1
        while True:
            next_arrival = self.submit[arrivals[position]] if position < len(arrivals) else far
            now = min(next_arrival, events[0][0] if events else far)
            if now > until_s:
                break
            newcomers: list[tuple[int, int]] = []
            full = False
            while events and events[0][0] == now:
                _, kind, record = heapq.heappop(events)
                full |= self._handle(now, kind, record, newcomers)
            while position < len(arrivals) and self.submit[arrivals[position]] == now:
                self._arrive(now, arrivals[position], newcomers)
                position += 1
            self._pass(now, newcomers, full)
        submit, eligible, start, end, by, first, held = (
            np.array(column, dtype=np.int64)
            for column in (self.submit, self.eligible, self.start, self.end, self.by, self.first, self.node_list)
        )
        return Schedule(submit, eligible, start, end, started_by=by, first_node=first, node_list=held)

    def _handle(self, now: int, kind: int, record: int, newcomers: list[tuple[int, int]]) -> bool:
        """Apply one event; return whether nodes became free or the head of the queue may have changed."""
        cluster = self.cluster
        if kind == _END:
            cluster.running.pop(bisect_left(cluster.running, (self.start[record] + self.limit[record], record)))
            held = self.node_list[self.first[record] : self.first[record] + self.size[record]]
            if self.outcome[record] == NODE_FAIL:
                heapq.heappush(cluster.events, (now + cluster.repair_s, _REPAIR, held.pop()))
            for node in held:
                heapq.heappush(cluster.free_nodes, node)
            self._release(now, record)
            return True
        if kind == _REPAIR:
            heapq.heappush(cluster.free_nodes, record)
            return True
        if kind == _ARRIVE:
            self._arrive(now, record, newcomers)
            return False
        return self._cancel(now, record)

    def _arrive(self, now: int, record: int, newcomers: list[tuple[int, int]]) -> None:
        """Make a record eligible and add it to the queue."""
        self.eligible[record] = now
        key = (now - self.priority[record] * 3600 // PRIORITY_POINTS_AN_HOUR, record)
        insort(self.cluster.queue, key)
        newcomers.append(key)
        if self.patience[record] >= 0:
            heapq.heappush(self.cluster.events, (now + max(1, self.patience[record]), _CANCEL, record))

    def _cancel(self, now: int, record: int) -> bool:
        """Cancel a pending record, as its user gives up; return whether it was the head of the queue."""
        if self.start[record] != NEVER:
            return False
        queue = self.cluster.queue
        key = (self.eligible[record] - self.priority[record] * 3600 // PRIORITY_POINTS_AN_HOUR, record)
        place = bisect_left(queue, key)
        queue.pop(place)
        self.end[record] = now
        self._release(now, record)
        return place == 0

    def _release(self, now: int, record: int) -> None:
        """Make the record that waits for this one (dependency, requeue) eligible, if there is one."""
        follower = self.next[record]
        if follower == NEVER:
            return
        link, when = self.link[follower], now
        if link in (FOLLOWS, REQUEUED):
            self.submit[follower] = now + (5 if link == FOLLOWS else 1)
            when = self.submit[follower] + (REQUEUE_HOLD_S if link == REQUEUED else 0)
        elif link in (DEPENDS, THROTTLED):
            when = max(now, self.submit[follower])
        heapq.heappush(self.cluster.events, (when, _ARRIVE, follower))

    def _pass(self, now: int, newcomers: list[tuple[int, int]], full: bool) -> None:
        """Start all records that may start now.

        Unless nodes became free or the head is new, only newcomers need to be tried.
        """
        cluster = self.cluster
        queue, size = cluster.queue, self.size
        if not queue or not cluster.free_nodes:
            return
        full = full or queue[0] in newcomers
        while queue and size[queue[0][1]] <= len(cluster.free_nodes):
            _, record = queue.pop(0)
            self._start(now, record, BY_SUBMIT if self.submit[record] == now else BY_MAIN)
        if not queue or not cluster.free_nodes:
            return
        shadow, spare = self._reservation(now, size[queue[0][1]])
        tried = queue[1:LOOK_AHEAD] if full else [key for key in newcomers if queue[0] < key <= queue[-1]]
        free, limit, start = len(cluster.free_nodes), self.limit, self.start
        for key in tried:
            record = key[1]
            need = size[record]
            if need > free or start[record] != NEVER:
                continue
            if now + limit[record] > shadow:
                if need > spare:
                    continue
                spare -= need
            queue.pop(bisect_left(queue, key))
            self._start(now, record, BY_SUBMIT if self.submit[record] == now else BY_BACKFILL)
            free -= need
            if free == 0:
                return

    def _reservation(self, now: int, need: int) -> tuple[int, int]:
        """Return when the head of the queue can start by the limits of running jobs, and the nodes left over then."""
        available = len(self.cluster.free_nodes)
        for end, record in self.cluster.running:
            available += self.size[record]
            if available >= need:
                return max(end, now + 1), available - need
        return 1 << 60, 0  # possible only until a repair: any job may backfill

    def _start(self, now: int, record: int, by: int) -> None:
        cluster = self.cluster
        self.start[record], self.by[record], self.first[record] = now, by, len(self.node_list)
        self.node_list.extend(sorted(heapq.heappop(cluster.free_nodes) for _ in range(self.size[record])))
        insort(cluster.running, (now + self.limit[record], record))
        self.end[record] = now + self.runtime[record]
        heapq.heappush(cluster.events, (self.end[record], _END, record))
