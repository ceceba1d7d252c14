"""Fragmentation: by hand, and against a loop over nodes and instants."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from features import fragmentation, locality
from features.resources.capacity import nodes_shown
from features.resources.usage import runs
from features.trace import Trace
from tests.features.toy import CLUSTER, EPOCH, at, job, random_jobs, trace
from traces.clusters import ClusterSettings
from traces.store.frames import query


def placed(key: str, node: str, gpus: int | None) -> dict[str, Any]:
    return {"job_key": key, "attempt": 0, "node": node, "gpus": gpus}


def series(of: Trace, **known: Any) -> list[dict[str, Any]]:
    return fragmentation.from_trace(of, ClusterSettings(CLUSTER, **known))["fragmentation"].to_dicts()


def test_free_gpus_that_a_queued_job_cannot_use() -> None:
    """Nodes of 4: one with 3 held, one with 2; a job of 4 and one of 2 wait."""
    of = trace(
        [
            job("a", 0, 0, 1200, 3, nodes=1),
            job("b", 0, 0, 1200, 2, nodes=1),
            job("c", 0, 1200, 1300, 4, nodes=1),
            job("d", 0, 1200, 1300, 2, nodes=1),
        ],
        placements=[placed("a", "n0", 3), placed("b", "n1", 2), placed("c", "n0", 4), placed("d", "n1", 2)],
    )
    first, *_ = series(of, nodes=2, gpus_per_node=4)
    assert (first["capacity_gpus"], first["busy_gpus"], first["free_gpus"], first["empty_nodes"]) == (8, 5, 3, 0)
    assert (first["largest_node_gpus"], first["largest_gang_gpus"]) == (2, 0)
    assert (first["pending_jobs"], first["pending_gpus"], first["basis"]) == (2, 6, "placements")
    # c can use none of 3 free GPUs; d can use the 2 on n1 and not the 1 on n0.
    assert first["unusable_free_share_pending"] == pytest.approx((3 + 1) / (2 * 3))
    # The job mix: 3 (all 3 out of reach), 2 and 2 (1 of 3), 4 (all 3).
    assert first["unusable_free_share"] == pytest.approx((3 + 1 + 3 + 1) / (4 * 3))


def test_nodes_of_the_settings_that_never_appear_are_empty() -> None:
    of = trace([job("a", 0, 0, 600, 3)], placements=[placed("a", "n0", 3)])
    first, *_ = series(of, nodes=5, gpus_per_node=4)
    assert (first["capacity_nodes"], first["empty_nodes"], first["largest_gang_gpus"]) == (5, 4, 16)
    assert first["empty_node_share"] == 0.8


@pytest.mark.parametrize(
    ("of", "nodes"),
    [
        # two jobs share n0, so jobs hold three nodes at once, of which there are two
        (
            trace(
                [job("a", 0, 0, 600, None, nodes=1), job("b", 0, 0, 600, None, nodes=2)],
                placements=[placed("a", "n0", None), placed("b", "n0", None), placed("b", "n1", None)],
            ),
            2,
        ),
        (trace([job("a", 0, 0, 600, None, nodes=3), job("b", 0, 300, None, None, nodes=4, state="RUNNING")]), 7),
        (trace([job("a", 0, 0, 600, 1)], placements=[placed("a", "n0", 1)], nodes=[{"node": "n9", "gpus": 1}]), 2),
    ],
)
def test_the_log_shows_one_number_of_nodes(of: Trace, nodes: int) -> None:
    known = ClusterSettings(CLUSTER)
    assert nodes_shown(of, runs(of, known)) == nodes
    assert {row["capacity_nodes"] for row in series(of)} == {nodes}


def test_without_placements_jobs_hold_whole_nodes_and_the_rows_say_so() -> None:
    of = trace([job("a", 0, 0, 600, None, nodes=3), job("b", 0, 600, 700, None, nodes=4)])
    first, second = series(of, nodes=5, gpus_per_node=3)
    assert (first["basis"], first["busy_nodes"], first["free_gpus"], first["largest_gang_nodes"]) == (
        "node counts",
        3,
        6,
        2,
    )
    assert (first["pending_jobs"], first["pending_gpus"], first["unusable_free_share"]) == (1, 12, None)
    assert (second["busy_nodes"], second["pending_jobs"], second["capacity_source"]) == (4, 0, "settings")


def test_the_queue_holds_a_job_only_while_the_log_says_so() -> None:
    """One pending at the log's end, one cancelled at 700 s, one that is over without a time (Philly, no attempt)."""
    of = trace(
        [
            job("runs", 0, 0, 1800, 1, nodes=1),
            job("pending", 0, None, None, 1, state="PENDING"),
            job("cancelled", 0, None, 700, 1, state="CANCELLED"),
            job("over", 0, None, None, 1, state="COMPLETED"),
        ]
    )
    assert [r["pending_jobs"] for r in series(of)] == [2, 2, 1, 0]


def test_capacity_changes_by_date() -> None:
    of = trace([job("a", 0, 0, 1200, None, nodes=1)])
    rows = series(of, nodes=2, gpus_per_node=3, nodes_by_date=((at(600), 4),))
    assert [r["capacity_nodes"] for r in rows] == [2, 4, 4]


def test_no_gpu_anywhere_leaves_gpus_null() -> None:
    of = trace([job("a", 0, 0, 600, None, nodes=1)], placements=[placed("a", "n0", None)])
    first, *_ = series(of)
    assert first["capacity_gpus"] is None and first["free_gpus"] is None and first["busy_nodes"] == 1
    first, *_ = series(trace([job("a", 0, 0, 600, None, nodes=1)]))
    assert first["capacity_gpus"] is None and first["capacity_nodes"] == 1


@st.composite
def placed_jobs(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    jobs, placements = [], []
    for i in range(draw(st.integers(1, 8))):
        submit = draw(st.integers(0, 3000))
        start = submit + draw(st.integers(0, 2000))
        split = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
        jobs.append(job(f"j{i}", submit, start, start + draw(st.integers(0, 4000)), sum(split), nodes=len(split)))
        placements += [placed(f"j{i}", f"n{k}", gpus) for k, gpus in enumerate(split)]
    listed = draw(st.booleans())
    return jobs, placements, [{"node": f"n{k}", "gpus": 4} for k in range(4)] if listed else []


@settings(max_examples=40, deadline=None)
@given(placed_jobs())
def test_the_series_is_that_of_a_loop(
    rows: tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]],
) -> None:
    jobs, placements, nodes = rows
    spans = {r["job_key"]: r for r in jobs}

    def there(node: str, when: Any) -> list[int]:
        return [
            p["gpus"] for p in placements
            if p["node"] == node and spans[p["job_key"]]["start_utc"] <= when < spans[p["job_key"]]["end_utc"]
        ]  # fmt: skip

    ran = [p for p in placements if spans[p["job_key"]]["run_s"] > 0]
    names = sorted({p["node"] for p in placements} | {n["node"] for n in nodes})
    instants = sorted({spans[p["job_key"]]["start_utc"] for p in ran})
    size = {
        name: max([4 if nodes else 0, *(sum(there(name, when)) for when in instants)])
        for name in names
    }  # fmt: skip
    found = series(trace(jobs, placements=placements, nodes=nodes))
    if not any(size.values()):  # no run lasted: nothing tells what a node holds
        assert all(r["capacity_gpus"] is None for r in found)
        return
    assert [r["time_utc"] for r in found] == sorted({r["time_utc"] for r in found})
    for r in found:
        when = r["time_utc"]
        assert (when - EPOCH).total_seconds() % 600 == 0
        free = {name: size[name] - sum(there(name, when)) for name in names}
        empty_nodes = [name for name in names if not there(name, when)]
        queue = [j for j in jobs if j["submit_utc"] <= when < j["start_utc"]]
        assert r["capacity_gpus"] == sum(size.values()) and r["capacity_nodes"] == len(names)
        assert r["free_gpus"] == sum(free.values()) and r["busy_gpus"] == sum(size.values()) - sum(free.values())
        assert r["empty_nodes"] == len(empty_nodes) and r["busy_nodes"] == len(names) - len(empty_nodes)
        assert r["largest_node_gpus"] == max(free.values())
        assert r["largest_gang_gpus"] == sum(size[name] for name in empty_nodes)
        assert (r["pending_jobs"], r["pending_gpus"]) == (len(queue), sum(j["gpus"] for j in queue))
        for drawn, name in ((jobs, "unusable_free_share"), (queue, "unusable_free_share_pending")):
            if not drawn or not sum(free.values()):
                assert r[name] is None
                continue
            lost = sum(f for j in drawn for f in free.values() if f < -(-j["gpus"] // j["nodes"]))
            assert r[name] == pytest.approx(lost / (len(drawn) * sum(free.values())))


def test_the_fewest_nodes_are_those_of_the_pool_that_a_job_may_use() -> None:
    """Partition big has nodes of 8 GPUs, small nodes of 2 and one of 4: 8 GPUs of small take 3 nodes and not one."""
    gpus = {"b0": 8, "b1": 8, "s0": 4, "s1": 2, "s2": 2, "s3": 2}
    jobs: list[dict[str, Any]] = []
    placed: list[dict[str, Any]] = []
    for key, partition, nodes in (
        ("wide", "small", ("s0", "s1", "s2", "s3")), ("best", "small", ("s0", "s1", "s2")), ("one", "big", ("b0",)),
        ("two", "big", ("b0", "b1")), ("again", "small", ("s0", "s1", "s2", "s3")), ("more", "big", ("b0", "b1")),
    ):  # fmt: skip
        start = 100 * len(jobs)
        jobs.append(job(key, start, start, start + 50, 8, partition=partition))
        share = {"wide": 2, "again": 2}.get(key)
        placed += [
            {"job_key": key, "attempt": 0, "node": n, "gpus": share or min(gpus[n], 8 // len(nodes) + 1)} for n in nodes
        ]
    listed = [{"node": name, "gpus": count} for name, count in gpus.items()]
    rows = locality.from_trace(trace(jobs, placements=placed, nodes=listed), ClusterSettings(CLUSTER))
    found = {r["job_key"]: (r["fewest_nodes"], r["excess_nodes"]) for r in rows["placement_spread"].to_dicts()}
    assert found["best"] == (3, 0) and found["wide"] == (3, 1) and found["one"] == (1, 0) and found["two"] == (1, 1)


def test_spread_is_nodes_used_beyond_the_fewest() -> None:
    of = trace(
        [job("tight", 0, 0, 60, 8, nodes=1), job("spread", 0, 0, 60, 8, nodes=3), job("cpu", 0, 0, 60, 0, nodes=1)],
        placements=[placed("tight", "n0", 8), *(placed("spread", f"n{i}", g) for i, g in ((1, 4), (2, 2), (3, 2)))],
    )
    rows = locality.from_trace(of, ClusterSettings(CLUSTER, gpus_per_node=8))["placement_spread"]
    found = {r["job_key"]: (r["nodes"], r["fewest_nodes"], r["excess_nodes"], r["basis"]) for r in rows.to_dicts()}
    assert found == {
        "tight": (1, 1, 0, "placements"),
        "spread": (3, 1, 2, "placements"),
        "cpu": (1, None, None, "node counts"),
    }


@settings(max_examples=30, deadline=None)
@given(placed_jobs())
def test_spread_is_that_of_sql(
    rows: tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]],
) -> None:
    of = trace(rows[0], placements=rows[1])
    expected = query(
        """SELECT job_key, count(DISTINCT node) AS nodes, ceil(any_value(requested_gpus) / 6)::BIGINT AS fewest_nodes,
             nodes - fewest_nodes AS excess_nodes
           FROM jobs JOIN placements USING (job_key) GROUP BY job_key ORDER BY job_key""",
        {"jobs": of.jobs, "placements": of.placements},
    )
    found = locality.from_trace(of, ClusterSettings(CLUSTER, gpus_per_node=6))["placement_spread"]
    peak = query(
        """SELECT max(s) AS peak FROM (SELECT (SELECT sum(p.gpus) FROM placements p JOIN attempts b USING (job_key)
             WHERE p.node = q.node AND b.start_utc <= a.start_utc AND b.end_utc > a.start_utc) AS s
           FROM placements q JOIN attempts a USING (job_key))""",
        {"attempts": of.attempts, "placements": of.placements},
    ).item()
    if (peak or 0) > 6:  # a node that held more than is declared has as many
        return
    assert_frame_equal(found.select(expected.columns).sort("job_key"), expected, check_dtypes=False)


@settings(max_examples=30, deadline=None)
@given(
    random_jobs(fewest=1), st.lists(st.sets(st.sampled_from(("n0", "n1", "n2")), min_size=1), min_size=12, max_size=12)
)
def test_colocation_is_that_of_a_loop(rows: list[dict[str, Any]], where: list[set[str]]) -> None:
    ran = [row for row in rows if row["start_utc"] is not None]
    nodes = {row["job_key"]: names for row, names in zip(ran, where, strict=False)}
    of = trace(rows, placements=[placed(key, name, 1) for key, names in nodes.items() for name in sorted(names)])
    found = locality.from_trace(of, ClusterSettings(CLUSTER))["placement_spread"]
    shares = dict(found.select("job_key", "shared_share").iter_rows())
    instants = sorted({row[name] for row in ran for name in ("start_utc", "end_utc")})
    for row in ran:
        if row["run_s"] == 0:
            assert shares[row["job_key"]] is None
            continue
        shared = sum(
            (b - a).total_seconds()
            for a, b in itertools.pairwise(instants)
            if row["start_utc"] <= a < row["end_utc"]
            for name in nodes[row["job_key"]]
            if any(o is not row and name in nodes[o["job_key"]] and o["start_utc"] <= a < o["end_utc"] for o in ran)
        )
        assert shares[row["job_key"]] == pytest.approx(shared / (row["run_s"] * len(nodes[row["job_key"]])))


def test_waits_by_locality_against_sql() -> None:
    rng = np.random.default_rng(4)
    jobs, places = [], []
    for i in range(120):
        submit, gpus = 50 * i, 4 * (1 + i % 3)
        count = max(1 + i % 4, -(-gpus // 8))
        jobs.append(job(f"j{i}", submit, submit + int(rng.integers(0, 900)), submit + 1000 + i, gpus, nodes=count))
        places += [placed(f"j{i}", f"n{i}-{n}", gpus // count) for n in range(count)]
    of = trace(jobs, placements=places)
    found = locality.from_trace(of, ClusterSettings(CLUSTER, gpus_per_node=8))
    expected = query(
        """SELECT CASE WHEN gpus <= 4 THEN '2-4' WHEN gpus <= 8 THEN '5-8' ELSE '>8' END AS size_bucket,
             least(nodes - ceil(gpus / 8), 3)::BIGINT AS excess_nodes, count(*) AS jobs, avg(w) AS wait_mean_s,
             quantile_cont(w, 0.9) AS wait_p90_s
           FROM (SELECT job_key, requested_gpus AS gpus, requested_nodes AS nodes, wait_s AS w FROM jobs)
           WHERE nodes >= ceil(gpus / 8) GROUP BY ALL ORDER BY ALL""",
        {"jobs": of.jobs},
    )
    got = (
        found["locality"]
        .filter(pl.col("excess_nodes") >= 0)
        .select(expected.columns)
        .sort("size_bucket", "excess_nodes")
    )
    tight = {(r["size_bucket"], r["excess_nodes"]): r for r in got.to_dicts()}
    for row in expected.filter(pl.col("excess_nodes") > 0).to_dicts():
        assert tight[row["size_bucket"], row["excess_nodes"]] == pytest.approx(row)


@settings(max_examples=25, deadline=None)
@given(random_jobs(fewest=1))
def test_empty_nodes_by_utilization_are_those_of_sql(rows: list[dict[str, Any]]) -> None:
    found = fragmentation.from_trace(trace(rows), ClusterSettings(CLUSTER, nodes=7, gpus_per_node=8))
    expected = query(
        """SELECT least(floor(10 * busy_gpus / capacity_gpus), 10) / 10 AS utilization_from, count(*) AS instants,
             avg(empty_node_share) AS empty_node_share_mean, median(empty_node_share) AS empty_node_share_p50
           FROM f WHERE empty_node_share IS NOT NULL GROUP BY ALL ORDER BY ALL""",
        {"f": found["fragmentation"]},
    )
    got = found["empty_nodes"].select(expected.columns)
    assert_frame_equal(got, expected, check_dtypes=False)


def test_a_stray_year_makes_the_grid_coarser_not_endless() -> None:
    of = trace([job("a", 0, 0, 20 * 365 * 86_400, 1)])
    assert len(series(of, nodes=1, gpus_per_node=1)) <= fragmentation.MAX_INSTANTS + 1


@pytest.mark.parametrize("rows", [[], [job("x", 0, None, 50, 4, state="CANCELLED")]])
def test_nothing_ran(rows: list[dict[str, Any]]) -> None:
    tables = fragmentation.from_trace(trace(rows), ClusterSettings(CLUSTER))
    assert all(frame.is_empty() and list(frame.columns) for frame in tables.values())
    assert isinstance(tables["fragmentation"], pl.DataFrame)
