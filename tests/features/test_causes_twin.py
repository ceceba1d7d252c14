"""The five causes of waits against plain loops: second by second, node by node, and that they add up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features import pools, room
from features.causes import CAUSES, MAIN_CAUSES
from features.usage import Steps
from tests.features.toy import job, random_jobs
from tests.features.waits import delays, on, seconds

placed_jobs = st.lists(
    st.tuples(
        st.integers(0, 60),  # submit
        st.integers(0, 30),  # held
        st.integers(0, 60),  # wait once eligible
        st.integers(0, 60),  # run
        st.integers(1, 3),  # nodes
        st.integers(0, 4),  # GPUs a node
        st.integers(1, 3),  # CPUs a node
        st.sampled_from("pq"),
        st.permutations(range(4)),
    ),
    min_size=1,
    max_size=9,
)


@settings(max_examples=100, deadline=None)
@given(
    rows=placed_jobs,
    window=st.sampled_from((15, 60, 10**6)),
    is_open=st.booleans(),
    quota=st.sampled_from((3, 9)),
    knows_cpus=st.booleans(),
)
def test_causes_are_those_of_a_second_by_second_loop(
    rows: list[tuple[Any, ...]], window: int, is_open: bool, quota: int, knows_cpus: bool
) -> None:
    jobs, placed = [], []
    rows = [(*row[:6], row[6] if knows_cpus else 0, *row[7:]) for row in rows]
    for i, (submit, held, wait, run, nodes, gpus, cpus, partition, order) in enumerate(rows):
        start = submit + held + wait
        both = {"requested_cpus": cpus * nodes, "allocated_cpus": cpus * nodes, "partition": partition, "nodes": nodes}
        jobs.append(job(str(i), submit, start, start + run, gpus * nodes, eligible=submit + held, **both))
        placed += on(str(i), *(f"n{place}" for place in order[:nodes]), gpus=gpus)
    if is_open:
        jobs.append(job("open", 0, None, None, 1, state="PENDING", partition="p"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pools, "WINDOW_S", window)
        got = delays(jobs, placed, quotas={"p": quota})
    for i, expected in slow_causes(rows, window, is_open, quota).items():
        assert seconds(got[str(i)]) == expected
        assert sum(expected) == got[str(i)]["wait_s"]


def slow_causes(rows: list[tuple[Any, ...]], window: int, is_open: bool, quota: int) -> dict[int, tuple[int, ...]]:
    """Seconds held, at a limit, full, fragmented and behind, each second looked at by itself; only p has a quota.

    Over 50 lines: the rules that it holds against the sweep read best in one place.
    """
    runs = [
        (submit + held + wait, submit + held + wait + run, nodes, gpus, cpus, partition, order[:nodes])
        for submit, held, wait, run, nodes, gpus, cpus, partition, order in rows
    ]
    runs_of = {n: [r for r in runs if n in r[6] and r[1] > r[0]] for n in range(4)}
    until = max(max(r[1] for r in runs), 0)
    first = min((r[0] for r in runs if r[1] > r[0]), default=0)
    last = max(r[1] for r in runs)
    usage = {n: [(r[3], r[4], r[0], r[1]) for r in runs_of[n]] for n in range(4)}
    by_counts = not any(runs_of.values())

    def held_on(n: int, t: int) -> tuple[int, int]:
        live = [(g, c) for g, c, a, b in usage[n] if a <= t < b]
        return sum(g for g, _ in live), sum(c for _, c in live)

    peak = {n: [max((held_on(n, t)[k] for t in range(first, last)), default=0) for k in (0, 1)] for n in range(4)}
    size = {
        n: (g, max(c2 for m in range(4) if runs_of[m] and peak[m][0] == g for c2 in (peak[m][1],)) if g else c)
        for n, (g, c) in peak.items()
        if runs_of[n]
    }

    def there(n: int, t: int) -> bool:
        before = [b for _, _, a, b in usage[n] if a <= t]
        after = [a for _, _, a, _ in usage[n] if a > t]
        if any(a <= t < b for _, _, a, b in usage[n]):
            return True
        left = max(before, default=None)
        came = min(after, default=None)
        if left is None:
            return came - first <= window  # type: ignore[operator]
        if came is None:
            return until - left <= window if is_open else False
        return bool(came - left <= window)

    def nodes_of(partition: str) -> set[int]:
        seen = {p: [n for r in runs if r[5] == p and r[1] > r[0] for n in r[6]] for p in "pq"}
        mine = seen[partition]
        if not mine:
            return {*seen["p"], *seen["q"]}
        if 1 - sum(mine.count(n) == 1 for n in mine) / len(mine) >= 0.9:
            return set(mine)
        return set(mine).union(*(set(seen[p]) for p in "pq" if set(seen[p]) & set(mine)))

    found = {}
    for i, (submit, held, wait, _, nodes, gpus, cpus, partition, _) in enumerate(rows):
        counts = [held, 0, 0, 0, 0]
        if by_counts:  # nothing has a length, so nothing is ever held
            continue
        pool = nodes_of(partition)
        for t in range(submit + held, submit + held + wait):
            group = sum(r[2] * r[3] for r in runs if r[5] == "p" and r[0] <= t < r[1])
            free = [
                (size[n][0] - held_on(n, t)[0], size[n][1] - held_on(n, t)[1]) if there(n, t) else (0, 0) for n in pool
            ]
            if partition == "p" and gpus and group + nodes * gpus > quota:
                counts[1] += 1
            elif sum(g for g, _ in free) < nodes * gpus or sum(c for _, c in free) < nodes * cpus:
                counts[2] += 1
            elif sum(g >= gpus and c >= cpus for g, c in free) < nodes:
                counts[3] += 1
            else:
                counts[4] += 1
        found[i] = tuple(counts)
    return found


@settings(max_examples=60, deadline=None)
@given(random_jobs(most=9), st.booleans(), st.sampled_from(({}, {"vc-a": 4})))
def test_causes_add_up_to_the_wait(rows: list[dict[str, Any]], whole_nodes: bool, quotas: dict[str, int]) -> None:
    known: dict[str, Any] = {"nodes": 3, "gpus_per_node": 4} if whole_nodes else {}
    for row in delays(rows, quotas=quotas, **known).values():
        if row["wait_s"] is None or row["wait_s"] < 0:
            assert all(row[name] is None for name in (*CAUSES, "main_cause"))
            continue
        assert sum(seconds(row)) == row["wait_s"] and min(seconds(row)) >= 0
        names = {MAIN_CAUSES[name] for name in CAUSES if row[name] == max(seconds(row)) > 0}
        assert row["main_cause"] in names or (row["main_cause"] is None and row["wait_s"] == 0)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(-3, 3), st.integers(-3, 3)), max_size=12),
    st.integers(0, 4),
    st.integers(0, 4),
)
def test_nodes_with_room_are_those_of_a_loop(changes: list[tuple[int, int, int]], gpus: int, cpus: int) -> None:
    free = [[4, 2, 0], [4, 4, 4]]
    expected = []
    for i in range(len(changes) + 1):
        now = [row[:] for row in free]
        for place, more_gpus, more_cpus in changes[:i]:
            now[0][place] -= more_gpus
            now[1][place] -= more_cpus
        expected.append(sum(g >= gpus and c >= cpus for g, c in zip(*now, strict=True)))
    node, taken_gpus, taken_cpus = np.array(changes, np.int32).reshape(-1, 3).T.copy()
    count = np.zeros(len(changes) + 1, np.int64)
    before = [np.array(row, np.int64) for row in free]
    room.nodes_with_room(node, taken_gpus, taken_cpus, before[0], before[1], gpus, cpus, count)
    assert count.tolist() == expected


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 80), st.integers(1, 30), st.integers(1, 4)), min_size=1, max_size=7),
    st.integers(1, 90),
    st.booleans(),
)
def test_usable_is_the_lesser_of_the_most_before_and_after(
    spans: list[tuple[int, int, int]], window: int, shows_its_end: bool
) -> None:
    start, length, amount = (np.array(column, np.int64) for column in zip(*spans, strict=True))
    used = Steps.of_intervals(start, start + length, amount)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pools, "WINDOW_S", window)
        got = pools.usable(used, shows_its_end)
    level = {t: sum(a for s, n, a in spans if s <= t < s + n) for t in range(-1, 200)}
    first, last = int(used.times[0]), int(used.times[-1])
    for t, value in zip(got.times.tolist(), got.values.tolist(), strict=True):
        end = max(t, min(first + window, last))
        begin = min(t, max(last - window, first)) if shows_its_end else t
        before = max(level[s] for s in range(max(end - window, first - 1), end + 1))
        after = max(level[s] for s in range(begin, min(begin + window, last) + 1))
        assert value == min(before, after)
