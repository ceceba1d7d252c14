"""The causes of waits, by hand: what the machine, limits and reasons take. The user's own jobs: test_own_jobs."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from features.causes import limits
from features.causes.waits import CAUSES
from features.queueing import from_trace
from features.resources.partition_nodes import nodes_of_partitions
from tests.features.toy import CLUSTER, at, job, trace
from tests.features.waits import OPEN, delays, on, spent
from traces.clusters import ClusterSettings
from traces.units import DAY_S


def test_each_second_goes_to_the_first_cause_that_holds() -> None:
    """Two nodes with 4 GPUs; "x" asks for 4 on one node and has a quota of 6."""
    jobs = [
        job("own", 0, 0, 100, 4, nodes=1, account="a"),
        job("more", 0, 0, 200, 3, nodes=1, account="b"),
        job("left", 0, 100, 300, 2, nodes=1, account="b"),
        job("right", 0, 200, 400, 2, nodes=1, account="b"),
        job("x", 0, 500, 600, 4, nodes=1, account="a", eligible=40),
        job("y", 0, 600, 700, 4, nodes=1, account="b"),
        OPEN,
    ]
    placed = [
        *on("own", "n0", gpus=4), *on("more", "n1", gpus=3), *on("left", "n0", gpus=2), *on("right", "n1", gpus=2),
        *on("x", "n0", gpus=4), *on("y", "n1", gpus=4), *on("open", "n0", gpus=0),
    ]  # fmt: skip
    x = delays(jobs, placed, quotas={"a": 6, "b": 99})["x"]
    # Held to 40; over the quota to 100; 3 of 8 GPUs free to 200; 4 free, but 2 and 2, to 300; then n0 is empty. "y" was
    # eligible before it and asks for 4 too; from 400 on there are 8, enough for both.
    assert spent(x) == {
        "held": 40, "own_limit": 60, "cluster_full": 100, "fragmented": 100, "behind": 100, "unknown": 100
    }  # fmt: skip
    assert (x["wait_s"], x["main_cause"], x["cause_basis"]) == (500, "cluster full", "placements")
    assert (x["pool_nodes"], x["pool_known_by"]) == (2, "seen in use")
    assert x["own_limit"] == "6 GPUs for its group (given)"


def test_a_gang_needs_as_many_nodes_as_it_asks_for() -> None:
    jobs = [job("a", 0, 0, 100, 1, nodes=1), job("gang", 0, 150, 200, 8, nodes=2), OPEN]
    placed = [*on("a", "n1"), *on("gang", "n0", "n1", gpus=4), *on("open", "n0", gpus=0)]
    assert spent(delays(jobs, placed)["gang"]) == {"cluster_full": 100, "unknown": 50}
    jobs[1] = job("gang", 0, 150, 200, 6, nodes=2)  # 5 are free until 100: three on one node and two on the other
    placed = [*on("a", "n1"), *on("gang", "n0", "n1", gpus=3), *on("open", "n0", gpus=0)]
    assert spent(delays(jobs, placed)["gang"]) == {"cluster_full": 100, "unknown": 50}


def test_cpus_that_are_all_taken_leave_no_room_for_a_job_without_gpus() -> None:
    def cpu_job(key: str, start: int, end: int, cpus: int, **more: Any) -> dict[str, Any]:
        return job(key, 0, start, end, 0, nodes=1, requested_cpus=cpus, allocated_cpus=cpus, **more)

    jobs = [cpu_job("a", 0, 100, 8), cpu_job("b", 0, 300, 6), cpu_job("x", 200, 400, 4), cpu_job("c", 0, 150, 2)]
    jobs.append(cpu_job("y", 300, 500, 8))
    jobs.append({**OPEN, "requested_cpus": 0, "allocated_cpus": 1, "cpus": 1})
    placed = [*on("a", "n0", gpus=0), *on("b", "n1", gpus=0), *on("x", "n0", gpus=0), *on("c", "n1", gpus=0)]
    placed += [*on("y", "n1", gpus=0), *on("open", "n2", gpus=0)]
    # n0 and n1 have 8 CPUs, n2 one, taken. Until 100 two or none are free; from then on n0 is.
    assert spent(delays(jobs, placed)["x"]) == {"cluster_full": 100, "unknown": 100}


def test_a_job_waits_for_the_nodes_of_its_own_partition() -> None:
    """Ten jobs show the two nodes of each partition, so an empty node of the other's is of no use."""
    jobs, placed = [OPEN], on("open", "other0", gpus=0)
    for i in range(10):
        for partition in ("mine", "other"):
            key = f"{partition}{i}"
            jobs.append(job(key, 20 * i, 20 * i, 20 * i + 20, 1, nodes=1, partition=partition))
            placed += on(key, f"{partition}{i % 2}")
    jobs += [job(f"full{i}", 200, 200, 300, 1, nodes=1, partition="mine") for i in range(2)]
    placed += [*on("full0", "mine0"), *on("full1", "mine1")]
    jobs.append(job("x", 210, 320, 330, 1, nodes=1, partition="mine"))
    placed += on("x", "mine0")
    assert spent(delays(jobs, placed)["x"]) == {"cluster_full": 90, "unknown": 20}


def test_a_partition_that_was_seldom_seen_may_use_the_nodes_of_those_it_shares_one_with() -> None:
    on_nodes = pl.DataFrame(
        [("big", f"n{i % 4}") for i in range(40)] + [("small", "n0"), ("small", "n1"), ("far", "m0")],
        schema=["partition", "node"], orient="row",
    )  # fmt: skip
    found = nodes_of_partitions(on_nodes.group_by("partition", "node").len())
    assert found["big"] == found["small"] == {"n0", "n1", "n2", "n3"} and found["far"] == {"m0"}


def test_a_node_on_which_nothing_ran_for_days_is_down() -> None:
    away = 10 * DAY_S
    jobs = [
        *(job(f"k{i}", i * DAY_S, i * DAY_S, (i + 1) * DAY_S, 4, nodes=1) for i in range(20)),
        job("before", 0, 0, 100, 4, nodes=1),
        job("x", away, away + 9 * DAY_S, away + 10 * DAY_S, 4, nodes=1),
        OPEN,
    ]
    placed = [row for i in range(20) for row in on(f"k{i}", "n0", gpus=4)]
    placed += [*on("before", "n1", gpus=4), *on("x", "n1", gpus=4), *on("open", "n0", gpus=0)]
    assert spent(delays(jobs, placed)["x"]) == {"nodes_down": 9 * DAY_S}


def test_a_log_that_does_not_show_its_end_tells_nothing_of_nodes_idle_there() -> None:
    """Of jobs that are over alone: what ran on n1 from 100 on may not be over."""
    jobs = [job("a", 0, 0, 1000, 1, nodes=1), job("b", 0, 0, 100, 1, nodes=1), job("x", 50, 1000, 1100, 1, nodes=1)]
    placed = [*on("a", "n0"), *on("b", "n1"), *on("x", "n0")]
    assert spent(delays(jobs, placed)["x"]) == {"cluster_full": 950}
    assert spent(delays([*jobs, OPEN], [*placed, *on("open", "n1", gpus=0)])["x"]) == {
        "cluster_full": 50,
        "unknown": 900,
    }


@pytest.mark.parametrize(
    ("ask", "basis"),
    [
        ({"gpus": 4}, "GPU counts"),
        ({"gpus": 0, "requested_cpus": 4, "allocated_cpus": 4}, "CPU counts"),
        ({"gpus": None, "nodes": 1}, "node counts"),
        ({"gpus": None}, "job counts"),
    ],
)
def test_without_placements_counts_tell_and_say_which(ask: dict[str, Any], basis: str) -> None:
    jobs = [job("a", 0, 0, 100, **ask), job("x", 0, 130, 200, **ask), {**OPEN, "start_utc": None, "state": "PENDING"}]
    x = delays(jobs)["x"]
    assert spent(x) == {"cluster_full": 100, "unknown": 30} and x["cause_basis"] == basis


def test_no_wait_has_no_causes() -> None:
    found = delays([job("never", 0, None, 50, 1), job("back", 100, 40, 90, 1), job("unknown", None, 40, 90, 1)])
    assert all(row[name] is None for row in found.values() for name in (*CAUSES, "main_cause", "cause_basis"))


def test_the_schedulers_reason_names_a_limit_or_a_hold() -> None:
    jobs = [job(key, 0, 50, 100, 1, nodes=1) for key in ("limit", "held", "other", "down", "licence")] + [
        job("a", 0, 0, 40, 5, nodes=1),
        OPEN,
    ]
    said = {
        "limit": "QOSMaxJobsPerUserLimit", "held": "JobHeldUser", "other": "ReqNodeNotAvail,_May_be_reserved",
        "down": "PartitionDown", "licence": "Licenses",
    }  # fmt: skip
    found = delays(jobs, reason=said)
    # All five GPUs are busy until 40. A limit is asked before resources, so it held all the while.
    assert spent(found["limit"]) == {"own_limit": 50} and found["limit"]["own_limit"] == said["limit"]
    assert spent(found["held"]) == {"held": 10, "cluster_full": 40}
    assert spent(found["other"]) == {"reservation": 10, "cluster_full": 40}
    assert spent(found["down"]) == {"nodes_down": 10, "cluster_full": 40}
    assert spent(found["licence"]) == {"unknown": 10, "cluster_full": 40}
    late = [{**row, "eligible_utc": at(30) if row["submit_utc"] == at(0) else row["submit_utc"]} for row in jobs]
    found = delays(late, reason={**said, "other": "Reservation", "down": "JobArrayTaskLimit", "limit": "Dependency"})
    assert spent(found["held"])["held"] == 30  # a log with eligible times says itself how long
    assert spent(found["other"])["reservation"] >= 30 and spent(found["down"])["array_limit"] >= 30
    assert spent(found["limit"])["dependency"] == 30 and "held" not in spent(found["limit"])


@pytest.mark.parametrize(
    ("reason", "is_limit"),
    [
        ("QOSMaxGRESPerUser", True), ("AssocGrpCpuLimit", True), ("QOSGrpNodeLimit", True), ("MaxCpuPerAccount", True),
        ("AssociationJobLimit", True), ("AssocMaxJobsLimit", True), ("JobArrayTaskLimit", False),
        ("Priority", False), ("Resources", False), ("Licenses", False), ("None", False), ("x QOSMax", False),
    ],
)  # fmt: skip
def test_which_reasons_name_a_limit(reason: str, is_limit: bool) -> None:
    assert pl.Series([reason]).str.contains(limits.LIMIT_REASON).item() == is_limit


def own_limits(users: int, most: int, reason: str | None = None, hogs: int = 0) -> dict[str, dict[str, Any]]:
    """Each user submits `most` + 3 jobs of an hour at once to a machine with room, and runs `most` of them at a time.

    `hogs` more users run all of theirs at once.
    """
    jobs = [OPEN]
    for user in range(users + hogs):
        for i in range(most + 3):
            start = i // most * 3600 if user < users else 0
            jobs.append(job(f"{user}-{i}", 0, start, start + 3600, 1, nodes=1, user_name=f"u{user}", partition="p"))
    for day in (-DAY_S, DAY_S):  # shows that there are 400 nodes
        jobs.append(job(f"wide{day}", day, day, day + 600, 400, nodes=400, user_name="wide", partition="p"))
    return delays(jobs, reason=None if reason is None else {row["job_key"]: reason for row in jobs})


def test_a_limit_shows_where_three_users_stop_with_a_job_waiting_that_would_have_fitted() -> None:
    found = own_limits(users=4, most=8)
    assert (
        spent(found["0-9"]) == {"own_limit": 3600} and found["0-9"]["own_limit"] == "8 running jobs per user (inferred)"
    )
    assert found["0-9"]["main_cause"] == "own limit"


@pytest.mark.parametrize(
    "case", [{"users": 2}, {"users": 4, "hogs": 3}, {"users": 4, "reason": "None"}, {"users": 4, "most": 1}]
)
def test_no_limit_is_inferred_from_too_few_users_or_with_others_beyond_or_against_the_schedulers_reasons(
    case: dict[str, Any],
) -> None:
    found = own_limits(**{"most": 8, **case})
    assert sum(row["own_limit_s"] or 0 for row in found.values()) == 0


def test_a_user_who_went_beyond_is_not_under_the_limit() -> None:
    found = own_limits(users=30, most=8, hogs=1)
    assert found["0-9"]["own_limit_s"] == 3600 and found["30-9"]["own_limit_s"] == 0


def test_users_who_never_wanted_more_are_no_evidence() -> None:
    """All run two at once and wait for a machine with one GPU too few."""
    jobs = [OPEN]
    for user in range(6):
        start = 1000 * user
        jobs += [job(f"{user}-{i}", 0, start, start + 1000, 1, nodes=1, user_name=f"u{user}") for i in range(2)]
    found = delays(jobs)
    assert {row["own_limit_s"] for row in found.values()} == {0}
    assert found["3-1"]["cluster_full_s"] == 3000


def test_an_eligible_time_after_the_start_holds_nothing() -> None:
    """A requeue while the job runs overwrites it: when the job first became eligible is not known any more."""
    jobs = [job("full", 0, 0, 100, 1, nodes=1), job("x", 0, 100, 200, 1, nodes=1, eligible=150), OPEN]
    x = delays(jobs, [*on("full", "n0"), *on("x", "n0"), *on("open", "n0", gpus=0)])["x"]
    assert (x["wait_s"], x["held_s"], x["cluster_full_s"], x["eligible_wait_s"]) == (100, 0, 100, 100)
    assert x["main_cause"] == "cluster full"


@pytest.mark.parametrize(
    ("asked", "full"),
    [
        ({}, 0), ({"features_asked": "ib"}, 100), ({"features_asked": "ib&big"}, 100),
        ({"gpu_type_asked": "A100"}, 100), ({"gpu_type_asked": "A100|T4"}, 0),
        ({"features_asked": "[a*1|b*2]"}, 0), ({"features_asked": "none has it"}, 0),
    ],
)  # fmt: skip
def test_full_is_asked_of_the_nodes_with_the_features_and_gpus_that_a_job_asks_for(
    asked: dict[str, str], full: int
) -> None:
    """n0 has InfiniBand and A100s and is taken to 100; n1 is empty and has T4s."""
    jobs = [
        job("a", 0, 0, 100, 4, nodes=1, partition="p"), job("b", -50, -50, -40, 4, nodes=1, partition="p"),
        job("x", 0, 150, 200, 4, nodes=1, partition="p", **asked), {**OPEN, "partition": "p"},
    ]  # fmt: skip
    placed = [*on("a", "n0", gpus=4), *on("b", "n1", gpus=4), *on("x", "n0", gpus=4), *on("open", "n0", gpus=0)]
    nodes = [
        {"node": "n0", "gpus": 4, "gpu_type": "A100", "features": "ib,big"},
        {"node": "n1", "gpus": 4, "gpu_type": "T4", "features": "eth"},
    ]
    found = from_trace(trace(jobs, placements=placed, nodes=nodes), ClusterSettings(CLUSTER))["queueing_delay"]
    x = found.row(by_predicate=pl.col("job_key") == "x", named=True)
    assert x["cluster_full_s"] == full and x["wait_s"] == 150
    assert x["pool_nodes"] == (1 if full else 2)
