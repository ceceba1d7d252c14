"""What the report says: figures against SQL of the test's own, and honest words where a log holds nothing."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from scipy import stats

from reports import format as fmt
from reports.build import SECTIONS, build_report, section_data
from reports.drift import FEATURES
from reports.sections.change import change
from reports.source import Remarks, Source
from tests.reports import warehouse
from traces import schema
from traces.clusters import ClusterSettings
from traces.store.folder import DataFolder
from traces.store.frames import conform

CLUSTER = "gpu-lab"


def _sql(data: DataFolder, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(data.warehouse), read_only=True) as connection:
        return connection.execute(sql).fetchall()


def test_summary_has_three_sentences_and_five_numbers_that_sql_confirms(full_data: DataFolder) -> None:
    summary = section_data(full_data, CLUSTER, "summary")
    assert len(summary["sentences"]) == 3 and len(summary["numbers"]) == 5
    ((jobs, users, ran, p50, p95),) = _sql(
        full_data,
        "SELECT count(*), count(DISTINCT user_name), count(start_utc), quantile_cont(wait_s, 0.5), "
        "quantile_cont(wait_s, 0.95) FROM jobs",
    )
    ((held, done),) = _sql(
        full_data,
        "SELECT sum(gpu_time_s), sum(gpu_time_s) FILTER (state = 'COMPLETED') FROM jobs",
    )
    numbers = summary["numbers"]
    assert numbers["jobs"] == f"{jobs:,}" and summary["lead"].startswith(f"{jobs:,} jobs of {users} users, 2024-01-01")
    assert summary["lead"].endswith(f"{ran:,} of them started.")
    assert numbers["median wait"] == fmt.duration(p50)
    assert numbers["95th percentile of the wait"] == fmt.duration(p95)
    assert numbers["completed"] == f"{100 * done / held:.1f} %"


def test_allocated_share_is_held_time_over_capacity(full_data: DataFolder) -> None:
    allocated = section_data(full_data, CLUSTER, "summary")["numbers"]["allocated"]
    ((held,),) = _sql(full_data, "SELECT sum(gpus * epoch(end_utc - start_utc)) FROM attempts")
    ((hours,),) = _sql(full_data, "SELECT epoch(max(end_utc) - min(start_utc)) / 3600 FROM attempts")
    assert float(allocated.removesuffix(" %")) == pytest.approx(100 * held / (hours * 3600 * 64), abs=0.05)


def test_waits_by_size_equal_sql(full_data: DataFolder) -> None:
    shown = {row["value"]: row for row in section_data(full_data, CLUSTER, "waits")["tables"]["by_size_bucket"]}
    found = _sql(
        full_data,
        "SELECT CASE WHEN requested_gpus = 1 THEN '1' WHEN requested_gpus <= 4 THEN '2-4' "
        "WHEN requested_gpus <= 8 THEN '5-8' ELSE '>8' END AS size, count(wait_s), avg(wait_s), "
        "quantile_cont(wait_s, 0.95) FROM jobs GROUP BY size",
    )
    assert list(shown) == ["1", "2-4", "5-8", ">8"]
    for size, jobs, mean, p95 in found:
        row = shown[size]
        assert (row["jobs"], row["wait_mean_s"], row["wait_p95_s"]) == pytest.approx((jobs, mean, p95))


def test_states_equal_sql(full_data: DataFolder) -> None:
    shown = {row["value"]: row for row in section_data(full_data, CLUSTER, "fails")["tables"]["states"]}
    for state, jobs, share in _sql(
        full_data,
        "SELECT state, count(*), sum(gpu_time_s) / sum(sum(gpu_time_s)) OVER () FROM jobs "
        "WHERE start_utc IS NOT NULL GROUP BY state",
    ):
        assert shown[state]["jobs"] == jobs
        assert shown[state]["gpu_time_share"] == pytest.approx(float(share))


def test_distance_to_recorded_waits_equals_scipy(full_data: DataFolder) -> None:
    section = section_data(full_data, CLUSTER, "fidelity")
    (row,) = section["tables"]["distance"]
    pairs = np.array(_sql(full_data, "SELECT recorded_wait_s, simulated_wait_s FROM simulated_starts"), float)
    assert row["mean_absolute_error_s"] == pytest.approx(np.abs(pairs[:, 0] - pairs[:, 1]).mean())
    assert row["spearman"] == pytest.approx(stats.spearmanr(pairs[:, 0], pairs[:, 1]).statistic)
    assert row["recorded_p95_wait_s"] == pytest.approx(np.quantile(pairs[:, 0], 0.95))
    assert "shorter than the recorded mean" in section["sentences"][0]


def test_calibration_says_how_far_to_trust_it_and_what_stays_unexplained(full_data: DataFolder) -> None:
    section = section_data(full_data, CLUSTER, "fidelity")
    (sentence,) = (text for text in section["sentences"] if "February 2024" in text)
    assert "a mean absolute error of 1 h a wait" in sentence and "The mean wait is 4 h recorded" in sentence
    assert {row["relative_error"] for row in section["tables"]["calibration"]} == {0.25}
    assert [row["mechanism"] for row in section["tables"]["mechanisms"]] == ["", "holds"]
    early = next(row for row in section["tables"]["unexplained"] if row["class"] == "over 1 hour early")
    assert (early["jobs"], early["error_h"], early["share_of_error"]) == (1, 2.0, 1.0)


def test_what_calibration_leaves_out_stands_beside_its_figures(full_data: DataFolder) -> None:
    remarks = {CLUSTER: Remarks(uncalibrated="all but the newest <90,000> jobs")}
    section = section_data(full_data, CLUSTER, "fidelity", remarks=remarks)
    assert "The log is long, so calibration leaves out all but the newest <90,000> jobs." in section["sentences"]
    assert not any("leaves out" in text for text in section_data(full_data, CLUSTER, "fidelity")["sentences"])
    out = build_report(full_data, remarks=remarks)
    assert "leaves out all but the newest &lt;90,000&gt; jobs." in out.read_text(encoding="utf-8")


def test_a_month_that_methods_were_made_with_is_called_development(full_data: DataFolder) -> None:
    def months(until: datetime | None) -> set[str]:
        remarks = {CLUSTER: Remarks(development_until=until)}
        section = section_data(full_data, CLUSTER, "fidelity", remarks=remarks)
        return {row["month"] for row in section["tables"]["calibration"]}

    (month,) = months(None)
    begin = datetime.strptime(month, "%Y-%m")
    assert months(begin) == {month}  # declared to end where the month begins
    assert months(begin + timedelta(seconds=1)) == {f"{month} (development)"}


def test_rejects_are_grouped_by_reason_and_add_up(full_data: DataFolder) -> None:
    read = section_data(full_data, CLUSTER, "read")
    assert sum(row["n"] for row in read["tables"]["rejects"]) == len(warehouse.HOSTILE)
    assert "1 job had an ambiguous local time in the hour of a clock change" in " ".join(read["sentences"])


def test_policies_show_intervals_chosen_settings_loads_and_the_release(full_data: DataFolder) -> None:
    section = section_data(full_data, CLUSTER, "policies")
    tables = section["tables"]
    reactive = next(row for row in tables["comparison-8-48-plain"] if row["policy"] == "reactive")
    assert reactive["interruption_ci"] == pytest.approx([8.8, 13.2]) and reactive["cost_ci"] is None
    assert {row["budget"] for row in tables["chosen-8-48-plain"]} == {1.0}
    assert {row["load"] for row in tables["loads-1-48-plain"]} == {"light", "medium", "heavy"}
    assert tables["releases"][0]["outcome"] == "passed"
    assert section["sentences"][0] == "dqn, a learned policy, is the champion."
    assert "version 1 is champion" in section["sentences"][-2] and "Retraining is requested" in section["sentences"][-1]


def test_policies_are_ordered_by_cost_and_the_best_named_is_no_oracle(full_data: DataFolder) -> None:
    section = section_data(full_data, CLUSTER, "policies")
    rows = section["tables"]["comparison-8-48-plain"]
    assert [row["cost_w1"] for row in rows] == sorted(row["cost_w1"] for row in rows)
    best = _picked(full_data, 8)
    words = " ".join(section["sentences"])
    assert f"{best}, the policy with the least cost on the select window, interrupts for " in words
    assert f"{best} beats" not in words and "that takes 3 pooled windows" in words
    assert "The plain world is far from the log" in words and "rank correlation of 0.35" in words


def _picked(data: DataFolder, nodes: int) -> str:
    """Of what may be released, the policy of least cost on the select window."""
    ((policy,),) = _sql(
        data,
        "SELECT policy FROM policy_curves WHERE \"window\" = 'select' AND policy NOT IN ('oracle', 'reactive', "
        "'mirage-average') AND policy NOT LIKE '%-untrained' "
        f"AND pair_nodes = {nodes} ORDER BY cost_w1, policy LIMIT 1",
    )
    return str(policy)


def test_advice_comes_first_and_says_how_many_would_lose(full_data: DataFolder) -> None:
    section = section_data(full_data, CLUSTER, "change")
    assert section["sentences"][0] == (
        "The advisor recommends priority.limit.1h=+6h: on weeks that it did not search, the 90th percentile of the "
        "waits falls from 2 h to 1 h (95 % interval of the difference -1 h 7 min to -10 min); `baton advise` prints "
        "what to type."
    )
    rows = section["tables"]["advice"]
    assert [(row["losing_groups"], row["why_not"]) for row in rows] == [
        (0, None),
        (1, "1 group would wait too much longer"),
    ]


def test_the_best_candidate_is_drawn_with_the_record(full_data: DataFolder) -> None:
    waits, queue = change(Source(full_data, CLUSTER)).figures[:2]
    for figure in (waits, queue):
        assert "The change is priority.limit.1h=+6h." in figure.caption
        assert all(f">{line}<" in figure.svg for line in ("recorded", "as it is", "with the change"))
    assert "means over periods of 24 h" in queue.caption


def test_only_a_change_beyond_chance_is_called_one(full_data: DataFolder) -> None:
    section = section_data(full_data, CLUSTER, "change")
    assert section["sentences"][1] == (
        "The log records a mean wait of 1 h 2 min. In simulation it is 1 h on the unchanged cluster and 20 min with "
        "nodes=+10%. Without more nodes, the largest reduction is to 50 min with ask=1.2."
    )
    rows = section["tables"]["what_if"]
    assert [row["change"] for row in rows] == [
        "as it is", "nodes=+10%", "ask=1.2", "backfill=off"
    ]  # fmt: skip
    assert rows[0]["interval"] is None and rows[3]["interval"] == [-400.0, 200.0]


def test_a_gpu_scheduler_is_better_where_weeks_and_draws_agree_and_its_losers_are_named(full_data: DataFolder) -> None:
    section = section_data(full_data, CLUSTER, "change")
    words = " ".join(section["sentences"])
    assert (
        "In simulation, GPU jobs complete on average 2 h after submission under yarn and 1 h under tiresias (95 % "
        "interval of the change: -1 h 30 min to -30 min). Values missing from the log were drawn 3 times; the change "
        "was -1 h 7 min to -53 min over these draws. tiresias preempts running jobs 600 times (2.00 per job), and "
        "restarts cost 12.00 GPU h."
    ) in words  # srtf is faster in the mean, but not in every draw
    assert (
        "The log records a mean wait of 2 h (median 1.0 min, 90th percentile 10 h) for 290 jobs; this replay of yarn "
        "has 30 min (median 0 s, 90th percentile 1 h), with Spearman's rho 0.41 job by job. Differences below 1 h 30 "
        "min are within the error of the replay."
    ) in words
    assert (
        "Under tiresias, 2 of 4 groups of jobs complete later than under the base scheduler; jobs of user "
        "<script>alert(1)</script> lose most: each completes 20 min later." in words
    )
    parts = {row["name"]: row["effect"] for row in section["tables"]["what_if_groups"]}
    assert parts["1"] == "gains" and parts["9-up"] == "loses" and parts["vc1"] == "not significant"
    assert [row["line"] for row in section["tables"]["what_if_assumed"]] == [
        "each job draws a model (generated)",
        "quotas <b>by</b> user",
    ]


def test_hand_over_shows_reactive_the_one_picked_and_the_bound(full_data: DataFolder) -> None:
    rows = section_data(full_data, CLUSTER, "change")["tables"]["hand_over"]
    for nodes in (1, 8):
        shown = [row["policy"] for row in rows if row["nodes_held"] == str(nodes)]
        assert shown == ["reactive", _picked(full_data, nodes), "oracle"]


def test_load_equals_sql(full_data: DataFolder) -> None:
    section = section_data(full_data, CLUSTER, "load")
    ((days, jobs),) = _sql(full_data, "SELECT count(*), sum(arrivals) FROM load")
    ((all_,),) = _sql(full_data, "SELECT count(*) FROM jobs")
    assert jobs == all_ and section["sentences"][0].startswith(f"{jobs / days:,.0f} jobs a day")
    shifted = {row["name"]: (row["weeks"], row["shifted"]) for row in section["tables"]["drift"]}
    for feature, weeks, often in _sql(
        full_data, "SELECT feature, count(*), sum(is_shifted::INT) FROM drift GROUP BY feature"
    ):
        assert shifted[FEATURES[feature]] == (weeks, often)


def test_hours_held_and_idle_by_user_equal_sql(full_data: DataFolder) -> None:
    tables = section_data(full_data, CLUSTER, "waste")["tables"]
    held = dict(
        _sql(
            full_data,
            "SELECT j.user_name, sum(a.gpu_time_s) / 3600 FROM attempts a JOIN jobs j USING (job_key) GROUP BY ALL",
        )
    )
    shares = [row["share"] for row in tables["allocated_by_user"]]
    for row in tables["allocated_by_user"]:
        assert row["hours"] == pytest.approx(float(held[row["user_name"]]))
        assert row["share"] == pytest.approx(float(held[row["user_name"]] / sum(held.values())))
    assert shares == sorted(shares, reverse=True)
    ((idle,),) = _sql(full_data, "SELECT sum(idle_samples) * 60 FROM utilization_measured")
    assert sum(row["idle_gpu_time_s"] for row in tables["idle_by_user_name"]) == idle > 0


def test_the_order_of_the_queue_and_the_quotas_are_those_of_the_tables(full_data: DataFolder) -> None:
    section = section_data(full_data, CLUSTER, "waits")
    whole = next(row for row in section["tables"]["start_order"] if row["by"] == "all")
    ((starts, late),) = _sql(full_data, "SELECT count(*), sum(is_out_of_order::INT) FROM start_order")
    assert (whole["starts"], whole["out_of_order"]) == (starts, late)
    rows = section["tables"]["quota_sensitivity"]
    assert [row["is_default"] for row in rows].count("yes") == 1
    assert any("the split depends on how" in sentence for sentence in section["sentences"])


def test_the_study_is_beside_a_philly_log_and_no_other(full_data: DataFolder, tmp_path: Path) -> None:
    assert "study" not in re.findall(r'<section id="[^"]*" class="(\w+)"', build_report(full_data).read_text())
    assert section_data(full_data, CLUSTER, "study")["missing"]
    rows = [
        warehouse.job("phl", number, state=state, wait_s=60 * number, run_s=run, allocated_gpus=4)
        for number, (state, run) in enumerate([("COMPLETED", 3600), ("COMPLETED", 600), ("CANCELLED", 7200)], 1)
    ]
    jobs = pl.DataFrame(rows)
    tables = {
        "jobs": jobs,
        "attempts": warehouse.attempts_of(conform(schema.JOBS, jobs)),
        "trace_files": pl.DataFrame([warehouse.trace_file("phl", 3) | {"format": "philly-jobs"}]),
    }
    data = warehouse.with_features(tmp_path, tables, ClusterSettings("phl", nodes=3, gpus_per_node=4))
    section = section_data(data, "phl", "study")
    found = {row["what"]: row["percent"] or row["seconds"] for row in section["tables"]["study"]}
    assert found["jobs passed"] == pytest.approx(2 / 3) and found["jobs killed"] == pytest.approx(1 / 3)
    assert found["GPU time of jobs killed"] == pytest.approx(7200 / 11400)
    assert (found["mean wait"], found["median run time"]) == (120, 3600)
    assert "mean utilization of held GPUs" in section["missing"][0] and "mean utilization of held GPUs" not in found
    assert 'class="study"' in build_report(data).read_text()


def test_missing_tables_are_said_not_left_blank(tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    jobs = pl.DataFrame([warehouse.job("bare", 1)])
    warehouse.write(
        data,
        {
            "jobs": conform(schema.JOBS, jobs),
            "trace_files": pl.DataFrame([warehouse.trace_file("bare", 1)]),
        },
    )
    html = build_report(data).read_text(encoding="utf-8")
    assert (
        html.count("What is not known here") == len(SECTIONS) - 4
    )  # read needs no other table; study is for Philly's logs alone, deployed for those of the agent, start
    # where a model was made
    assert "hold nothing for this cluster" in html
    for table in ("failures_by", "load", "utilization_allocated", "queueing_by"):  # the log is not to blame
        assert f"The table {table} has not been computed for this cluster yet: run `baton analyze`." in html
    assert "no job of it has a start" not in html and "holds no submission" not in html


def test_cluster_without_jobs(tmp_path: Path) -> None:
    tables = {"trace_files": pl.DataFrame([warehouse.trace_file("void", 0, rejects=0)])}
    data = warehouse.with_features(tmp_path, tables, ClusterSettings("void"))
    for name in SECTIONS:
        section = section_data(data, "void", name)
        assert section["missing"] or name == "read", name
    assert "hold no job" in build_report(data).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"wait_s": None, "run_s": None, "state": "CANCELLED", "attempts": 0},
        {"wait_s": 0, "run_s": 0},
        {"requested_gpus": None, "allocated_gpus": 0, "partition": None, "account": None, "user_name": None},
    ],
    ids=["plain", "never ran", "no wait and no run", "no GPUs, no names"],
)
def test_one_job(tmp_path: Path, values: dict[str, Any]) -> None:
    data = warehouse.one_job(tmp_path, **values)
    html = build_report(data).read_text(encoding="utf-8")
    assert re.search(r'<p class="lead">1 job( of 1 user)?, 2024-01-01 to', html)
    assert not re.search(r"\b(nan|inf|None)\b", html)


@pytest.mark.parametrize(("gpus", "title"), [(2, "Where GPUs are wasted"), (0, "Where nodes are wasted")])
def test_waste_is_of_gpus_or_of_nodes(tmp_path: Path, gpus: int, title: str) -> None:
    jobs = pl.DataFrame([warehouse.job("tiny", 1, requested_gpus=gpus, allocated_gpus=gpus)])
    attempts = warehouse.attempts_of(conform(schema.JOBS, jobs))
    tables = {"jobs": jobs, "attempts": attempts, "trace_files": pl.DataFrame([warehouse.trace_file("tiny", 1)])}
    data = warehouse.with_features(tmp_path, tables, ClusterSettings("tiny"))
    assert section_data(data, "tiny", "waste")["title"] == title


def test_empty_warehouse(tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    warehouse.write(data, warehouse.empty_tables())
    assert "holds no cluster yet" in build_report(data).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("cluster", "generated"),
    [("mine", True), ("mine", False), ("sample", False), ("philly-sample", False)],  # by the files, not by a name
)
def test_generated_data_is_called_generated(tmp_path: Path, cluster: str, generated: bool) -> None:
    data = DataFolder(tmp_path)
    file = warehouse.trace_file(cluster, 1, path="data/sample/generated.txt") | {"is_generated": generated}
    jobs = conform(schema.JOBS, pl.DataFrame([warehouse.job(cluster, 1)]))
    warehouse.write(data, {"jobs": jobs, "trace_files": pl.DataFrame([file])})
    assert Source(data, cluster).is_generated is generated
    html = build_report(data).read_text(encoding="utf-8")
    assert ("does not represent a real cluster" in html) is generated
    assert ("Generated trace" in html) is generated


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "–"), (0, "0 s"), (0.5, "0.5 s"), (59, "59 s"), (90, "1.5 min"), (3599, "1 h"), (3600, "1 h"),
        (12_000, "3 h 20 min"),
        (172_800, "2 d"), (187_200, "2 d 4 h"), (-90, "-1.5 min"), (59.7, "1.0 min"),
    ],
)  # fmt: skip
def test_durations(seconds: float | None, words: str) -> None:
    assert fmt.duration(seconds) == words


def test_the_deployed_policy_is_told_by_version_and_link(full_data: DataFolder) -> None:
    section = section_data(full_data, CLUSTER, "deployed")
    every, *others = section["tables"]["deployed_policies"]
    assert every["handovers"] == sum(row["handovers"] for row in others) == 35
    low, high = every["interruption_ci"]
    assert low < every["interruption_h"] < high
    (plan,) = section["tables"]["plans"]
    assert plan["expected_interruption_h"] == 0.5 and plan["limit_s"] == max(row["limit_s"] or 0 for row in others)
    assert any(line.startswith("Plans expected 0.50 h of interruption at") for line in section["sentences"])
    links = section["tables"]["deployed_links"]
    gaps = [row["interruption_s"] for row in links if row["interruption_s"] is not None]
    assert every["interruption_h"] == pytest.approx(sum(gaps) / len(gaps) / 3600)
    assert section["tables"]["predictions"][0]["predicted"] == 35 and not section["missing"]
    assert any("cannot show the interruption under reactive submission" in text for text in section["sentences"])
