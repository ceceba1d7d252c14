"""The twin of chains with a wanted service, in plain Python: one simulation from the record for every change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from simulator.recorded.follow import HORIZON_S, TICK_S
from simulator.recorded.forked import OUT_S
from simulator.recorded.record import NEVER
from simulator.recorded.state import RecordedRules
from tests.twins.recorded import (
    PlainRecordedCluster,
    PlainRecordedJob,
    _end_s,
    _happen,
    _look,
    _most_in_use,
    _records,
    _split,
    _start,
    _tell,
)

Actions = tuple[list[int], list[int], list[int]]  # limits to submit, positions to cancel and to end
PlainLinkTimes = tuple[int, int, int, int]  # limit, submission, start and end of a link, s


def first_starts(
    others: list[PlainRecordedJob], out: Sequence[int], running: Sequence[PlainRecordedJob],
    queued: Sequence[PlainRecordedJob], now: int, rules: RecordedRules,
) -> tuple[int, list[PlainRecordedJob]]:  # fmt: skip
    """When the first of `queued` starts, and those that start then; the rows `out` of the record are removed at `now`.

    Links (`running`, `queued`) have their start and end, and 0 and their limit.
    """
    twin, levels = PlainRecordedCluster(rules), list[tuple[int, int]]()
    records = _records(others)
    at = records[0][0] + 1
    while records and at < now:
        records, past = _split(records, at)
        for time, kind, _, other in past:
            _happen(twin, time, kind, other)
        levels.append((at - 1, twin.busy))
        _look(twin, levels, at, None)
        at = min(records[0][0] + 1, (at // TICK_S + 1) * TICK_S) if records else NEVER
    records, past = _split(records, now)
    for time, kind, _, other in past:
        _happen(twin, time, kind, other)
    levels.append((now - 1, twin.busy))
    recorded = set(twin.running)
    for row in out:
        _remove(twin, row)
    records = [record for record in records if record[2] not in out or record[1] != 1]
    coming = {record[2] for record in records if record[1] == 1}
    was_submitted = {job.row for job in others if job.submit_s < now}
    records = [record for record in records if record[2] not in out or record[2] in was_submitted | coming]
    twin.running.update({link: link.start_s for link in running})
    if at == now:
        _look(twin, levels, now, None)
    twin.pending += queued
    return _forked(twin, records, levels, recorded, others, queued, now)


def _remove(twin: PlainRecordedCluster, row: int) -> None:
    twin.running = {job: start for job, start in twin.running.items() if job.row != row}
    twin.pending = [job for job in twin.pending if job.row != row]


def _forked(
    twin: PlainRecordedCluster, records: list[tuple[int, int, int, PlainRecordedJob]], levels: list[tuple[int, int]],
    recorded: set[PlainRecordedJob], others: list[PlainRecordedJob], queued: Sequence[PlainRecordedJob], left: int,
) -> tuple[int, list[PlainRecordedJob]]:  # fmt: skip
    """Simulate from `left`, when the cluster leaves the record, until the first of `queued` starts."""
    ended = [job for job in others if job.start_s < NEVER and job.end_s < left]
    over_s, last = max(time for time, *_ in _records(others)), queued[0].submit_s + HORIZON_S
    now = left + 1
    while now <= last:
        records, past = _split(records, now)
        for job in [job for job in twin.running if _end_s(job, twin.running[job], ended) < now]:
            del twin.running[job]
            twin.counted.append(job)
        twin.counted = [job for job in twin.counted if job in others and job.end_s >= now]
        _tell(twin, past, recorded, levels)
        nodes = _most_in_use(levels, twin.rules, min(now, over_s + 1))
        nodes = min(nodes, twin.ceiling) if now < left + OUT_S else nodes
        placed = twin.make_pass(now, nodes)[1] if nodes > twin.busy else []
        begun = [job for job in _start(twin, placed, now, list(queued)) if job in queued]
        if begun:
            return now, begun
        times = [_end_s(job, start, ended) + 1 for job, start in twin.running.items()]
        times += [records[0][0] + 1] if records else []
        times += [time for time in (left + OUT_S, last) if time > now]
        now = min((time for time in times if time < NEVER), default=NEVER)
    return last, [queued[0]]


@dataclass(eq=False)
class PlainLink:
    """A link of the twin's chain."""

    limit_s: int
    submit_s: int
    start_s: int
    end_s: int
    least_s: int | None = None
    nodes: int | None = None

    @property
    def placed_s(self) -> int:
        """The limit with which it is placed."""
        return self.least_s or self.limit_s


def play_plainly(
    others: list[PlainRecordedJob], row: int, next_row: int, rules: RecordedRules, key_at: Callable[[int], int],
    act: Callable[[int, int, int, int], Actions], decision_s: int, until_s: int, least_s: int | None = None,
    listed_s: Sequence[int] = (), nodes: int | None = None,
) -> list[PlainLinkTimes]:  # fmt: skip
    """As `play_links`, in the record."""
    job = next(job for job in others if job.row == row)
    first = PlainLink(job.limit_s, job.submit_s, job.start_s, job.start_s + job.limit_s)
    return play_links(
        first, partial(_first_links, others, job, [row, next_row], rules, key_at), act, decision_s, until_s, least_s,
        listed_s, nodes,
    )  # fmt: skip


def play_links(
    first: PlainLink,
    first_links: Callable[..., tuple[int, list[PlainLink]]],
    act: Callable[[int, int, int, int], Actions],
    decision_s: int,
    until_s: int,
    least_s: int | None = None,
    listed_s: Sequence[int] = (),
    nodes: int | None = None,
) -> list[PlainLinkTimes]:
    """Play one chain until `until_s`; returns its links in order of start.

    first_links(running, queued, now, granted): after each change, when the first of the queued links starts, and those
    that start then; granted: by position in `queued`, the limits that links get when they start. act(decision number,
    queued, running, time to the end of the last link) returns what to submit, cancel and end. least_s: the least limit
    that a link may get, in place of which it gets the longest of `listed_s` with which the same links start then, in
    turn. nodes: of every link but the first.
    """
    started, queued, now = [first], list[PlainLink](), first.start_s
    decisions, due_s, due = 0, NEVER, list[tuple[PlainLink, int]]()  # links that start next, with their limits
    while True:
        end_s = max(link.end_s for link in started)
        ask_s = next(at for at in range(now + 1, now + 1 + decision_s) if (end_s - at) % decision_s == 0)
        now = min(due_s, ask_s)
        if now > until_s:
            return [(link.limit_s, link.submit_s, link.start_s, link.end_s) for link in started]
        if due_s == now:
            for link, limit_s in due:
                queued.remove(link)
                link.limit_s, link.least_s, link.start_s, link.end_s = limit_s, None, now, now + limit_s
                started.append(link)
        else:
            running = [link for link in started if link.end_s >= now]
            submit, cancel, end = act(decisions, len(queued), len(running), end_s - now)
            decisions += 1
            if not (submit or cancel or end):
                continue
            for place in end:
                running[place].end_s = now
            queued = [link for place, link in enumerate(queued) if place not in cancel]
            queued += [PlainLink(limit_s, now, NEVER, NEVER, least_s, nodes) for limit_s in submit]
        begun = partial(first_links, [link for link in started if link.end_s >= now], queued, now)
        due_s, starting = begun({})
        granted = {place: link.placed_s for place, link in enumerate(queued) if link in starting}
        for place in granted:
            link = queued[place]
            for limit_s in sorted(listed_s):
                longer = granted | {place: limit_s}
                if link.placed_s < limit_s <= link.limit_s and begun(longer) == (due_s, starting):
                    granted = longer
        due = [(queued[place], limit_s) for place, limit_s in granted.items()]


def play_oracle_plainly(
    others: list[PlainRecordedJob], row: int, next_row: int, rules: RecordedRules, key_at: Callable[[int], int],
    decision_s: int, links: int,
) -> list[PlainLinkTimes]:  # fmt: skip
    """Play one chain of that many links, each submitted when |its start - the end before| is least; returns its links.

    Every instant between the start and the end of a link is tried, but none up to the end of the link before it.
    """
    job = next(job for job in others if job.row == row)
    started = [PlainLink(job.limit_s, job.submit_s, job.start_s, job.start_s + job.limit_s)]
    while len(started) < links:
        last, best = started[-1], (NEVER, NEVER, NEVER)
        for now in range(last.end_s, last.start_s, -decision_s):
            if len(started) == 1 or now > started[-2].end_s:
                running = [link for link in started if link.end_s >= now]
                queued = [PlainLink(job.limit_s, now, NEVER, NEVER)]
                start_s, _ = _first_links(others, job, [row, next_row], rules, key_at, running, queued, now, {})
                best = min(best, (abs(start_s - last.end_s), start_s, now))
        _, start_s, submit_s = best
        started.append(PlainLink(job.limit_s, submit_s, start_s, start_s + job.limit_s))
    return [(link.limit_s, link.submit_s, link.start_s, link.end_s) for link in started]


def _first_links(
    others: list[PlainRecordedJob], job: PlainRecordedJob, out: list[int], rules: RecordedRules,
    key_at: Callable[[int], int], running: list[PlainLink], queued: list[PlainLink], now: int, granted: dict[int, int],
) -> tuple[int, list[PlainLink]]:  # fmt: skip
    """When the first of the queued links starts, and those that start then; links request what `job` does."""
    if not queued:
        return NEVER, []
    plain = {}
    for place, link in enumerate(running + queued):
        is_queued = link.start_s == NEVER
        limit_s = granted.get(place - len(running), link.placed_s)
        one = replace(
            job, row=10_000 + place, submit_s=link.submit_s, start_s=0 if is_queued else link.start_s,
            end_s=limit_s if is_queued else link.end_s, limit_s=limit_s, key=key_at(link.submit_s),
            size=link.nodes or job.size,
        )  # fmt: skip
        plain[one] = link
    waiting = [one for one, link in plain.items() if link.start_s == NEVER]
    running_now = [one for one, link in plain.items() if link.start_s < NEVER]
    start_s, begun = first_starts(others, out, running_now, waiting, now, rules)
    return start_s, [plain[one] for one in begun]
