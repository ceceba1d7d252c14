"""Queues that were closed, by hand: what a maintenance or reservation looks like, and what only resembles one."""

from __future__ import annotations

from typing import Any

import pytest

from features.causes.closures import BURST, JOBS, SPELL_S, USERS
from tests.features.toy import at, job
from tests.features.waits import delays
from traces.units import HOUR_S

ROOM = {"nodes": 20, "gpus_per_node": 1}
Row = dict[str, Any]


def maintenance(spell: int = 5 * HOUR_S, jobs: int = 20, users: int = 20, nodes: int = 1) -> dict[str, Row]:
    """A machine of 20 nodes empties and starts nothing for `spell`, in which jobs wait; then all of them start."""
    rows = [job("before", 0, 0, 100, 20, nodes=20, user_name="root", partition="p")]
    for i in range(jobs):
        of: dict[str, Any] = {"nodes": nodes, "partition": "p", "user_name": (f"u{i % users}" if users else None)}
        rows.append(job(str(i), 0, spell, spell + HOUR_S, nodes, **of))
    return delays(rows, declared=ROOM)


def closed_s(found: dict[str, Row]) -> int:
    return sum(row["reservation_s"] for row in found.values())


def test_a_maintenance_takes_the_wait_of_all_from_when_the_machine_was_empty() -> None:
    found = maintenance()
    assert {found[str(i)]["reservation_s"] for i in range(20)} == {5 * HOUR_S - 100}
    assert found["0"]["cluster_full_s"] == 100 and found["0"]["main_cause"] == "reservation"


@pytest.mark.parametrize(
    ("of", "is_closed"),
    [
        ({"spell": SPELL_S}, True), ({"spell": SPELL_S - 1}, False),
        ({"users": USERS}, True), ({"users": USERS - 1}, False),
        ({"jobs": JOBS}, True), ({"jobs": JOBS - 1}, False),
        ({"users": 0}, True), ({"users": 0, "jobs": JOBS - 1}, False),  # of a log without users
    ],
)  # fmt: skip
def test_a_closed_queue_has_jobs_and_users_that_waited_for_long(of: dict[str, int], is_closed: bool) -> None:
    assert (closed_s(maintenance(**of)) > 0) == is_closed


def half_open(*more: Row, jobs: int = 11) -> dict[str, Row]:
    """Half of the machine is free for five hours, in which the `jobs` of as many users wait; they start slowly then."""
    rows = [job("before", 0, 0, 100, 20, nodes=20, user_name="root", partition="p")]
    for i in range(jobs):
        start = (7 + 2 * i) * HOUR_S
        rows.append(job(str(i), 0, start, start + 60, 1, nodes=1, user_name=f"u{i}", partition="p"))
    return delays([*rows, *more], declared=ROOM)


def started(key: str, hours: float, nodes: int) -> Row:
    """A job that did not wait."""
    begin = round(hours * HOUR_S)
    return job(key, begin, begin, begin + HOUR_S, nodes, nodes=nodes, user_name="w", partition="p")


@pytest.mark.parametrize(("nodes", "is_closed"), [(11, True), (10, True), (0, True)])
def test_an_open_machine_that_starts_nothing_is_closed_whatever_starts_next(nodes: int, is_closed: bool) -> None:
    found = half_open(*([started("next", 5, nodes)] if nodes else []))
    assert (found["3"]["reservation_s"] > 0) == is_closed


@pytest.mark.parametrize(("nodes", "is_closed"), [(10, False), (9, True)])
def test_nodes_collected_for_a_wide_job_are_no_reservation(nodes: int, is_closed: bool) -> None:
    """A narrow job starts now and then, so the queue is not closed to all; then a job of half the machine starts."""
    narrow = [started(f"narrow{i}", 2.4 * i, 1) for i in range(1, 9)]
    filler = started("filler", 5.5, 20 - nodes - 2)  # ends the open spell in either case
    found = half_open(*narrow, started("wide", 5, nodes), filler)
    assert (found["10"]["reservation_s"] > 4 * HOUR_S) == is_closed


@pytest.mark.parametrize(("starts", "is_closed"), [(10, True), (11, False)])
def test_a_queue_that_starts_as_many_jobs_as_wait_is_not_closed(starts: int, is_closed: bool) -> None:
    rows = [job("before", 0, 0, 100, 20, nodes=20, user_name="root", partition="p")]
    rows += [started(f"narrow{i}", 0.1 + 0.4 * i, 1) for i in range(starts)]
    end = 90 * HOUR_S
    for key in ("busy", "more"):
        rows.append({**started(key, 5.5, 8), "end_utc": at(end)})  # from then on the machine is not open
    rows += [job(str(i), 0, end, end + 60, 1, nodes=1, user_name=f"u{i}", partition="p") for i in range(11)]
    found = delays(rows, declared=ROOM)
    assert (found["3"]["reservation_s"] > 0) == is_closed


def test_a_burst_ends_a_closed_queue_of_a_machine_that_is_not_open() -> None:
    """Half of the machine is busy throughout: only that many start at once when it opens shows that it was closed."""
    busy = [job("busy", 0, 0, 9 * HOUR_S, 11, nodes=11, user_name="root", partition="p")]
    for jobs, is_closed in ((BURST, True), (BURST - 1, False)):
        rows = [job("before", 0, 0, 100, 9, nodes=9, user_name="root", partition="p"), *busy]
        for i in range(jobs):
            start = 5 * HOUR_S + i // 9 * 600
            rows.append(job(str(i), 0, start, start + 600, 1, nodes=1, user_name=f"u{i}", partition="p"))
        assert (closed_s(delays(rows, declared=ROOM)) > 0) == is_closed


def test_without_partitions_there_is_one_queue() -> None:
    rows = [job("before", 0, 0, 100, 20, nodes=20, user_name="root")]
    rows += [job(str(i), 0, 5 * HOUR_S, 6 * HOUR_S, 1, nodes=1, user_name=f"u{i}") for i in range(20)]
    assert closed_s(delays(rows, declared=ROOM)) == 20 * (5 * HOUR_S - 100)
