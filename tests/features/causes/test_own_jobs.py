"""Waits for a user's own jobs, by hand: what is taken for one, on both sides of each threshold, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from features.causes.own_jobs import FEW_ALIKE, LONG, MANY_ALIKE, REFILL_S, SERIAL_NODE
from tests.features.toy import job
from tests.features.waits import delays, on, spent
from traces.units import DAY_S, HOUR_S

ROOM = {"nodes": 40, "gpus_per_node": 1}  # far more than is asked for
# The whole machine is in use the day before and two days after, so it is all in service between.
WIDE = [
    job(f"wide{day}", day, day, day + 7200, 40, nodes=40, user_name="root", partition="p")
    for day in (-DAY_S, 2 * DAY_S)
]
Row = dict[str, Any]


def in_turn(
    jobs: int, *, at_once: int = 1, gap: int = 10, run: int = HOUR_S, name: str | None = "dimer.{}", **more: Any
) -> list[Row]:
    """Jobs submitted at once, `at_once` of which run at a time; each starts `gap` s after another ended."""
    rows = []
    for i in range(jobs):
        start = i // at_once * (run + gap)
        of = {"nodes": 1, "user_name": "ann", "job_name": name and name.format(i + 1), "partition": "p"}
        rows.append(job(str(i), 0, start, start + run, 1, **{**of, **more}))
    return rows


def total(found: dict[str, Row], cause: str) -> int:
    return sum(row[f"{cause}_s"] or 0 for row in found.values())


def test_numbered_jobs_of_one_name_in_turn_likely_depend_on_each_other() -> None:
    found = delays(in_turn(6), declared=ROOM)
    for i in range(1, 6):
        assert spent(found[str(i)]) == {"dependency": i * 3610 - 10, "unknown": 10}
        assert found[str(i)]["main_cause"] == "likely dependency"
    said = "started 10 s after job 1 of the same user and name ended; it would have fitted earlier"
    assert found["2"]["evidence"] == said and found["0"]["evidence"] is None


@pytest.mark.parametrize(("gap", "depends"), [(REFILL_S, True), (REFILL_S + 1, False)])
def test_a_job_that_starts_too_late_after_another_did_not_wait_for_it(gap: int, depends: bool) -> None:
    assert (total(delays(in_turn(6, gap=gap), declared=ROOM), "dependency") > 0) == depends


@pytest.mark.parametrize(("alike", "depends"), [(FEW_ALIKE, True), (FEW_ALIKE - 1, False)])
def test_after_short_waits_several_jobs_must_do_the_same(alike: int, depends: bool) -> None:
    rows = in_turn(alike + 1, run=LONG * REFILL_S // (alike + 1) - 20)
    assert (total(delays(rows, declared=ROOM), "dependency") > 0) == depends


@pytest.mark.parametrize(("run", "depends"), [(LONG * REFILL_S, True), (LONG * REFILL_S - 1, False)])
def test_after_a_long_wait_one_job_is_enough(run: int, depends: bool) -> None:
    assert (total(delays(in_turn(2, run=run), declared=ROOM), "dependency") > 0) == depends


def test_a_job_that_would_not_have_fitted_waited_for_room() -> None:
    rows = [*in_turn(6), job("big", -10, -10, 6 * 3610, 39, nodes=39, user_name="bob", partition="p", job_name="big")]
    found = delays(rows, declared={"nodes": 40, "gpus_per_node": 1})
    assert total(found, "dependency") == 0 and found["3"]["main_cause"] == "cluster full"


@pytest.mark.parametrize(("jobs", "cause"), [(SERIAL_NODE, "own_jobs"), (SERIAL_NODE - 1, "dependency")])
def test_jobs_of_a_name_on_one_node_alone_wait_for_the_node(jobs: int, cause: str) -> None:
    rows = in_turn(jobs)
    others = [job(f"o{i}", 0, 0, 60, 1, nodes=1, user_name="bob", partition="p") for i in range(8)]
    placed = [row for i in range(jobs) for row in on(str(i), "n0")]
    placed += [row for i in range(8) for row in on(f"o{i}", f"n{i + 1}")]
    found = delays([*rows, *others, OPEN_END], [*placed, *on("open", "n1", gpus=0)])
    last = found[str(jobs - 1)]
    assert spent(last) == {cause: (jobs - 1) * 3610 - 10, "unknown": 10}
    assert ("all jobs of that name ran on one node" in last["evidence"]) == (cause == "own_jobs")


OPEN_END = job("open", 0, 0, None, 0, state="RUNNING", nodes=1, partition="p", user_name="root")


@pytest.mark.parametrize("name", ["case.{}", "{}", None])
def test_four_thousand_jobs_of_one_user_on_one_node_of_46_wait_for_each_other(name: str | None) -> None:
    """The rest of the machine is 88 % empty."""
    rows, placed = in_turn(4000, run=58, gap=2, name=name), []
    for i in range(4000):
        placed += on(str(i), "n0")
    for i in range(45):
        end = 4000 * 60 if i < 4 else 100
        rows.append(job(f"o{i}", 0, 0, end, 1, nodes=1, user_name=f"u{i}", partition="p"))
        placed += on(f"o{i}", f"n{i + 1}")
    found = delays([*rows, OPEN_END], [*placed, *on("open", "n1", gpus=0)])
    waited = sum(row["wait_s"] or 0 for row in found.values())
    assert total(found, "own_jobs") > 0.999 * waited
    assert total(found, "cluster_full") == total(found, "behind") == total(found, "dependency") == 0
    assert {row["main_cause"] for row in found.values() if (row["wait_s"] or 0) > 600} == {"own jobs"}


@pytest.mark.parametrize(
    ("at_once", "name", "cause"),
    [
        (1, "dimer.{}", "likely dependency"),
        (1, None, "own jobs"),
        (3, "dimer.{}", "own jobs"),
    ],
)
def test_by_counts_a_users_long_queue_shows_no_nodes_out_of_service(at_once: int, name: str | None, cause: str) -> None:
    """The log shows three of 40 nodes in use at the most, and up to 200 jobs of one user in the queue."""
    found = delays(in_turn(200, at_once=at_once, name=name), declared=ROOM)
    assert {row["main_cause"] for row in found.values() if row["wait_s"]} == {cause}
    assert total(found, "nodes_down") == 0


@pytest.mark.parametrize(("jobs", "is_inferred"), [(3 + MANY_ALIKE, True), (2 + MANY_ALIKE, False)])
def test_several_at_a_time_must_show_ten_times(jobs: int, is_inferred: bool) -> None:
    found = delays([*in_turn(jobs, at_once=3, name="{}"), *WIDE], declared=ROOM)
    said = "started 10 s after the same user's job 8 ended: 3 at a time; more would fit"
    assert found["9"]["evidence"] == (said if is_inferred else None)
    assert (found["9"]["own_jobs_s"] == found["9"]["wait_s"] - 10) == is_inferred


def test_tasks_of_an_array_wait_for_its_own_limit() -> None:
    found = delays([*in_turn(30, at_once=4, array_job_id="7", name="sweep"), *WIDE], declared=ROOM)
    assert spent(found["9"])["array_limit"] == 2 * 3610 - 10 == found["9"]["wait_s"] - 10
    assert found["9"]["evidence"] == "26 tasks of its array started just after another one ended, 4 at a time"
    assert total(found, "own_jobs") <= 30 * 10 and total(found, "dependency") == 0


def test_a_limit_that_three_users_share_is_a_limit_and_no_dependency() -> None:
    rows = []
    for user in ("ann", "bob", "eve"):
        mine = in_turn(12, at_once=2, user_name=user)
        rows += [{**row, "job_key": f"{user}-{row['job_key']}", "job_id": user + row["job_key"]} for row in mine]
    found = delays([*rows, *WIDE], declared=ROOM)
    assert found["eve-7"]["own_limit_s"] == 3 * HOUR_S == found["eve-7"]["wait_s"] - 30
    assert found["eve-7"]["own_limit"] == "2 running jobs per user (inferred)"
    assert total(found, "dependency") == 0 and total(found, "own_jobs") <= 30 * 36  # 10 s after each end


@pytest.mark.parametrize(
    ("held", "nodes", "cause"),
    [(20, 40, "own_jobs"), (19, 40, "cluster_full"), (21, 41, "own_jobs"), (20, 41, "cluster_full")],
)
def test_a_machine_that_one_user_holds_half_of_is_full_of_own_jobs(held: int, nodes: int, cause: str) -> None:
    of: dict[str, Any] = {"partition": "p"}
    rows = [
        job("large", 0, 0, 500, held, nodes=held, user_name="ann", **of),
        job("rest", 0, 0, 500, nodes - held, nodes=nodes - held, user_name="bob", **of),
        job("x", 0, 500, 900, 1, nodes=1, user_name="ann", **of),
        job("y", 0, 500, 900, 1, nodes=1, user_name="eve", **of),
    ]
    found = delays(rows, declared={**ROOM, "nodes": nodes})
    assert spent(found["x"]) == {cause: 500} and spent(found["y"]) == {"cluster_full": 500}


def test_a_narrow_job_waits_behind_a_wide_one_that_collects_nodes() -> None:
    of: dict[str, Any] = {"partition": "p"}
    rows = [
        job("early", 0, 0, 1000, 30, nodes=30, user_name="bob", **of),
        job("wide", 10, 1000, 9000, 40, nodes=40, user_name="eve", **of),
        job("narrow", 20, 9000, 9100, 5, nodes=5, user_name="ann", **of),
    ]
    found = delays(rows, declared=ROOM)
    assert spent(found["wide"]) == {"cluster_full": 990}
    assert spent(found["narrow"]) == {"behind": 980, "cluster_full": 8000}


@pytest.mark.parametrize(
    ("lacking", "cause"), [("job_name", "own_jobs"), ("partition", "dependency"), ("array_job_id", "dependency")]
)
def test_what_a_log_does_not_say_is_inferred_from_the_rest(lacking: str, cause: str) -> None:
    rows = [{**row, lacking: None} for row in (*in_turn(12), *WIDE)]
    found = delays(rows, declared=ROOM)
    assert total(found, cause) == sum(row["wait_s"] for row in found.values()) - 11 * 10
    assert found["5"]["evidence"]


def test_without_users_nothing_is_a_users_own() -> None:
    found = delays([{**row, "user_name": None} for row in (*in_turn(12), *WIDE)], declared=ROOM)
    assert total(found, "dependency") == total(found, "own_jobs") == total(found, "own_limit") == 0
    assert found["5"]["main_cause"] == "unknown"  # more was free than all in the queue asked for


def test_a_reason_of_none_rules_a_dependency_out() -> None:
    rows = in_turn(6)
    said = {row["job_key"]: "None" for row in rows} | {"0": "Dependency"}
    found = delays(rows, reason=said, declared=ROOM)
    assert total(found, "dependency") == 0 < total(found, "own_jobs")
