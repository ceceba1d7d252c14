"""The generated Slurm log obeys the cluster it claims to come from, and is as congested as the sample needs."""

from __future__ import annotations

import gzip
import time
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from traces.generate import workload as demand
from traces.generate.logs import SAMPLE_GPUS_PER_NODE, SAMPLE_NODES, SAMPLE_WEEKS, SLURM_SAMPLE_SEED, generate_slurm
from traces.generate.schedule import BY_MAIN, BY_SUBMIT, schedule
from traces.generate.slurm import COLUMNS, HOSTILE_NAMES, GeneratedHistory, bracket, clock, generated_history, node_list
from traces.units import WEEK_S

SAMPLE = Path(__file__).resolve().parents[3] / "data" / "sample" / "slurm"


@lru_cache(maxsize=1)
def past() -> GeneratedHistory:
    return generated_history(
        jobs=None, weeks=SAMPLE_WEEKS, nodes=SAMPLE_NODES, gpus_per_node=SAMPLE_GPUS_PER_NODE, seed=SLURM_SAMPLE_SEED
    )


@lru_cache(maxsize=1)
def lines() -> list[str]:
    paths = sorted(SAMPLE.glob("*.gz"))
    return [line for path in paths for line in gzip.decompress(path.read_bytes()).decode().split("\n")]


@lru_cache(maxsize=1)
def jobs() -> list[dict[str, str]]:
    """Rows of allocations whose user text holds no pipe."""
    rows = [line.split("|") for line in lines() if line and not line.startswith("JobID|")]
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows if len(row) == len(COLUMNS) and "." not in row[0]]


def test_no_node_is_held_twice_and_capacity_is_never_exceeded() -> None:
    held: dict[int, list[tuple[int, int]]] = {}
    plan, nodes = past().plan, past().jobs.nodes
    for record in np.flatnonzero(plan.start_s >= 0).tolist():
        first = plan.first_node[record]
        taken = plan.node_list[first : first + nodes[record]].tolist()
        assert len(set(taken)) == nodes[record]
        for node in taken:
            held.setdefault(node, []).append((plan.start_s[record], plan.end_s[record]))
    assert set(held) == set(range(SAMPLE_NODES))
    for spans in held.values():
        spans.sort()
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_times_are_in_order_and_runs_keep_their_limit_within_kill_wait() -> None:
    plan, wanted = past().plan, past().jobs
    ran = plan.start_s >= 0
    assert (plan.submit_s <= plan.eligible_s)[ran].all()
    assert (plan.eligible_s <= plan.start_s)[ran].all()
    over = (plan.end_s - plan.start_s - wanted.limit_s)[ran]
    assert over.max() <= 30  # KillWait
    timeout = ran & (wanted.outcome == demand.TIMEOUT)
    assert (plan.end_s - plan.start_s >= wanted.limit_s)[timeout].all()


def test_a_successor_waits_for_its_predecessor() -> None:
    plan, wanted = past().plan, past().jobs
    follows = np.flatnonzero((wanted.previous >= 0) & (plan.eligible_s >= 0))
    before = wanted.previous[follows]
    assert len(follows) > 100
    assert (plan.end_s[before] <= plan.eligible_s[follows]).all()
    depends = follows[wanted.link[follows] == demand.DEPENDS]
    assert (plan.eligible_s[depends] > plan.submit_s[depends]).any()


def test_the_sample_is_congested_and_its_queue_does_not_diverge() -> None:
    plan, wanted = past().plan, past().jobs
    ran = plan.start_s >= 0
    wait_h = (plan.start_s - plan.eligible_s) / 3600
    wide = ran & (wanted.nodes == 8) & (wanted.limit_s == 48 * 3600)
    assert wide.sum() >= 100
    assert wait_h[wide].mean() >= 2  # or a reactive successor would lose next to nothing
    assert wait_h[wide].max() <= 72
    assert wait_h[ran & (wanted.nodes == 1)].mean() >= 0.25
    assert (wait_h[wide] <= 2).mean() >= 0.1  # light spells exist beside the heavy ones
    assert (wait_h[wide] > 12).mean() >= 0.1


def test_utilization_lies_where_a_congested_cluster_lies() -> None:
    plan, wanted = past().plan, past().jobs
    ran = plan.start_s >= 0
    weekly = []
    for week in range(SAMPLE_WEEKS):
        low = demand.EPOCH_S + week * WEEK_S
        overlap = np.minimum(plan.end_s, low + WEEK_S) - np.maximum(plan.start_s, low)
        weekly.append((np.clip(overlap, 0, None) * wanted.nodes)[ran].sum() / SAMPLE_NODES / WEEK_S)
    assert max(weekly) <= 1
    assert abs(np.mean(weekly) - demand.TARGET_LOAD) <= 0.12
    assert min(weekly) >= 0.45


def _demand(rows: list[tuple[int, int, int]]) -> demand.GeneratedDemand:
    """Independent jobs (submit, nodes, limit) that run their whole limit, all of one priority."""
    submit, nodes, limit = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    zero, number = np.zeros(len(rows), dtype=np.int64), np.arange(len(rows))
    return demand.GeneratedDemand(
        group=number, kind=zero, member=zero, user=zero, nodes=nodes, limit_s=limit, run_s=limit, outcome=zero,
        submit_s=submit, patience_s=zero - 1, previous=zero - 1, link=zero, throttle=zero, priority=zero + 1000,
    )  # fmt: skip


def test_backfill_passes_the_head_of_the_queue_only_without_delaying_it() -> None:
    """Four nodes: 3 busy to 100, a job of all four waits; a short narrow job goes ahead, a long one must not."""
    plan = schedule(_demand([(0, 3, 100), (1, 4, 100), (2, 1, 200), (3, 1, 50)]), nodes=4, until_s=10_000)
    assert plan.start_s.tolist() == [0, 100, 200, 3]
    assert plan.started_by.tolist() == [BY_SUBMIT, BY_MAIN, BY_MAIN, BY_SUBMIT]


def test_backfill_uses_the_nodes_that_the_reservation_leaves_over() -> None:
    """Five nodes: the waiting job needs four at 100, so one is spare and a long job of one node may start at once."""
    plan = schedule(_demand([(0, 4, 100), (1, 4, 100), (2, 1, 500), (3, 1, 500)]), nodes=5, until_s=10_000)
    assert plan.start_s.tolist() == [0, 100, 2, 200]


def test_the_users_ask_for_the_sizes_that_pairs_need() -> None:
    nodes = past().jobs.nodes
    assert {1, 2, 4, 8, 16} <= set(nodes.tolist())
    assert 0.04 <= (nodes == 8).mean() <= 0.15


@pytest.mark.parametrize(
    "state",
    ["COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "OUT_OF_MEMORY", "NODE_FAIL", "REQUEUED", "RUNNING", "PENDING"],
)
def test_every_state_is_there(state: str) -> None:
    assert any(job["State"].split(" ")[0] == state for job in jobs())


def test_odd_cases_are_there() -> None:
    rows = jobs()
    assert any(job["Start"] == "None" and job["State"].startswith("CANCELLED by ") for job in rows)
    assert any("_[" in job["JobID"] and "%" in job["JobID"] and job["State"] == "PENDING" for job in rows)
    assert any(job["TimelimitRaw"] == "Partition_Limit" for job in rows)
    assert any(job["Eligible"] > job["Submit"] and job["Reason"] == "Dependency" for job in rows)
    again = [job["JobIDRaw"] for job in rows if job["State"] in ("REQUEUED", "NODE_FAIL")]
    assert any(sum(job["JobIDRaw"] == raw for job in rows) >= 2 for raw in again)
    text = "\n".join(lines())
    assert sum(name in text for name in HOSTILE_NAMES) >= 20
    assert any(len(line.split("|")) > len(COLUMNS) for line in lines())  # a pipe that sacct did not escape


def test_the_two_dumps_overlap_as_real_ones_do() -> None:
    first, second = (
        {line.split("|")[1] for line in gzip.decompress(path.read_bytes()).decode().split("\n")[1:-1]}
        for path in sorted(SAMPLE.glob("*.gz"))
    )
    assert len(first & second) >= 10


def test_ids_are_unique_but_for_requeued_jobs() -> None:
    wanted = past().jobs
    raw = past().raw_id[wanted.link != demand.REQUEUED]
    assert len(np.unique(raw)) == len(raw)


def test_fifty_thousand_jobs_take_seconds(tmp_path: Path) -> None:
    began = time.monotonic()
    path = generate_slurm(
        tmp_path, jobs=50_000, weeks=1, nodes=256, gpus_per_node=4, seed=1, steps=False, compress=False
    )
    assert time.monotonic() - began < 60  # about 4 s alone on one core
    with path.open(encoding="utf-8", newline="\n") as stream:
        assert 45_000 <= sum(1 for _ in stream) - 1 <= 55_000


def test_node_lists_and_clocks_are_in_slurms_form() -> None:
    assert node_list([7]) == "gpu07"
    assert node_list([1, 2, 3, 8]) == "gpu[01-03,08]"
    assert bracket([4, 5, 6, 9], width=1) == "4-6,9"
    assert clock(59) == "00:00:59"
    assert clock(90_061) == "1-01:01:01"
